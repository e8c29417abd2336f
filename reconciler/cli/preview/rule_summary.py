"""The summary of a rule in a preview: counts, and as many details as the limit allows."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from reconciler.api.meta import Object, ref_of
from reconciler.api.updaterequest import Outcome
from reconciler.cli.desk.live_objects import readable
from reconciler.cli.output.masking import Mask
from reconciler.engine.program import Program
from reconciler.services.preview.dryrun import Identity, Write
from reconciler.services.preview.preview import Chunk, Seen

_MOST_REASONS = 50
"""The maximum number of distinct texts that are counted; texts may contain object names."""

OTHER = "for other reasons"


class Verdict(StrEnum):
    """The result of a rule for a target."""

    SKIPPED = "skipped"
    UNCHANGED = "unchanged"
    MISSING = "missing"
    CHANGED = "changed"
    ERROR = "error"
    REFUSED = "refused"


# Several triggers of a rule may select one target: the verdict that comes last here wins.
_ORDER = {verdict: index for index, verdict in enumerate(Verdict)}
_VERDICTS = {
    Outcome.PATCHED: Verdict.CHANGED,
    Outcome.UNCHANGED: Verdict.UNCHANGED,
    Outcome.SKIPPED: Verdict.SKIPPED,
    Outcome.NOT_FOUND: Verdict.MISSING,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change to a target, with secrets masked.

    Attributes:
        trigger: The first trigger that changes the target.
        triggers: The number of triggers that change it.
        repeats: Whether each trigger changes it again, as the rule does not converge.
    """

    target: Identity
    trigger: str
    triggers: int = 1
    before: Object
    after: Object
    repeats: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An error or refusal, for a target or before any target is selected."""

    verdict: Verdict
    trigger: str
    target: Identity | None
    message: str


@dataclass(slots=True)
class RuleSummary:
    """The summary of one rule, updated in place while the preview runs.

    Attributes:
        operation: The operation, empty for a change of the policy.
        limit: The maximum number of changes, and of problems, to keep; 0 means all.
        notes: Notes, such as what the preview cannot see.
        errors: The number of triggers with errors before any target is selected.
        failures: Messages about lists that cannot be read.
    """

    program: Program
    operation: str
    limit: int
    notes: list[str] = field(default_factory=list)
    read: int = 0
    triggers: int = 0
    errors: int = 0
    failures: list[str] = field(default_factory=list)
    unmet: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    verdicts: dict[Identity, Verdict] = field(default_factory=dict)
    changes: dict[Identity, Change] = field(default_factory=dict)
    problems: dict[object, Problem] = field(default_factory=dict)

    def add(self, chunk: Chunk, mask: Mask) -> None:
        """Add the results of some triggers.

        Args:
            mask: The mask for the Secrets that context entries have read so far.
        """
        self.read += chunk.read
        if chunk.failure:
            self.failures.append(chunk.failure)
        for seen in chunk.seen:
            if seen.unmet:
                _count(self.unmet, seen.unmet)
                continue
            self.triggers += 1
            self._add(seen, chunk.writes, mask.of((seen.trigger,)))

    def count(self, verdict: Verdict) -> int:
        """Return the number of targets with a verdict; errors include those without a target."""
        found = sum(item is verdict for item in self.verdicts.values())
        return found + self.errors if verdict is Verdict.ERROR else found

    @property
    def changed(self) -> set[Identity]:
        """Return the targets that would be changed."""
        return {key for key, verdict in self.verdicts.items() if verdict is Verdict.CHANGED}

    @property
    def changes_left(self) -> int:
        """Return the number of changes that are not kept."""
        return self.count(Verdict.CHANGED) - len(self.shown)

    @property
    def shown(self) -> list[Change]:
        """Return the kept changes, without those of targets that ended with another verdict."""
        changed = self.changed
        return [item for key, item in self.changes.items() if key in changed]

    @property
    def problems_left(self) -> int:
        """Return the number of problems that are not kept."""
        all_of_them = self.count(Verdict.ERROR) + self.count(Verdict.REFUSED)
        return all_of_them - len(self.problems)

    def _add(self, seen: Seen, writes: Mapping[Identity, Write], mask: Mask) -> None:
        trigger = str(ref_of(seen.trigger))
        if seen.errors:
            self.errors += 1
            text = mask.text("; ".join(seen.errors))
            self._problem(("", trigger), Verdict.ERROR, trigger, None, text)
        for touch in seen.touches:
            known = _VERDICTS.get(touch.outcome, Verdict.ERROR)
            verdict = Verdict.REFUSED if touch.refused else known
            before = self.verdicts.get(touch.target)
            if before is None or _ORDER[verdict] > _ORDER[before]:
                self.verdicts[touch.target] = verdict
            if verdict is Verdict.SKIPPED:
                _count(self.skipped, mask.text(touch.message))
            elif verdict is Verdict.CHANGED:
                self._change(touch.target, trigger, writes, mask)
            elif verdict in (Verdict.REFUSED, Verdict.ERROR):
                text = mask.text(touch.message)
                self._problem(touch.target, verdict, trigger, touch.target, text)

    def _change(
        self, target: Identity, trigger: str, writes: Mapping[Identity, Write], mask: Mask
    ) -> None:
        write, known = writes.get(target), self.changes.get(target)
        if write is None or (known is None and self._full(self.changes)):
            return
        before, after = mask.of((write.before, write.after)).pair(
            readable(write.before), readable(write.after)
        )
        if known is None:
            self.changes[target] = Change(
                target=target, trigger=trigger, before=before, after=after, repeats=write.repeats
            )
            return
        self.changes[target] = replace(known, triggers=known.triggers + 1, after=after)

    def _problem(
        self, key: object, verdict: Verdict, trigger: str, target: Identity | None, text: str
    ) -> None:
        if key not in self.problems and not self._full(self.problems):
            self.problems[key] = Problem(
                verdict=verdict, trigger=trigger, target=target, message=text
            )

    def _full(self, kept: Mapping[Any, Any]) -> bool:
        return bool(self.limit) and len(kept) >= self.limit


def _count(reasons: Counter[str], text: str) -> None:
    known = text in reasons or len(reasons) < _MOST_REASONS
    reasons[text if known else OTHER] += 1
