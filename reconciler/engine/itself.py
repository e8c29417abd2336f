"""A rule that changes its trigger, run on existing objects.

Each object is trigger and target at once. There is no admission request, and the object may have
changed since it was listed. So match and condition are evaluated again on the object that is
changed, where it is another version, and on the result, which the rule must not change further.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reconciler.api.rights import TargetNeed
from reconciler.engine.context import Context
from reconciler.engine.match import Decision, Subject
from reconciler.engine.outcome import Convergence, Unmet
from reconciler.engine.patch import KeyTable
from reconciler.engine.program import Phase, Program
from reconciler.engine.targets import TargetQuery, name_pattern
from reconciler.errors import EvaluationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Itself:
    """Targets and mutation of a rule that runs on existing objects.

    Attributes:
        rule: The rule as it runs at admission.
        subject: The trigger as it was matched; None in a rule that has no trigger yet.
    """

    rule: Program
    subject: Subject | None = None

    def queries(self, context: Context) -> tuple[list[TargetQuery], list[EvaluationError]]:
        """Return a query for the trigger, which holds the object so that it is not read again."""
        obj = context.data["request"]["object"]
        meta = obj.get("metadata") or {}
        namespace = meta.get("namespace")
        query = TargetQuery(
            index=0,
            api_version=obj.get("apiVersion", ""),
            kind=obj.get("kind", ""),
            namespace=name_pattern(namespace, True) if namespace else None,  # noqa: FBT003
            name=name_pattern(meta.get("name", ""), True),  # noqa: FBT003
            uid=meta.get("uid", ""),
            selector=None,
            read=obj,
        )
        return [query], []

    def named_by_content(self, index: int) -> bool:
        """Return False: the target is the trigger, which a reader of the request may know."""
        del index
        return False

    def target_rights(self) -> Sequence[TargetNeed]:
        """Return the rights that are needed to change the objects that the rule can find."""
        return tuple(self._needs())

    def _needs(self) -> Iterator[TargetNeed]:
        match, origin = self.rule.match, self.rule.origin
        for listing in match.listings():
            places = (origin.namespace,) if origin.namespace else listing.namespaces or ("",)
            for selector in (kind for kind in listing.kinds if kind.is_listable):
                group = f"{selector.group}/" if selector.group else ""
                yield TargetNeed(
                    location=origin.selection,
                    api_version=f"{group}{selector.version}",
                    kind=selector.kind,
                    namespaces=places,
                    anywhere=not origin.namespace,
                    in_one=False,
                    named=False,
                    name="",
                    looked_at=False,
                )

    @property
    def convergence(self) -> Convergence:
        """Return PROBED: the rule reads the object that it writes, so only its result decides."""
        return Convergence.PROBED

    @property
    def merge_keys(self) -> bool:
        """Return whether it matters which lists merge by key."""
        return self.rule.mutation.merge_keys

    def apply(
        self, index: int | None, context: Context, obj: Mapping[str, Any], keys: KeyTable
    ) -> dict[str, Any] | Unmet:
        """Return the current object as the rule changes it, or why the rule does not apply."""
        del index
        if self.subject is not None and obj is self.subject.obj:
            # The rule fired for this very object, so match and condition hold.
            return self.rule.mutation.apply(None, context, obj, keys)
        now = self.rule.binding.bind(context.without_entries().with_object(obj))
        if self.subject is not None:
            verdict = self.rule.match.evaluate(replace(self.subject, obj=obj))
            if verdict.decision is not Decision.MATCH:
                return Unmet(reason="the object no longer matches the rule")
        condition = self.rule.condition
        if condition is not None and not condition.evaluate(now).passed:
            return Unmet(reason="preconditions not met")
        return self.rule.mutation.apply(None, now, obj, keys)


def on_existing(program: Program) -> Program:
    """Return the form in which a rule that changes its trigger runs on existing objects."""
    itself = Itself(rule=program)
    return replace(
        program,
        phases=frozenset({Phase.EXISTING}),
        targets=itself,
        mutation=itself,
        on_policy_change=True,
    )


def for_trigger(program: Program, subject: Subject) -> Program:
    """Return a rule on existing objects with its trigger, so that it can be matched again."""
    if not isinstance(program.mutation, Itself):
        return program
    itself = replace(program.mutation, subject=subject)
    return replace(program, targets=itself, mutation=itself)
