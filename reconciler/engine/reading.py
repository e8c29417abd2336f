"""Typed reading of decoded YAML: each function returns a value or raises with the location."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from reconciler.errors import ErrorList, InvalidPolicy, read_each

T = TypeVar("T")


def mapping(
    raw: Any, location: str, *, allowed: Sequence[str], errors: ErrorList | None = None
) -> Mapping[str, Any]:
    """Read an object with known fields; null is an empty one.

    Args:
        errors: Collects the unknown fields, so that the known ones are still read.
    """
    fields = object_at(raw, location)
    if unknown := [field for field in fields if field not in allowed]:
        with ErrorList() as found:
            for field in unknown:
                reason = f"unknown field {field!r}, expected one of {', '.join(allowed)}"
                error = InvalidPolicy(f"{location}.{field}", reason)
                (found if errors is None else errors).add(error)
    return fields


def object_at(raw: Any, location: str) -> Mapping[str, Any]:
    """Read an object with any fields; null is an empty one."""
    if raw is None:
        return {}
    if not isinstance(raw, Mapping):
        raise InvalidPolicy(location, f"expected an object, got {kind_of(raw)}")
    return raw


def sequence(raw: Any, location: str) -> Sequence[Any]:
    """Read a list; null is an empty one."""
    if raw is None:
        return ()
    if not isinstance(raw, list):
        raise InvalidPolicy(location, f"expected a list, got {kind_of(raw)}")
    return raw


def each(read: Callable[[Any, str], T], raw: Any, location: str) -> tuple[T, ...]:
    """Read a list whose items `read` parses, given their locations; null is an empty one."""
    return read_each(read, sequence(raw, location), location)


def string(raw: Any, location: str) -> str:
    """Read a non-empty text without variables."""
    if not isinstance(raw, str) or not raw:
        raise InvalidPolicy(location, f"expected a non-empty string, got {kind_of(raw)}")
    return _constant(raw, location)


def strings(raw: Any, location: str) -> tuple[str, ...]:
    """Read a list of texts without variables; null is an empty one."""
    return each(_text, raw, location)


def _text(item: Any, location: str) -> str:
    if not isinstance(item, str):
        raise InvalidPolicy(location, f"expected a string, got {kind_of(item)}")
    return _constant(item, location)


def string_map(raw: Any, location: str) -> Mapping[str, str]:
    """Read an object whose values are texts without variables; null is an empty one."""
    found = object_at(raw, location)
    with ErrorList() as errors:
        for key, value in found.items():
            errors.attempt(_pair, key, value, location)
    return found


def _pair(key: str, value: Any, location: str) -> None:
    if not isinstance(value, str):
        reason = f"expected a string, got {kind_of(value)}: put the value in quotes"
        raise InvalidPolicy(f"{location}.{key}", reason)
    _constant(key, location)
    _constant(value, f"{location}.{key}")


def _constant(text: str, location: str) -> str:
    if "{{" in text:
        raise InvalidPolicy(location, "match and exclude should not have variables")
    return text


def kind_of(value: Any) -> str:
    """Return a description of a value's type that does not reveal the value."""
    match value:
        case None:
            return "nothing"
        case "":
            return "an empty string"
        case str():
            return "a string"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case Mapping():
            return "an object"
        case _:
            return "a list"
