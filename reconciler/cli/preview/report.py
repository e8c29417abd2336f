"""The report of a preview for people: counts, then problems and diffs up to the limit."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from reconciler.cli.desk.emit import paint, unified_diff
from reconciler.cli.desk.operations import word_of
from reconciler.cli.output.screen import Screen
from reconciler.cli.output.table import table
from reconciler.cli.output.words import number, some
from reconciler.cli.preview.baseline import Difference
from reconciler.cli.preview.rule_summary import OTHER, Change, Problem, RuleSummary, Verdict
from reconciler.services.preview.dryrun import Identity

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
_UNTRIED = "Whether the API server accepts the changes is unknown: --server-dry-run tries them"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of a preview.

    Attributes:
        refusals: Policies that cannot be compiled, with the reason.
        tried: Whether the API server checked the changes in a dry run.
        permissions: The missing rights, as they have to be granted.
        difference: The difference from the baseline; None where none was given.
        calls: The number of requests to the API server.
    """

    rules: Sequence[RuleSummary]
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
        """Return the number of changes that the API server would refuse."""
        return sum(rule.count(Verdict.REFUSED) for rule in self.rules)


def lines_of(report: Report, screen: Screen) -> Iterator[str]:
    """Yield the lines of a report that fit a screen."""
    yield from table(_rows(report.rules), screen.width)
    yield ""
    yield from screen.fold(_summary(report))
    if not report.tried and report.changed:
        yield from screen.fold(_UNTRIED)
    if report.permissions:
        yield ""
        yield screen.style("Missing permissions, what they hide is not counted:", fg="red")
        yield from (f"  {item}" for item in report.permissions)
        if any(it.startswith("list ") and " in namespace " not in it for it in report.permissions):
            yield "With -n NAMESPACE the triggers of one namespace are enough"
    if report.difference is not None:
        yield ""
        yield from _baseline(report.difference, screen)
    for rule in report.rules:
        yield from _details(rule, screen)


def place_of(target: Identity) -> str:
    """Return the name of a target for people: ``Deployment shop/web (scale)``."""
    _, kind, namespace, name, subresource = target
    place = f"{namespace}/{name}" if namespace else name
    return f"{kind} {place}" + (f" ({subresource})" if subresource else "")


def _rows(rules: Sequence[RuleSummary]) -> list[tuple[str, ...]]:
    # Columns without any count are omitted: they only take space.
    always = (Verdict.CHANGED, Verdict.UNCHANGED)
    columns = [it for it in _COLUMNS if it in always or any(rule.count(it) for rule in rules)]
    titles = ["ERRORS" if it is Verdict.ERROR else it.upper() for it in columns]
    rows = [(*_HEAD, *titles)]
    rows += [
        (
            rule.program.origin.policy.key,
            rule.program.rule,
            word_of(rule.operation),
            str(rule.triggers),
            str(len(rule.verdicts)),
            *(str(rule.count(column) or "-") for column in columns),
        )
        for rule in rules
    ]
    return rows


def _summary(report: Report) -> str:
    read = sum(rule.read for rule in report.rules)
    return (
        f"{number(read, 'object')} looked at, {number(len(report.changed), 'object')} would be"
        f" changed; nothing was written"
        f" ({number(report.calls, 'request')} to {report.server}, {report.seconds:.1f}s)"
    )


def _baseline(difference: Difference, screen: Screen) -> Iterator[str]:
    if not difference:
        yield "As in the baseline: exactly its objects would be changed"
        return
    yield screen.style("Not as the baseline says:", bold=True)
    for target in difference.missing:
        yield screen.style(f"- {place_of(target)}: would not be changed", fg="red")
    for target in difference.unexpected:
        yield screen.style(f"+ {place_of(target)}: is not in the baseline", fg="green")


def _details(rule: RuleSummary, screen: Screen) -> Iterator[str]:
    body = [line for text in _remarks(rule) for line in screen.fold(text, hanging="  ")]
    body += _problems(rule, screen)
    changes = rule.shown
    if not body and not changes:
        return
    yield ""
    yield screen.style(f"== {rule.program.origin.policy} / {rule.program.rule} ==", bold=True)
    yield from body
    for change in changes:
        yield ""
        yield from _change(change, screen)
    yield from _left_out(rule)


def _remarks(rule: RuleSummary) -> Iterator[str]:
    yield from (f"note: {text}" for text in rule.notes)
    yield from (f"not read: {text}" for text in rule.failures)
    yield from _reasons("match, but no trigger", rule.unmet)
    yield from _reasons("targets skipped", rule.skipped)


def _reasons(what: str, reasons: Counter[str]) -> Iterator[str]:
    listed = [item for item in reasons.most_common() if item[0] != OTHER][:_MOST_REASONS]
    for text, count in listed:
        yield f"{what} ({count:,}): {text}"
    more = reasons.total() - sum(count for _, count in listed)
    if more:
        yield f"{what} ({more:,}): {OTHER}"


def _problems(rule: RuleSummary, screen: Screen) -> Iterator[str]:
    # Problems with the same message are reported once, however many triggers have them.
    found: dict[tuple[Verdict, str], list[Problem]] = {}
    for problem in rule.problems.values():
        found.setdefault((problem.verdict, problem.message), []).append(problem)
    for (verdict, message), problems in found.items():
        times = f" ({len(problems)} times)" if len(problems) > 1 else ""
        head = f"{verdict}{times}:"
        text = f"{head} {_met(problems)}: {message}"
        first, *rest = screen.fold(text, hanging="  ")
        yield screen.style(head, fg="red") + first[len(head) :]
        yield from rest


def _met(problems: Sequence[Problem]) -> str:
    """Return the targets or triggers of problems with one message."""
    targets = [place_of(it.target) for it in problems if it.target is not None]
    triggers = [it.trigger for it in problems]
    if len(problems) == 1 and targets:
        return f"{targets[0]}, triggered by {triggers[0]}"
    return some(targets) if targets else f"triggered by {some(triggers)}"


def _change(change: Change, screen: Screen) -> Iterator[str]:
    name = place_of(change.target)
    more = f" and {change.triggers - 1} more" if change.triggers > 1 else ""
    for line in screen.fold(f"{name}, triggered by {change.trigger}{more}"):
        yield screen.style(line, bold=True)
    if change.repeats:
        yield "each trigger changes it once more: the rule does not settle"
    lines = unified_diff(change.before, change.after, names=(name, name))
    yield from paint(lines, screen)


def _left_out(rule: RuleSummary) -> Iterable[str]:
    parts = [
        number(count, word)
        for count, word in ((rule.changes_left, "change"), (rule.problems_left, "problem"))
        if count > 0
    ]
    if parts:
        yield ""
        yield f"{' and '.join(parts)} more: --limit 0 shows all"
