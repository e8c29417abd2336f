"""A preview for people: counts first, then problems and diffs, up to the limit."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import click

from reconciler.cli.desk.emit import paint, unified_diff
from reconciler.cli.preview.baseline import Difference
from reconciler.cli.preview.tally import OTHER, Change, RuleTally, Verdict
from reconciler.services.dryrun import Identity

_HEAD = ("POLICY", "RULE", "ON", "TRIGGERS", "TARGETS")
_COLUMNS = (
    Verdict.CHANGED,
    Verdict.UNCHANGED,
    Verdict.SKIPPED,
    Verdict.MISSING,
    Verdict.REFUSED,
    Verdict.ERROR,
)
_MOST_REASONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of a preview.

    Attributes:
        refusals: Policies that cannot be compiled, with the reason.
        tried: The API server was asked whether it accepts the changes.
        permissions: Missing rights, as they are to be granted.
        difference: From the baseline; None where none was given.
        calls: Requests to the API server.
    """

    rules: Sequence[RuleTally]
    refusals: Sequence[str] = ()
    server: str
    tried: bool
    permissions: Sequence[str]
    difference: Difference | None
    calls: int
    seconds: float

    @property
    def changed(self) -> set[Identity]:
        """Return all objects that would be changed."""
        found: set[Identity] = set()
        return found.union(*(rule.changed for rule in self.rules))

    @property
    def incomplete(self) -> bool:
        """Return whether something could not be compiled, read or evaluated."""
        return bool(self.refusals) or any(
            rule.failures or rule.count(Verdict.ERROR) for rule in self.rules
        )

    @property
    def refused(self) -> int:
        """Return how many changes the API server would refuse."""
        return sum(rule.count(Verdict.REFUSED) for rule in self.rules)


def lines_of(report: Report, *, coloured: bool) -> Iterator[str]:
    """Yield the lines of a report."""
    style = click.style if coloured else _plain
    yield from _table(report.rules)
    yield ""
    yield _summary(report)
    yield from _hints(report)
    if report.permissions:
        yield ""
        yield style("Missing permissions, what they hide is not counted:", fg="red")
        yield from (f"  {item}" for item in report.permissions)
        if any(
            item.startswith("list ") and " in namespace " not in item
            for item in report.permissions
        ):
            yield "With -n NAMESPACE the triggers of one namespace are enough"
    if report.difference is not None:
        yield ""
        yield from _baseline(report.difference, style)
    for rule in report.rules:
        yield from _details(rule, style, coloured=coloured)


def place_of(target: Identity) -> str:
    """Return how a person names a target: ``Deployment shop/web (scale)``."""
    _, kind, namespace, name, subresource = target
    place = f"{namespace}/{name}" if namespace else name
    return f"{kind} {place}" + (f" ({subresource})" if subresource else "")


def occasion_of(rule: RuleTally) -> str:
    """Return on what occasion a rule was looked at."""
    return rule.operation or "policy change"


def _plain(text: str, **_: object) -> str:
    return text


def _table(rules: Sequence[RuleTally]) -> Iterator[str]:
    rows = [(*_HEAD, *(_title(column) for column in _COLUMNS))]
    rows += [
        (
            rule.program.origin.policy,
            rule.program.rule,
            occasion_of(rule),
            str(rule.triggers),
            str(len(rule.verdicts)),
            *(str(rule.count(column) or "-") for column in _COLUMNS),
        )
        for rule in rules
    ]
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=True)
        ).rstrip()


def _title(column: Verdict) -> str:
    return "ERRORS" if column is Verdict.ERROR else column.upper()


def _summary(report: Report) -> str:
    read = sum(rule.read for rule in report.rules)
    return (
        f"{_number(read, 'object')} looked at, {_number(len(report.changed), 'object')} would be"
        f" changed; nothing was written"
        f" ({_number(report.calls, 'request')} to {report.server}, {report.seconds:.1f}s)"
    )


def _hints(report: Report) -> Iterator[str]:
    if not report.tried and report.changed:
        yield "Whether the API server accepts the changes was not asked: --server-dry-run asks it"


def _baseline(difference: Difference, style: Callable[..., str]) -> Iterator[str]:
    if not difference:
        yield "As the baseline says, no object more and none less"
        return
    yield style("Not as the baseline says:", bold=True)
    for target in difference.missing:
        yield style(f"- {place_of(target)}: would not be changed", fg="red")
    for target in difference.unexpected:
        yield style(f"+ {place_of(target)}: is not in the baseline", fg="green")


def _details(rule: RuleTally, style: Callable[..., str], *, coloured: bool) -> Iterator[str]:
    body = [*_remarks(rule), *_problems(rule, style)]
    changes = rule.shown
    if not body and not changes:
        return
    yield ""
    yield style(f"== {rule.program.origin.policy} / {rule.program.rule} ==", bold=True)
    yield from body
    for change in changes:
        yield ""
        yield from _change(change, style, coloured=coloured)
    yield from _left_out(rule)


def _remarks(rule: RuleTally) -> Iterator[str]:
    yield from (f"note: {text}" for text in rule.notes)
    yield from (f"not read: {text}" for text in rule.failures)
    yield from _reasons("match, but no trigger", rule.unmet)
    yield from _reasons("targets skipped", rule.skipped)


def _reasons(what: str, reasons: Counter[str]) -> Iterator[str]:
    told = [item for item in reasons.most_common() if item[0] != OTHER][:_MOST_REASONS]
    for text, count in told:
        yield f"{what} ({count:,}): {text}"
    more = reasons.total() - sum(count for _, count in told)
    if more:
        yield f"{what} ({more:,}): {OTHER}"


def _problems(rule: RuleTally, style: Callable[..., str]) -> Iterator[str]:
    for problem in rule.problems.values():
        where = "" if problem.target is None else f"{place_of(problem.target)}, "
        head = style(f"{problem.verdict}:", fg="red")
        yield f"{head} {where}triggered by {problem.trigger}: {problem.message}"


def _change(change: Change, style: Callable[..., str], *, coloured: bool) -> Iterator[str]:
    name = place_of(change.target)
    more = f" and {change.triggers - 1} more" if change.triggers > 1 else ""
    yield style(f"{name}, triggered by {change.trigger}{more}", bold=True)
    if change.repeats:
        yield "each trigger changes it once more: the rule does not settle"
    lines = unified_diff(change.before, change.after, names=(name, name))
    yield from paint(lines) if coloured else lines


def _left_out(rule: RuleTally) -> Iterable[str]:
    parts = [
        _number(count, word)
        for count, word in ((rule.changes_left, "change"), (rule.problems_left, "problem"))
        if count > 0
    ]
    if parts:
        yield ""
        yield f"{' and '.join(parts)} more: --limit 0 shows all"


def _number(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"
