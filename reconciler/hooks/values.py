"""Values as the original has them: what a jq program reads and gives, and JSON as Go writes it.

In gojq, as the original uses it, every number of an input is a float64, and the keys of an object
are in order.
"""

import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

import orjson

from reconciler.engine.values import gojson
from reconciler.errors import EvaluationError

_LARGEST: Final = "1.7976931348623157e+308"
"""How libjq writes what is infinite."""
_INEXACT: Final = re.compile(rb"[:\[,]-?[0-9](?:[0-9]{15,}|[0-9]*[.eE][-+0-9.eE]*)(?=[,}\]])")
"""A number that Go may write in another way than it stands there; in a text it does no harm."""
_PLAIN: Final = 1e21
"""From here on Go writes a number with an exponent."""


def to_input(value: Any) -> Any:
    """Return a value as a program sees it: every number is a float64, keys are in order.

    A whole number stays one in Python, so that it is written as Go writes it.
    """
    match value:
        case bool() | str() | None:
            return value
        case int() | float():
            return _float64(value)
        case dict():
            return {key: to_input(value[key]) for key in sorted(value)}
        case _:
            return [to_input(item) for item in value]


def input_text(value: Any) -> str:
    """Return the text that a program is given for a value.

    Raises:
        EvaluationError: It has something that JSON cannot hold.
    """
    try:
        text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        # It ends at a nesting that objects may well have.
        text = b""
    if text and _INEXACT.search(text) is None:
        return text.decode()
    try:
        return json.dumps(to_input(value), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise EvaluationError("the object cannot be written for jq") from error


def output_of(text: str) -> list[Any]:
    """Return the results that a program wrote, one to a line.

    Raises:
        EvaluationError: One of them has a number that JSON cannot hold, or cannot be read.
    """
    try:
        found = [to_input(orjson.loads(line)) for line in text.splitlines()]
    except (ValueError, RecursionError) as error:
        raise EvaluationError("the result is nested too deeply") from error
    if _LARGEST in text and any(map(_is_infinite, found)):
        raise EvaluationError("the result has a number that JSON cannot hold")
    return found


def _is_infinite(value: Any) -> bool:
    match value:
        case float():
            return abs(value) == sys.float_info.max
        case dict():
            return any(map(_is_infinite, value.values()))
        case list():
            return any(map(_is_infinite, value))
        case _:
            return False


def _float64(value: float) -> float:
    number = float(value)
    plain = math.isfinite(number) and abs(number) < _PLAIN and number.is_integer()
    return int(number) if plain else number


def refuse_constant(text: str) -> Any:
    """Refuse NaN and its like, which Python reads in JSON; for its decoder.

    Raises:
        ValueError: Always.
    """
    msg = f"{text} is no JSON"
    raise ValueError(msg)


def result_of(results: Sequence[Any]) -> Any:
    """Return what a filter gives: its one result, null for none, a list of several."""
    return results[0] if len(results) == 1 else list(results) or None


def render_json(value: Any) -> str:
    """Write a value as Go's encoding/json does: keys in order, no spaces, numbers in its form."""
    return "".join(_rendered(value))


def _rendered(value: Any) -> Iterator[str]:
    match value:
        case bool() | None:
            yield json.dumps(value)
        case str():
            yield _quoted(value)
        case int():
            yield str(value)
        case float():
            yield _number(value)
        case dict():
            yield "{"
            for index, key in enumerate(sorted(value)):
                yield f"{',' if index else ''}{_quoted(key)}:"
                yield from _rendered(value[key])
            yield "}"
        case _:
            yield "["
            for index, item in enumerate(value):
                yield "," if index else ""
                yield from _rendered(item)
            yield "]"


def _quoted(text: str) -> str:
    return gojson.escape(json.dumps(text, ensure_ascii=False))


def _number(value: float) -> str:
    number = _float64(value)
    return str(number) if isinstance(number, int) else gojson.write_float(number)
