"""Compilation of PolicyExceptions, which make rules skip triggers and targets."""

from collections.abc import Mapping
from typing import Any

from reconciler.api.meta import ANNOTATION_EXCEPTS, GROUPS, Object, split_api_version
from reconciler.dialects.kyverno.bounds import check_bounds
from reconciler.dialects.kyverno.match import compile_match
from reconciler.dialects.kyverno.preconditions import Conditions, compile_conditions
from reconciler.dialects.kyverno.readers import find_projection
from reconciler.dialects.kyverno.variables import REQUEST
from reconciler.engine import reading
from reconciler.engine.exceptions import ExceptedRules, PolicyException
from reconciler.engine.program import Projection
from reconciler.engine.values.wildcard import compile_any, has_wildcard
from reconciler.errors import ErrorList, InvalidPolicy

KIND = "PolicyException"

_FIELDS = ("background", "match", "conditions", "exceptions", "podSecurity")
_EXCEPTS = {"triggers": (True, False), "targets": (False, True), "both": (True, True)}
_USER_FIELDS = ("subjects", "roles", "clusterRoles")


def is_exception(obj: Mapping[str, Any]) -> bool:
    """Return whether an object is a PolicyException of an API group of kube-retrofit."""
    group, _ = split_api_version(str(obj.get("apiVersion", "")))
    return obj.get("kind") == KIND and group in GROUPS


def compile_exception(obj: Object) -> PolicyException:
    """Return the compiled exception.

    Raises:
        InvalidPolicy: A part of it is malformed.
    """
    meta = obj.get("metadata")
    if not isinstance(meta, Mapping):
        raise InvalidPolicy("metadata", "expected an object with a name")
    with ErrorList() as errors:
        check_bounds(obj.get("spec"))
        spec = reading.mapping(obj.get("spec"), "spec", allowed=_FIELDS, errors=errors)
        background = spec.get("background", True)
        if not isinstance(background, bool):
            errors.add(InvalidPolicy("spec.background", "expected true or false"))
        rules = errors.attempt(_read_rules, spec) or ()
        conditions = errors.attempt(_conditions, spec)
        match, asks_for_users = _read_match(spec)
        excepts = errors.attempt(_read_excepts, meta, conditions, asks_for_users)
        matcher = compile_match(
            match, None, location="spec", user_info=background is not True, section="exception"
        )
        if excepts is None:
            raise errors.combined()
    triggers, targets = excepts
    return PolicyException(
        key=f"{meta.get('namespace') or 'default'}/{meta.get('name')}",
        group=split_api_version(str(obj.get("apiVersion", "")))[0],
        rules=tuple(
            ExceptedRules(policy=policy, accepts=compile_any(names)) for policy, names in rules
        ),
        matcher=matcher,
        conditions=conditions,
        projection=find_projection(conditions.templates if conditions else ()).joined(
            Projection(object=matcher.needs.annotations)
        ),
        background=background,
        triggers=triggers,
        targets=targets,
        warnings=tuple(_warnings(spec, [policy for policy, _ in rules])),
    )


def _conditions(spec: Mapping[str, Any]) -> Conditions | None:
    raw = spec.get("conditions")
    if isinstance(raw, Mapping) and raw.get("any") == []:
        # Unlike in a rule, an empty block does not restrict.
        raw = {**raw, "any": None}
    return None if raw is None else compile_conditions(raw, location="spec.conditions")


def _read_excepts(
    meta: Mapping[str, Any], conditions: Conditions | None, asks_for_users: str
) -> tuple[bool, bool]:
    place = f"metadata.annotations[{ANNOTATION_EXCEPTS}]"
    word = (meta.get("annotations") or {}).get(ANNOTATION_EXCEPTS)
    if word is None:
        return True, not (asks_for_users or _asks_for_the_request(conditions))
    found = _EXCEPTS.get(word)
    if found is None:
        raise InvalidPolicy(place, f"expected one of {', '.join(_EXCEPTS)}")
    if found[1] and asks_for_users:
        reason = "an exception of targets cannot ask for a user: a target has no request"
        raise InvalidPolicy(asks_for_users, reason)
    return found


def _asks_for_the_request(conditions: Conditions | None) -> bool:
    # request.object is the trigger even when a target is checked. So conditions that read the
    # request and not the target were written for triggers.
    if conditions is None or "target" in conditions.roots:
        return False
    dynamic = any(template.dynamic for template in conditions.templates)
    return dynamic or not conditions.roots.isdisjoint(REQUEST)


def _read_rules(spec: Mapping[str, Any]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    place = "spec.exceptions"
    rules = reading.each(_read_rule, spec.get("exceptions"), place)
    if not rules:
        raise InvalidPolicy(place, "an exception names at least one policy")
    return rules


def _read_rule(raw: Any, place: str) -> tuple[str, tuple[str, ...]]:
    fields = reading.mapping(raw, place, allowed=("policyName", "ruleNames"))
    with ErrorList() as errors:
        policy = errors.attempt(reading.string, fields.get("policyName"), f"{place}.policyName")
        names = reading.strings(fields.get("ruleNames"), f"{place}.ruleNames")
        if not names:
            raise InvalidPolicy(f"{place}.ruleNames", "name at least one rule; * means all")
    return policy or "", names


def _read_match(spec: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """Return the match, and the location of the first filter that needs the user."""
    match = reading.mapping(spec.get("match"), "spec.match", allowed=("any", "all"))
    if not match.get("any") and not match.get("all"):
        raise InvalidPolicy("spec.match", "write at least one filter under any or all")
    kept: dict[str, Any] = {}
    asking = ""
    for form, value in match.items():
        place = f"spec.match.{form}"
        kept[form] = [*reading.each(_for_any_operation, value, place)]
        for index, item in enumerate(value or ()):
            if isinstance(item, Mapping) and any(map(item.get, _USER_FIELDS)):
                asking = asking or f"{place}[{index}]"
    return kept, asking


def _for_any_operation(item: Any, place: str) -> Any:
    # An exception applies to an object regardless of the operation.
    if not isinstance(item, Mapping) or not isinstance(item.get("resources"), Mapping):
        return item
    resources = item["resources"]
    kept = {field: value for field, value in resources.items() if field != "operations"}
    if resources.get("operations") and not any((*kept.values(), *map(item.get, _USER_FIELDS))):
        reason = "an exception applies to all operations; to mean all objects, write kinds: ['*']"
        raise InvalidPolicy(f"{place}.resources", reason)
    return {**item, "resources": kept}


def _warnings(spec: Mapping[str, Any], policies: list[str]) -> list[str]:
    found: list[str] = []
    if spec.get("podSecurity"):
        found.append(
            "spec.podSecurity is for validate rules, which kube-retrofit does not have: it is"
            " ignored, and the exception applies to the whole rule"
        )
    for index, policy in enumerate(policies):
        if has_wildcard(policy):
            found.append(
                f"spec.exceptions[{index}].policyName: {policy} selects no policy, because"
                " the name is taken literally; only ruleNames may have wildcards"
            )
    return found
