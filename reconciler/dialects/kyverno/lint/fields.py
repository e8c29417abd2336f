"""Findings on the text of a policy: deprecated forms, and operations that no request has."""

from collections.abc import Iterator, Mapping
from typing import Any

from reconciler.api.meta import Object
from reconciler.dialects.base import PLACE, wants_existing
from reconciler.dialects.finding import Finding, invalid, note, refusal, warning
from reconciler.dialects.kyverno.match.filters import FILTER_FIELDS, OPERATIONS
from reconciler.dialects.kyverno.preconditions.operators import DEPRECATED
from reconciler.engine.program import CompiledPolicy
from reconciler.errors import InvalidPolicy
from reconciler.languages.jmespath import braces

_SPEC_FIELDS = {
    "failurePolicy": "spec.webhookConfiguration.failurePolicy",
    "webhookTimeoutSeconds": "spec.webhookConfiguration.timeoutSeconds",
    "mutateExistingOnPolicyUpdate": "mutateExistingOnPolicyUpdate under mutate of each rule",
}
_LISTED = f"use {', '.join(OPERATIONS)}"
_CANONICAL = {name.lower(): name for name in DEPRECATED}


def spec_findings(spec: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield findings about the fields beside the rules."""
    for field, instead in _SPEC_FIELDS.items():
        if spec.get(field) is not None:
            yield _deprecated(f"spec.{field}", f"use {instead}")


def existing_findings(policy: Object, compiled: CompiledPolicy) -> Iterator[Finding]:
    """Yield a finding if the policy enables existing objects, but no rule runs on them."""
    try:
        wanted = wants_existing(policy)
    except InvalidPolicy as error:
        yield invalid(error)
        return
    if wanted and not compiled.on_existing:
        yield warning(
            "unused-existing",
            PLACE,
            "it only affects rules without mutate.targets, but the policy has no such rule",
            "remove it; for rules with targets set mutateExistingOnPolicyUpdate: true",
        )


def rule_findings(rule: Mapping[str, Any], location: str) -> Iterator[Finding]:
    """Yield findings about one rule, which compiles, as it is written."""
    operations: set[str] = set()
    for section in ("match", "exclude"):
        block = rule.get(section) or {}
        place = f"{location}.{section}"
        if any(block.get(name) for name in FILTER_FIELDS):
            yield _deprecated(place, f"put the filter into a list, under {section}.any")
        for item, where in _filters(block, place):
            resources = item.get("resources") or {}
            if resources.get("name"):
                yield _deprecated(f"{where}.resources.name", "use the list resources.names")
            if section == "match":
                operations.update(resources.get("operations") or OPERATIONS[:2])
    for raw, place in _conditions(rule, location):
        if isinstance(raw, list):
            yield _deprecated(place, "put the conditions under preconditions.all")
        for item, where in _each_condition(raw, place):
            yield from _operator(item, where)
            yield from _operation(item, where, operations)


def _operator(condition: Mapping[str, Any], place: str) -> Iterator[Finding]:
    written = condition["operator"]
    if name := _CANONICAL.get(written.lower()):
        yield warning(
            "deprecated-operator",
            f"{place}.operator",
            f"the operator {written} is deprecated",
            f"use {' or '.join(DEPRECATED[name])}",
        )


def _operation(condition: Mapping[str, Any], place: str, listed: set[str]) -> Iterator[Finding]:
    key, value = condition.get("key"), condition.get("value")
    if not isinstance(key, str) or key.strip("{} ") != "request.operation":
        return
    values = value if isinstance(value, list) else [value]
    for index, item in enumerate(values):
        where = f"{place}.value[{index}]" if isinstance(value, list) else f"{place}.value"
        if problem := _no_operation(item):
            yield refusal("no-operation", where, problem, _LISTED)
            continue
        if "{{" in item or "*" in item or not item:
            continue
        if item not in OPERATIONS:
            yield warning(
                "unknown-operation",
                f"{place}.value",
                f"no request has the operation {item}",
                _LISTED,
            )
        elif item == "DELETE" and item not in listed:
            yield warning(
                "delete-not-listed",
                f"{place}.value",
                "a DELETE never gets this far: it fires only rules that list the operation",
                "add DELETE to resources.operations of a filter of match",
            )


def _no_operation(value: Any) -> str:
    """Return why a value can never be an operation, whatever the values of its variables are."""
    if not isinstance(value, str):
        return "values that request.operation is compared with are expected to be strings"
    if "{{" in value and not braces.contains(value):
        return f"the variable in {value} is not closed"
    return ""


def _filters(block: Mapping[str, Any], place: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    yield block, place
    for form in ("any", "all"):
        for index, item in enumerate(block.get(form) or ()):
            yield item or {}, f"{place}.{form}[{index}]"


def _conditions(raw: Mapping[str, Any], place: str) -> Iterator[tuple[Any, str]]:
    """Yield the preconditions of a rule, of its targets and of every foreach."""
    if raw.get("preconditions") is not None:
        yield raw["preconditions"], f"{place}.preconditions"
    if raw.get("mutate"):
        yield from _conditions(raw["mutate"], f"{place}.mutate")
    for field in ("targets", "foreach"):
        for index, item in enumerate(raw.get(field) or ()):
            yield from _conditions(item, f"{place}.{field}[{index}]")


def _each_condition(raw: Any, place: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    if isinstance(raw, list):
        for index, item in enumerate(raw):
            yield item, f"{place}[{index}]"
        return
    for form in ("any", "all"):
        for index, item in enumerate(raw.get(form) or ()):
            yield item, f"{place}.{form}[{index}]"


def _deprecated(place: str, cure: str) -> Finding:
    field = place.rpartition(".")[2]
    return note(
        "deprecated-field", place, f"this form of {field} is deprecated; it still works", cure
    )
