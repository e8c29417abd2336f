"""PolicyExceptions, compiled: which triggers, or targets, rules skip."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from reconciler.api.meta import Kind, split_api_version
from reconciler.engine.context import Context
from reconciler.engine.match import Decision, Subject
from reconciler.engine.ports import Condition, Match
from reconciler.engine.program import Program, Projection
from reconciler.errors import EvaluationError


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceptedRules:
    """Rules of one policy, by wildcards of their names."""

    policy: str
    accepts: Callable[[str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyException:
    """A compiled exception.

    Attributes:
        key: ``namespace/name``.
        group: The API group of the policies that it names; others may have the same names.
        projection: What the conditions read of the request, and the annotations that match
            asks for.
        background: It also holds where no request came, as for a changed policy.
        triggers: Rules skip triggers that it matches.
        targets: Rules skip targets that it matches.
        warnings: What its author should know: legal, but without effect.
    """

    key: str
    group: str
    rules: tuple[ExceptedRules, ...]
    matcher: Match
    conditions: Condition | None
    projection: Projection
    background: bool = True
    triggers: bool = True
    targets: bool = True
    warnings: tuple[str, ...] = ()

    @property
    def policies(self) -> frozenset[str]:
        """Return the keys of the policies that it names."""
        return frozenset(item.policy for item in self.rules)

    def concerns(self, program: Program) -> bool:
        """Return whether it names a rule."""
        policy, rule = program.origin.policy, program.rule
        return split_api_version(policy.api_version)[0] == self.group and any(
            item.policy == policy.key and item.accepts(rule) for item in self.rules
        )

    def match(self, subject: Subject) -> Decision:
        """Return whether it is meant for an object, the conditions left aside.

        Whatever was done to the object: DELETE needs no word of its own, as it does in a rule.
        """
        if not self.background and not subject.operation:
            return Decision.NO_MATCH
        return self.matcher.evaluate(replace(subject, operation="")).decision

    def passes(self, context: Context) -> bool:
        """Return whether the conditions hold; those that cannot be evaluated do not."""
        try:
            return self.conditions is None or self.conditions.evaluate(context).passed
        except EvaluationError:
            return False


def excepting(
    exceptions: Iterable[PolicyException], subject: Subject, context: Context
) -> tuple[str, ...]:
    """Return the keys of the exceptions that keep a rule from a trigger.

    Args:
        exceptions: Those that concern the rule.
        subject: The trigger.
        context: Of the trigger, with the rule's entries.
    """
    return tuple(
        item.key
        for item in exceptions
        if item.triggers and item.match(subject) is Decision.MATCH and item.passes(context)
    )


def excepting_target(
    exceptions: Iterable[PolicyException],
    kind: Kind,
    obj: Mapping[str, Any],
    namespace_labels: Mapping[str, str],
    context: Context,
) -> tuple[str, ...]:
    """Return the keys of the exceptions that keep a rule from one of its targets.

    Args:
        exceptions: Those that concern the rule.
        kind: Of the target.
        obj: The target as it stands.
        namespace_labels: Of its namespace.
        context: Of the trigger, with the rule's entries; the target is bound here.
    """
    meta = obj.get("metadata") or {}
    sent = bool((context.data.get("request") or {}).get("operation"))
    subject = Subject(
        group=kind.group,
        version=kind.version,
        kind=kind.kind,
        subresource=kind.subresource,
        name=meta.get("name", ""),
        namespace=meta.get("namespace", ""),
        obj=obj,
        namespace_labels=namespace_labels,
    )
    bound = context.bind(target=obj)
    return tuple(
        item.key
        for item in exceptions
        if item.targets
        and (item.background or sent)
        and item.matcher.evaluate(subject).decision is Decision.MATCH
        and item.passes(bound)
    )


def skipped(keys: Iterable[str]) -> str:
    """Say by which exceptions a rule is skipped."""
    return f"rule is skipped due to policy exceptions {', '.join(keys)}"
