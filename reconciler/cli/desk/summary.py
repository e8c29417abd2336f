"""The summary of `retrofit apply`: counts, errors, and why rules skipped objects."""

from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final

from typing_extensions import override

from reconciler.cli.desk.emit import title
from reconciler.cli.desk.session import RuleResult, TriggerRun
from reconciler.cli.output.masking import Mask, mask_of
from reconciler.cli.output.screen import Screen
from reconciler.cli.output.table import table
from reconciler.cli.output.words import number, some
from reconciler.engine.outcome import RuleStatus

_COLUMNS = ("changed", "unchanged", "skipped", "errors")
_MOST: Final = 3
"""The maximum number of objects that a remark names; the others are counted."""

_REJECTED: Final = "rejected"
_ERROR: Final = "error"
_WARNING: Final = "warning"
_LEFT: Final = "skipped"
_OTHER: Final = "not for"
_COLOURS: Final = {_ERROR: "red", _REJECTED: "red", _WARNING: "yellow"}
_KINDS: Final = {RuleStatus.ERROR: _ERROR, RuleStatus.FAIL: _REJECTED}


@dataclass(slots=True)
class _Remark:
    """The objects to which one message about a rule applies."""

    count: int = 0
    places: list[str] = field(default_factory=list)

    def add(self, place: str) -> None:
        self.count += 1
        if len(self.places) < _MOST:
            self.places.append(place)

    @override
    def __str__(self) -> str:
        return some(self.places, self.count, most=_MOST)


@dataclass(slots=True, kw_only=True)
class Summary:
    """Counts results by policy and rule.

    Attributes:
        verbose: Whether to report the assumed operation of each rule, and why rules skipped
            objects.
        shows_secrets: Whether messages may quote the content of Secrets.
    """

    verbose: bool = False
    shows_secrets: bool = False
    triggers: int = 0
    _counts: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    _remarks: dict[tuple[str, str, str, str], _Remark] = field(default_factory=dict)
    _operations: dict[tuple[str, str, str], None] = field(default_factory=dict)

    def add(self, run: TriggerRun) -> None:
        """Add the results of a run."""
        self.triggers += 1
        mask = Mask() if self.shows_secrets else mask_of_run(run)
        if self.verbose:
            for result in (*run.results, *run.others):
                text = f"operation {result.operation}"
                self._operations.setdefault((result.policy, result.rule, text))
        for result in run.results:
            column = _column(result)
            self._counts.setdefault((result.policy, result.rule), Counter())[column] += 1
            if result.status is not RuleStatus.PASS:
                kind = _WARNING if result.lacking else _KINDS.get(result.status, _LEFT)
                self._remark(result, kind, mask)
        for result in run.others:
            self._remark(result, _OTHER, mask)

    @property
    def changed(self) -> int:
        """The number of changes."""
        return self._count("changed")

    @property
    def errors(self) -> int:
        """The number of results that are errors."""
        return self._count("errors")

    @property
    def warnings(self) -> int:
        """The number of warnings of rules."""
        return sum(kind == _WARNING for _, _, kind, _ in self._remarks)

    @property
    def rejections(self) -> int:
        """The number of requests that rules refused."""
        return self._count(_REJECTED)

    def remarks(self, screen: Screen) -> Iterator[str]:
        """Yield lines about errors and warnings and, with `verbose`, about skipped objects.

        Each message appears once, however many objects it concerns.
        """
        if self.verbose:
            for policy, rule, text in self._operations:
                yield from screen.fold(f"{policy} / {rule}: {text}", hanging="  ")
        # Errors come last, where they are most visible.
        for kind in (_OTHER, _LEFT, _WARNING, _REJECTED, _ERROR):
            for (policy, rule, found, message), remark in self._remarks.items():
                if found == kind:
                    text = f"{policy} / {rule}: {kind}: {remark}: {message}"
                    head, *rest = screen.fold(text, hanging="  ")
                    yield _marked(head, kind, screen)
                    yield from rest

    def lines(self, screen: Screen, *, faults: int, totals: bool) -> Iterator[str]:
        """Yield a table with a row for each rule, and a summary line.

        Args:
            faults: The number of other errors: refused policies, and kinds that cannot be listed.
            totals: Whether the line of `totals` follows, which has the counts.
        """
        columns = (*_COLUMNS, _REJECTED) if self.rejections else _COLUMNS
        rows = [
            (policy, rule, *(str(counted[column] or "-") for column in columns))
            for (policy, rule), counted in self._counts.items()
        ]
        if rows and (len(rows) > 1 or self.triggers > 1):
            head = ("POLICY", "RULE", *(name.upper() for name in columns))
            yield from table([head, *rows], screen.width)
        read = f"{number(self.triggers, 'object')} read as trigger{'s' * (self.triggers != 1)}"
        rejected = f"{number(self.rejections, 'rejection')}, " if self.rejections else ""
        errors = number(self.errors + faults, "error")
        counts = f"{number(self.changed, 'change')}, {rejected}{errors}"
        yield read if totals else f"{read}: {counts}"

    def totals(self, *, faults: int) -> str:
        """Return the line of totals in the format of Kyverno's command."""
        skipped = self._count("skipped") + self._count("unchanged")
        return (
            f"pass: {self.changed}, fail: {self.rejections}, warn: 0,"
            f" error: {self.errors + faults}, skip: {skipped}"
        )

    def _count(self, column: str) -> int:
        return sum(counted[column] for counted in self._counts.values())

    def _remark(self, result: RuleResult, kind: str, mask: Mask) -> None:
        if kind not in _COLOURS and not self.verbose:
            return
        key = (result.policy, result.rule, kind, mask.text(result.message))
        self._remarks.setdefault(key, _Remark()).add(place_of(result))


def mask_of_run(run: TriggerRun) -> Mask:
    """Return the mask for the Secrets that a run processed or read."""
    seen: list[Mapping[str, Any]] = [run.trigger, run.after]
    seen += [obj for result in run.results for obj in (result.before, result.after)]
    return mask_of(seen).with_loads(run.loads)


def place_of(result: RuleResult) -> str:
    """Return the name of the object of a result and, for a target, of its trigger."""
    trigger = title(result.trigger)
    return f"{title(result.before)}, triggered by {trigger}" if result.target else trigger


def _marked(line: str, kind: str, screen: Screen) -> str:
    if kind not in _COLOURS:
        return line
    head, sign, rest = line.partition(f": {kind}:")
    return f"{head}: {screen.style(kind, fg=_COLOURS[kind])}:{rest}" if sign else line


def _column(result: RuleResult) -> str:
    match result.status:
        case RuleStatus.PASS:
            return "changed"
        case RuleStatus.SKIP:
            return "unchanged" if result.unchanged else "skipped"
        case RuleStatus.FAIL:
            return _REJECTED
        case RuleStatus.ERROR:
            return "errors"


def passed_over(names: AbstractSet[str], *, whole: bool) -> str:
    """Return the message about files in folders without objects, empty where there are none."""
    if not names:
        return ""
    files = number(len(names), "file")
    listed = some(sorted(names), most=len(names) if whole else _MOST)
    return f"passed over {files} without a Kubernetes object: {listed}"
