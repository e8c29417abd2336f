"""PolicyExceptions: rules that are not applied to some triggers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.api.meta import GROUP, Object
from reconciler.engine.context import Context
from reconciler.engine.match import Decision, Subject, compile_match, reading
from reconciler.engine.match.matcher import Matcher
from reconciler.engine.preconditions import Conditions, compile_conditions
from reconciler.engine.wildcard import compile_wildcard
from reconciler.errors import EvaluationError, InvalidPolicy

_FIELDS = ("background", "match", "conditions", "exceptions", "podSecurity")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyException:
    """A compiled exception.

    Attributes:
        key: ``namespace/name``.
        rules: Pairs of a policy's key and wildcards of rule names.
    """

    key: str
    rules: tuple[tuple[str, tuple[str, ...]], ...]
    matcher: Matcher
    conditions: Conditions | None

    def concerns(self, policy: str, rule: str) -> bool:
        """Return whether it names a rule."""
        return any(
            policy == name and any(compile_wildcard(item)(rule) for item in names)
            for name, names in self.rules
        )

    def holds(self, subject: Subject, context: Context) -> bool:
        """Return whether it is meant for a trigger; conditions that fail do not hold."""
        if self.matcher.evaluate(subject).decision is not Decision.MATCH:
            return False
        try:
            return self.conditions is None or self.conditions.evaluate(context).passed
        except EvaluationError:
            return False


def is_exception(obj: Mapping[str, Any]) -> bool:
    """Return whether an object is a PolicyException for the policies of this project."""
    return obj.get("kind") == "PolicyException" and str(obj.get("apiVersion")).startswith(
        f"{GROUP}/"
    )


def compile_exception(obj: Object) -> PolicyException:
    """Return the compiled exception.

    Raises:
        InvalidPolicy: A part of it is malformed.
    """
    spec = reading.mapping(obj.get("spec"), "spec", allowed=_FIELDS)
    match = spec.get("match")
    rules: list[tuple[str, tuple[str, ...]]] = []
    for index, item in enumerate(reading.sequence(spec.get("exceptions"), "spec.exceptions")):
        place = f"spec.exceptions[{index}]"
        fields = reading.mapping(item, place, allowed=("policyName", "ruleNames"))
        rules.append(
            (
                reading.string(fields.get("policyName"), f"{place}.policyName"),
                reading.strings(fields.get("ruleNames"), f"{place}.ruleNames"),
            )
        )
    if not rules:
        raise InvalidPolicy("spec.exceptions", "an exception names at least one policy")
    conditions = spec.get("conditions")
    meta = obj["metadata"]
    return PolicyException(
        key=f"{meta.get('namespace') or 'default'}/{meta.get('name')}",
        rules=tuple(rules),
        matcher=compile_match(_without_operations(match), None, location="spec"),
        conditions=None
        if conditions is None
        else compile_conditions(conditions, location="spec.conditions"),
    )


def _without_operations(value: Any) -> Any:
    # An exception is for the object, whatever is done to it.
    if isinstance(value, list):
        return [_without_operations(item) for item in value]
    if isinstance(value, Mapping):
        return {
            key: _without_operations(item) for key, item in value.items() if key != "operations"
        }
    return value
