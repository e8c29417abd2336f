"""JSON values in the language: types, truth, equality, text, copies."""

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

from reconciler.engine.values import gojson
from reconciler.errors import EvaluationError
from reconciler.languages.jmespath.limits import Run

_SCALARS = frozenset({str, int, float, bool, type(None)})
_NAMES = {
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
    list: "array",
    dict: "object",
}
_INT64 = 2**63
_PLAIN_FLOATS = 1e-4  # below, Python's own form has an exponent
_WRITING = 8  # writing a character of JSON takes as long as copying this many


def is_number(value: Any) -> bool:
    """Return whether `value` is a number, an integer or a float; a boolean is not."""
    kind = value.__class__
    return kind is int or kind is float


def kind_of(value: Any) -> str:
    """Return the name of the JMESPath type of `value`."""
    return _NAMES.get(value.__class__, "unknown")


def is_falsy(value: Any) -> bool:
    """Return whether `value` counts as false: false, null and empty values, never a number."""
    return not value and not is_number(value)


def equal(left: Any, right: Any, run: Run) -> bool:
    """Compare deeply: 1 equals 1.0, true equals only true, and maps have no order."""
    if left is right:
        return True
    if left.__class__ in _SCALARS or right.__class__ in _SCALARS:
        if left.__class__ is right.__class__ or (is_number(left) and is_number(right)):
            return bool(left == right)
        return False
    run.spend(len(left))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(
            equal(value, right[key], run) for key, value in left.items()
        )
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(
            equal(one, other, run) for one, other in zip(left, right, strict=True)
        )
    return False


def as_text(value: Any, run: Run) -> str:
    """Return a string unchanged, and other values as compact JSON as in Go: 1.0 as 1.

    Raises:
        EvaluationError: The text would be too long, or the value has no JSON form.
    """
    if isinstance(value, str):
        run.check_text(len(value))
        return value
    if isinstance(value, float) and 0 < abs(value) < _PLAIN_FLOATS:
        return gojson.write_float(value)
    run.measure(value)
    try:
        text = json.dumps(
            _whole_floats_as_integers(value),
            separators=(",", ":"),
            ensure_ascii=False,
            sort_keys=True,
            allow_nan=False,
        )
    except (TypeError, ValueError):
        raise EvaluationError(f"a value of type {type(value).__name__} has no JSON form") from None
    text = gojson.escape(text)
    run.check_text(len(text))
    run.read(len(text) * _WRITING)
    return text


def copy_value(value: Any, run: Run) -> Any:
    """Copy maps and lists at all levels, so that a caller may change the result.

    Texts are shared, but still counted, because they are written sooner or later.
    """
    if isinstance(value, dict):
        run.spend(len(value))
        run.put_in(_characters(value.values()))
        return {
            key: item if item.__class__ in _SCALARS else copy_value(item, run)
            for key, item in value.items()
        }
    if isinstance(value, list):
        run.spend(len(value))
        run.put_in(_characters(value))
        return [item if item.__class__ in _SCALARS else copy_value(item, run) for item in value]
    if isinstance(value, str):
        run.put_in(len(value))
    return value


def _characters(values: Iterable[Any]) -> int:
    return sum(len(item) for item in values if item.__class__ is str)


def walk(value: Any) -> Iterator[Any]:
    """Yield a value and all values in it, without keys and without recursion."""
    waiting = [value]
    while waiting:
        current = waiting.pop()
        yield current
        if isinstance(current, dict):
            waiting.extend(current.values())
        elif isinstance(current, list):
            waiting.extend(current)


def deeper_than(value: Any, levels: int) -> bool:
    """Return whether maps and lists are nested deeper than a number of levels.

    The check does not recurse, so deep values do not exhaust the interpreter's stack.
    """
    nested = [value] if isinstance(value, dict | list) else []
    for _ in range(levels):
        if not nested:
            return False
        nested = [
            item
            for one in nested
            for item in (one.values() if isinstance(one, dict) else one)
            if isinstance(item, dict | list)
        ]
    return bool(nested)


def plain(value: Any) -> Any:
    """Convert a decoded JSON literal to the range of values in Kubernetes objects.

    Integers beyond 64 bits become floats and lone surrogates, which encoders refuse to write,
    U+FFFD, as in other decoders.

    Raises:
        ValueError: A number is too large for a float.
    """
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, str):
        if value.isascii():
            return value
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return bounded(value) if is_number(value) else value


def is_bounded(number: int) -> bool:
    """Return whether a Kubernetes object can hold an integer exactly: with or without a sign."""
    return -_INT64 <= number < 2 * _INT64


def bounded(number: float) -> float:
    """Return an integer of 64 bits exactly, and any other number as a float.

    Raises:
        ValueError: The number is not finite.
    """
    if isinstance(number, int) and is_bounded(number):
        return number
    try:
        result = float(number)
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise ValueError("number out of range")
    return result


def _whole_floats_as_integers(value: Any) -> Any:
    if isinstance(value, float):
        return gojson.number_of(value)
    if isinstance(value, dict):
        return {key: _whole_floats_as_integers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole_floats_as_integers(item) for item in value]
    return value
