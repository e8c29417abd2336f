"""A rule that changes its trigger, on objects that are stored already.

Each of them is trigger and target at once. What a request would have said is not known, and the
object may have changed since it was listed: so match and condition are asked again of the object
that is changed, where it is another one, and of the result, which has to be one that the rule
leaves as it is.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reconciler.api.rights import TargetNeed
from reconciler.engine.context import Context
from reconciler.engine.match import Decision, KindSelector, Subject
from reconciler.engine.outcome import Convergence, Unmet
from reconciler.engine.patch import KeyTable
from reconciler.engine.program import Phase, Program
from reconciler.engine.targets import TargetQuery, name_pattern
from reconciler.errors import EvaluationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Itself:
    """The targets of such a rule, and its mutation.

    Attributes:
        rule: As it runs before an object is stored.
        subject: The trigger as it was matched; None while there is none.
    """

    rule: Program
    subject: Subject | None = None

    def queries(self, context: Context) -> tuple[list[TargetQuery], list[EvaluationError]]:
        """Return the trigger, which nobody has to read once more."""
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
        """Return that whoever may know of the request may know its trigger."""
        del index
        return False

    def target_rights(self) -> Sequence[TargetNeed]:
        """Return what changing the objects needs that the rule can find."""
        return tuple(self._needs())

    def _needs(self) -> Iterator[TargetNeed]:
        match, origin = self.rule.match, self.rule.origin
        for listing in match.listings():
            places = (origin.namespace,) if origin.namespace else listing.namespaces or ("",)
            for selector in filter(_is_listable, listing.kinds):
                group = f"{selector.group}/" if selector.group else ""
                yield TargetNeed(
                    location=f"{origin.location}.match",
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
        """Return that only its result shows it: what it reads of its trigger is what it writes."""
        return Convergence.PROBED

    @property
    def merge_keys(self) -> bool:
        """Return whether it matters which lists merge by key."""
        return self.rule.mutation.merge_keys

    def apply(
        self, index: int | None, context: Context, obj: Mapping[str, Any], keys: KeyTable
    ) -> dict[str, Any] | Unmet:
        """Return what the rule makes of the object as it is now, or why it makes nothing."""
        del index
        if self.subject is not None and obj is self.subject.obj:
            # Match and condition were asked of this very object: for it, the rule fired.
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


def _is_listable(selector: KindSelector) -> bool:
    return selector.is_listable


def on_existing(program: Program) -> Program:
    """Return a rule that changes its trigger as it runs on what exists."""
    itself = Itself(rule=program)
    return replace(
        program,
        phases=frozenset({Phase.EXISTING}),
        targets=itself,
        mutation=itself,
        on_policy_change=True,
    )


def for_trigger(program: Program, subject: Subject) -> Program:
    """Return a rule that knows its trigger, so that it can be matched again."""
    if not isinstance(program.mutation, Itself):
        return program
    itself = replace(program.mutation, subject=subject)
    return replace(program, targets=itself, mutation=itself)
