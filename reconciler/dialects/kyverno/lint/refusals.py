"""Errors in policies that would compile: checks that Kyverno makes when a policy is written.

A policy that is stored already keeps working even if it violates them.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from reconciler.api.meta import Object
from reconciler.dialects.finding import Finding, refusal
from reconciler.dialects.kyverno.autogen import ANNOTATION, MAX_NAME
from reconciler.dialects.kyverno.jsonpatch import (
    NO_PATH_CURE,
    PATHS,
    unused_word,
    variable_in_path,
)
from reconciler.dialects.kyverno.match.filters import FILTER_FIELDS
from reconciler.dialects.kyverno.patchtext import parse_operations
from reconciler.engine.values import wildcard
from reconciler.errors import InvalidPolicy
from reconciler.languages.jmespath import braces

_CHANGING = ("mutate", "generate", "verifyImages")
"""Kinds of rules that do more than validate objects."""
_OF_USER = re.compile(
    r"\b(?:serviceAccountName|serviceAccountNamespace)\b"
    r"|\brequest\.(?:userInfo|roles|clusterRoles)\b"
)


def policy_refusals(policy: Object) -> Iterator[Finding]:
    """Yield findings about the policy as a whole."""
    meta, spec = policy.get("metadata") or {}, policy["spec"]
    if len(str(meta.get("name", ""))) > MAX_NAME:
        yield refusal("long-name", "metadata.name", f"longer than {MAX_NAME} characters")
    annotations = meta.get("annotations")
    controllers = annotations.get(ANNOTATION) if isinstance(annotations, Mapping) else None
    if isinstance(controllers, str) and "all" in (item.strip() for item in controllers.split(",")):
        yield refusal(
            "unknown-controller",
            f"metadata.annotations[{ANNOTATION}]",
            "all is not a controller",
            "name the controllers, or remove the annotation for all of them",
        )
    if spec.get("admission") is False:
        yield from _without_admission(spec)


def _without_admission(spec: Mapping[str, Any]) -> Iterator[Finding]:
    text = ""
    if spec.get("background") is False:
        text = "disabling both admission and background processing is not allowed"
    elif any(
        isinstance(rule, Mapping) and any(map(rule.get, _CHANGING)) for rule in spec["rules"]
    ):
        text = "disabling admission processing is only allowed with validation policies"
    if text:
        yield refusal("admission-off", "spec.admission", text, "remove the field")


def rule_refusals(rule: Mapping[str, Any], place: str, *, background: bool) -> Iterator[Finding]:
    """Yield findings about a rule as it is written.

    Args:
        rule: Of any kind.
        place: The location of the rule in the policy.
        background: The rule may change its own trigger, in a policy that also runs without
            a request.
    """
    yield from _variable_paths(rule, place)
    yield from _cel_preconditions(rule, place)
    if background:
        yield from _background_variables(rule, place)


def _variable_paths(rule: Mapping[str, Any], place: str) -> Iterator[Finding]:
    # Paths below foreach may have variables, as {{ elementIndex }}.
    mutate = rule.get("mutate")
    text = mutate.get("patchesJson6902") if isinstance(mutate, Mapping) else None
    if not isinstance(text, str) or "{{" not in text:
        return
    word = unused_word(text)
    where = f"{place}.mutate.patchesJson6902"
    try:
        drawn = parse_operations(braces.replace(text, lambda _: word), location=where)
    except InvalidPolicy:
        return  # The whole text may be one variable.
    for index, operation in enumerate(drawn):
        fields = operation if isinstance(operation, Mapping) else {}
        for field in PATHS:
            if word in str(fields.get(field, "")):
                text, place = variable_in_path(str(rule.get("name"))), f"{where}[{index}].{field}"
                yield refusal("variable-in-path", place, text, NO_PATH_CURE)


def _cel_preconditions(rule: Mapping[str, Any], place: str) -> Iterator[Finding]:
    validate = rule.get("validate")
    if rule.get("celPreconditions") and not (
        isinstance(validate, Mapping) and validate.get("cel")
    ):
        text = "celPrecondition can only be used with validate.cel"
        where = f"{place}.celPreconditions"
        yield refusal("cel-preconditions", where, text, "use preconditions")


def _background_variables(rule: Mapping[str, Any], place: str) -> Iterator[Finding]:
    for where, text in _texts(rule.get("mutate"), f"{place}.mutate"):
        for variable in braces.find(text, passes=len(text)):
            if _OF_USER.search(variable.body):
                yield refusal(
                    "user-in-background",
                    where,
                    "only select variables are allowed in background mode. Set"
                    " spec.background=false to disable background mode for this policy rule:"
                    f" variable {{{{{variable.body}}}}} is not allowed",
                )


def match_refusals(rule: Mapping[str, Any], place: str) -> Iterator[Finding]:
    """Yield findings about match and exclude of a rule that compiles."""
    matched, every = _filters(rule.get("match"))
    excluded, all_of = _filters(rule.get("exclude"))
    if not matched or not excluded:
        return
    # Filters under `all` restrict each other: if one is covered, all together are.
    groups = [matched] if every else [[item] for item in matched]
    decide: Callable[[Iterable[bool]], bool] = all if all_of else any
    if all(
        decide(any(_covers(item, one) for one in group) for item in excluded) for group in groups
    ):
        yield refusal(
            "empty-match",
            f"{place}.exclude",
            "Rule is matching an empty set: exclude covers all that match matches",
            "narrow exclude, or remove it",
        )


def _filters(block: Any) -> tuple[list[Mapping[str, Any]], bool]:
    if not isinstance(block, Mapping):
        return [], False
    for form in ("any", "all"):
        if block.get(form):
            return [item or {} for item in block[form]], form == "all"
    direct = {name: block[name] for name in FILTER_FIELDS if block.get(name)}
    return [direct] if direct else [], False


def _covers(wide: Mapping[str, Any], narrow: Mapping[str, Any]) -> bool:
    """Return whether everything that matches the narrow filter certainly matches the wide one."""
    users = [name for name in FILTER_FIELDS if name != "resources" and wide.get(name)]
    if any(wide[name] != narrow.get(name) for name in users):
        return False
    outer, inner = _resources(wide), _resources(narrow)
    if not outer:
        return bool(users)
    return all(_implied(field, value, inner.get(field)) for field, value in outer.items())


def _resources(block: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in (block.get("resources") or {}).items() if value}
    if "name" in found:
        found["names"] = [found.pop("name")]
    return found


def _implied(field: str, outer: Any, inner: Any) -> bool:
    if field not in {"kinds", "names", "namespaces", "operations"}:
        return bool(outer == inner)
    if "*" in outer:
        return True
    if not inner:
        return False
    if field in {"kinds", "operations"}:
        return set(inner) <= set(outer)
    # A pattern is covered by an equal pattern, a plain name by each pattern that it matches.
    plain = (item for item in inner if item not in outer)
    return all(
        not wildcard.has_wildcard(item) and any(wildcard.matches(one, item) for one in outer)
        for item in plain
    )


def _texts(value: Any, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield f"{place}.{key}", str(key)
            yield from _texts(item, f"{place}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, f"{place}[{index}]")
