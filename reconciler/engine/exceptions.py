"""Compiled PolicyExceptions, which make rules skip triggers or targets."""

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
    """Rules of one policy, selected by wildcards on their names."""

    policy: str
    accepts: Callable[[str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyException:
    """A compiled exception.

    Attributes:
        key: ``namespace/name``.
        group: The API group of the policies that it names; another group may have equal names.
        projection: What the conditions read of the request, and the annotations that match
            reads.
        background: It also applies to work without a request, as for a changed policy.
        triggers: Rules skip triggers that it matches.
        targets: Rules skip targets that it matches.
        warnings: Warnings for its author about parts that are legal, but without effect.
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
        """Return the keys of the policies that the exception names."""
        return frozenset(item.policy for item in self.rules)

    def concerns(self, program: Program) -> bool:
        """Return whether the exception names a rule."""
        policy, rule = program.origin.policy, program.rule
        return split_api_version(policy.api_version)[0] == self.group and any(
            item.policy == policy.key and item.accepts(rule) for item in self.rules
        )

    def match(self, subject: Subject) -> Decision:
        """Return whether the exception matches an object, without its conditions.

        The operation is ignored: unlike a rule, an exception need not name DELETE to match it.
        """
        if not self.background and not subject.operation:
            return Decision.NO_MATCH
        return self.matcher.evaluate(replace(subject, operation="")).decision

    def passes(self, context: Context) -> bool:
        """Return whether the conditions hold; they do not where they cannot be evaluated."""
        try:
            return self.conditions is None or self.conditions.evaluate(context).passed
        except EvaluationError:
            return False


def excepting(
    exceptions: Iterable[PolicyException], subject: Subject, context: Context
) -> tuple[str, ...]:
    """Return the keys of the exceptions that keep a rule from a trigger.

    Args:
        exceptions: Those that name the rule.
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
        exceptions: Those that name the rule.
        kind: Of the target.
        obj: The target as it is now.
        namespace_labels: Of its namespace.
        context: Of the trigger, with the rule's entries; the target is bound here.
    """
    meta = obj.get("metadata") or {}
    subject = Subject(
        group=kind.group,
        version=kind.version,
        kind=kind.kind,
        subresource=kind.subresource,
        name=meta.get("name", ""),
        namespace=meta.get("namespace", ""),
        obj=obj,
        operation=(context.data.get("request") or {}).get("operation") or "",
        namespace_labels=namespace_labels,
        allowance=context.allowance,
    )
    bound = context.bind(target=obj)
    return tuple(
        item.key
        for item in exceptions
        if item.targets and item.match(subject) is Decision.MATCH and item.passes(bound)
    )


def skipped(keys: Iterable[str]) -> str:
    """Return the message that names the exceptions due to which a rule is skipped."""
    return f"rule is skipped due to policy exceptions {', '.join(keys)}"
