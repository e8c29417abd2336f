"""Reading of tolerations, and merging with those of an object."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from reconciler.dialects.kinitiras.texts import read_text
from reconciler.engine import reading
from reconciler.engine.match.selectors import LABEL_KEY, LABEL_VALUE
from reconciler.errors import InvalidPolicy

_FIELDS: Final = ("key", "operator", "value", "effect", "tolerationSeconds")
_SAME: Final = ("key", "operator", "value", "effect")
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def read_tolerations(raw: Any, location: str) -> list[Mapping[str, Any]]:
    """Read a list of tolerations, by the rules of the API server.

    Raises:
        InvalidPolicy: The API server would refuse some; it holds an error for each.
    """
    return list(reading.each(_read, raw, location))


def _read(raw: Any, location: str) -> Mapping[str, Any]:
    fields = reading.mapping(raw, location, allowed=_FIELDS)
    key, value = read_text(fields, "key", location), read_text(fields, "value", location)
    operator = read_text(fields, "operator", location) or "Equal"
    effect = read_text(fields, "effect", location)
    if key and not LABEL_KEY.fullmatch(key):
        raise InvalidPolicy(f"{location}.key", "expected the key of a taint")
    if operator not in ("Equal", "Exists"):
        raise InvalidPolicy(f"{location}.operator", "expected Equal or Exists")
    if not key and operator != "Exists":
        raise InvalidPolicy(f"{location}.operator", "it must be Exists if there is no key")
    if operator == "Exists" and value:
        raise InvalidPolicy(f"{location}.value", "it must be empty if the operator is Exists")
    if not LABEL_VALUE.fullmatch(value):
        raise InvalidPolicy(f"{location}.value", "expected the value of a taint")
    if effect and effect not in _EFFECTS:
        raise InvalidPolicy(f"{location}.effect", f"expected one of {', '.join(_EFFECTS)}")
    seconds = fields.get("tolerationSeconds")
    if seconds is not None and type(seconds) is not int:
        raise InvalidPolicy(f"{location}.tolerationSeconds", "expected an integer")
    if seconds is not None and effect != "NoExecute":
        raise InvalidPolicy(
            f"{location}.effect", "it must be NoExecute if tolerationSeconds is set"
        )
    return fields


def replaced_tolerations(
    current: Sequence[Any], given: Sequence[Any], *, removes: bool
) -> list[Any]:
    """Return the current tolerations with the given ones in place of those that they match.

    A given toleration matches by its key and, unless its operator is ``Exists``, its value. If
    several match, the last one counts.

    Args:
        current: The tolerations of the object.
        given: The tolerations of the policy.
        removes: The matching ones are removed, not replaced.
    """
    last = {_matched(each): place for place, each in enumerate(given)}
    found = []
    for item in current:
        key, value = _scalar(item, "key"), _scalar(item, "value")
        place = max(last.get((key,), -1), last.get((key, value), -1))
        if place < 0:
            found.append(item)
        elif not removes:
            found.append(given[place])
    return found


def _matched(given: Mapping[str, Any]) -> tuple[Any, ...]:
    names = ("key",) if given.get("operator") == "Exists" else ("key", "value")
    return tuple(given.get(name) or "" for name in names)


def _scalar(item: Any, name: str) -> Any:
    """Return a part of an object's toleration, None if no given one can be equal to it."""
    value = (item.get(name) if isinstance(item, Mapping) else None) or ""
    return None if isinstance(value, Mapping | list) else value


def merged_tolerations(
    current: Sequence[Any], given: Sequence[Any], *, removes: bool
) -> list[Any]:
    """Return the given tolerations, followed by the current ones that differ from all of them.

    Args:
        current: The tolerations of the object.
        given: The tolerations of the policy.
        removes: The given ones are removed, not added.
    """
    named = {_identity(item) for item in given}
    kept = [item for item in current if _identity(item) not in named]
    return kept if removes else [*given, *kept]


def _identity(toleration: Any) -> tuple[str, ...]:
    fields = toleration if isinstance(toleration, Mapping) else {}
    return tuple(str(fields.get(name) or "") for name in _SAME)
