"""``AnyIn``, ``AllIn``, ``AnyNotIn``, ``AllNotIn`` and the deprecated ``In`` and ``NotIn``.

A value of a type that the operator cannot search makes the condition false, both for "in" and for
"not in".
"""

import json
from typing import Any

from reconciler.dialects.kyverno import pattern
from reconciler.engine.values import scalars, wildcard

_JSON_STARTS = frozenset('[{"-0123456789tfn \t\r\n')


def any_in(key: Any, value: Any) -> bool:
    """Return whether at least one element of the key is in the value."""
    return _evaluate(key, value, every=False, negated=False)


def all_in(key: Any, value: Any) -> bool:
    """Return whether every element of the key is in the value."""
    return _evaluate(key, value, every=True, negated=False)


def any_not_in(key: Any, value: Any) -> bool:
    """Return whether at least one element of the key is not in the value."""
    return _evaluate(key, value, every=False, negated=True)


def all_not_in(key: Any, value: Any) -> bool:
    """Return whether no element of the key is in the value."""
    return _evaluate(key, value, every=True, negated=True)


def in_(key: Any, value: Any) -> bool:
    """Return the same as `all_in`, but without ranges, and exact for lists (deprecated)."""
    return _evaluate_deprecated(key, value, negated=False)


def not_in(key: Any, value: Any) -> bool:
    """Return whether some element is not in the value (deprecated); a single equal one passes."""
    return _evaluate_deprecated(key, value, negated=True)


def _evaluate(key: Any, value: Any, *, every: bool, negated: bool) -> bool:
    match key:
        case list():
            keys = [scalars.text(item) for item in key]
            return _evaluate_list(keys, value, every=every, negated=negated)
        case str() | bool() | int() | float():
            found = _contains(value, scalars.text(key))
            return found is not None and found is not negated
        case _:
            return False


def _contains(value: Any, key: str) -> bool | None:
    match value:
        case list():
            return any(_either_way(key, scalars.text(item)) for item in value)
        case str():
            if wildcard.matches(value, key):
                return True
            if pattern.is_range(value):
                return pattern.in_range(key, value)
            return _contains_exactly(value, key)
        case _:
            return None


def _contains_exactly(value: str, key: str) -> bool | None:
    items = _strings_in(value)
    if items is None:
        return None
    wanted = wildcard.literal(key)
    return any(wanted == wildcard.literal(item) for item in items)


def _evaluate_list(keys: list[str], value: Any, *, every: bool, negated: bool) -> bool:
    quantifier = all if every else any
    items: list[str] | None
    match value:
        case list():
            items = [scalars.text(item) for item in value]
        case str():
            if len(keys) == 1 and wildcard.literal(keys[0]) == wildcard.literal(value):
                return not negated
            if pattern.is_range(value):
                if every and negated:
                    return not any(pattern.in_range(key, value) for key in keys)
                return quantifier(pattern.in_range(key, value, negated=negated) for key in keys)
            items = _strings_in(value)
        case bool() | int() | float() if not every:
            items = [scalars.text(value)]
        case _:
            items = None
    if items is None:
        return False
    return quantifier(any(_either_way(key, item) for item in items) is not negated for key in keys)


def _either_way(left: str, right: str) -> bool:
    return wildcard.matches(left, right) or wildcard.matches(right, left)


def _evaluate_deprecated(key: Any, value: Any, *, negated: bool) -> bool:
    match key:
        case list():
            return _evaluate_set(key, value, negated=negated)
        case str() | bool() | int() | float():
            found = _contains_deprecated(value, scalars.text(key))
            return found is not None and found is not negated
        case _:
            return False


def _contains_deprecated(value: Any, key: str) -> bool | None:
    if not isinstance(value, str):
        return _contains(value, key)
    if wildcard.matches(value, key):
        return True
    return _contains_exactly(value, key) if _read_json(value)[0] else None


def _evaluate_set(key: list[Any], value: Any, *, negated: bool) -> bool:
    if isinstance(value, str) and key == [value]:
        return True
    items = _read_json(value)[1] if isinstance(value, str) else value
    keys = _texts(key)
    wanted = _texts(items) if isinstance(items, list) else None
    if keys is None or wanted is None:
        return False
    return keys.issubset(wanted) is not negated


def _texts(items: list[Any]) -> set[str] | None:
    if not all(isinstance(item, str) for item in items):
        return None
    return {wildcard.literal(item) for item in items}


def _strings_in(value: str) -> list[str] | None:
    """Return the strings in a JSON list; None for other JSON, and the text itself for no JSON."""
    is_json, strings = _read_json(value)
    return strings if is_json else [value]


def _read_json(value: str) -> tuple[bool, list[str] | None]:
    """Return whether the text is JSON, and its strings if it is a list of strings."""
    if value[:1] not in _JSON_STARTS:
        return False, None
    try:
        # The values of numbers are not used, and parsing them as floats has no length limit.
        parsed = json.loads(value, parse_constant=_refuse, parse_int=float)
    except ValueError:
        return False, None
    except RecursionError:
        return True, None
    if parsed is None:
        return True, []
    if not isinstance(parsed, list):
        return True, None
    strings = ["" if item is None else item for item in parsed]
    return True, strings if all(isinstance(item, str) for item in strings) else None


def _refuse(constant: str) -> None:
    raise ValueError(constant)
