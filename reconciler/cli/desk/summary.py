"""How many objects each rule changed."""

from collections import Counter
from dataclasses import dataclass, field
from typing import TextIO

from reconciler.cli.desk.session import TriggerRun
from reconciler.engine.evaluate import NOTHING
from reconciler.engine.outcome import RuleStatus

_COLUMNS = ("changed", "unchanged", "skipped", "errors")


@dataclass(slots=True)
class Summary:
    """Counts by policy and rule."""

    triggers: int = 0
    _counts: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)

    def add(self, run: TriggerRun) -> None:
        """Take in a run."""
        self.triggers += 1
        for result in run.results:
            column = _column(result.status, result.message)
            self._counts.setdefault((result.policy, result.rule), Counter())[column] += 1

    @property
    def changed(self) -> int:
        """How many changes there would be."""
        return sum(counted["changed"] for counted in self._counts.values())

    @property
    def errors(self) -> int:
        """How often a rule ended in an error."""
        return sum(counted["errors"] for counted in self._counts.values())

    def show(self, stream: TextIO) -> None:
        """Write a row for each rule, and a line for all."""
        rows = [
            (policy, rule, *(str(counted[column] or "") for column in _COLUMNS))
            for (policy, rule), counted in self._counts.items()
        ]
        if len(rows) > 1 or self.triggers > 1:
            _table([("POLICY", "RULE", *(name.upper() for name in _COLUMNS)), *rows], stream)
        stream.write(
            f"{self.triggers} objects read as triggers: {self.changed} changes,"
            f" {self.errors} errors\n"
        )


def _column(status: RuleStatus, message: str) -> str:
    match status:
        case RuleStatus.PASS:
            return "changed"
        case RuleStatus.SKIP:
            return "unchanged" if message == NOTHING else "skipped"
        case RuleStatus.ERROR:
            return "errors"


def _table(rows: list[tuple[str, ...]], stream: TextIO) -> None:
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    for row in rows:
        stream.write("  ".join(cell.ljust(widths[i]) for i, cell in enumerate(row)).rstrip())
        stream.write("\n")
