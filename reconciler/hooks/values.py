"""Values as in the original: input and output of jq programs, and JSON as Go writes it.

In gojq, as the original uses it, every number of an input is a float64, and the keys of an object
are sorted.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NoReturn

import orjson

from reconciler.engine.values import gojson
from reconciler.errors import EvaluationError

_LARGEST: Final = "1.7976931348623157e+308"
"""The number that libjq writes for infinity."""
_INEXACT: Final = re.compile(rb"[:\[,]-?[0-9](?:[0-9]{15,}|[0-9]*[.eE][-+0-9.eE]*)(?=[,}\]])")
"""A number that Go may write differently; a match inside a string does no harm."""
_ESCAPED: Final = 5
"""The bytes by which an escaped character is longer."""


def to_input(value: Any) -> Any:
    """Return a value as a program reads it: all numbers are float64, and keys are sorted.

    A whole number becomes a Python int, so that it is written as Go writes it.
    """
    match value:
        case bool() | str() | None:
            return value
        case int() | float():
            return gojson.number_of(float(value))
        case dict():
            return {key: to_input(value[key]) for key in sorted(value)}
        case _:
            return [to_input(item) for item in value]


def input_text(value: Any) -> str:
    """Return the JSON text of a value that a program reads.

    Raises:
        EvaluationError: It has a value that JSON cannot hold.
    """
    try:
        text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        # orjson's limit for nesting is lower than the depth that objects may have.
        text = b""
    if text and _INEXACT.search(text) is None:
        return text.decode()
    try:
        return json.dumps(to_input(value), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        msg = "the object cannot be written for jq"
        raise EvaluationError(msg).bare(msg) from error


def output_of(text: str) -> list[Any]:
    """Return the results that a program wrote, one per line.

    Raises:
        EvaluationError: A result has a number that JSON cannot hold, or cannot be parsed.
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


def json_values(text: str, names: Iterable[str] = ()) -> Iterator[Any]:
    """Yield the JSON values of a text that has one after the other.

    The fields of an object get these names, which Go reads in any case.

    Raises:
        ValueError: What follows is not JSON, to which NaN and infinities do not belong either.
        RecursionError: It is nested too deeply.
    """
    decoder = json.JSONDecoder(parse_constant=_refuse)
    known = {name.lower(): name for name in names}
    while text := text.lstrip():
        value, length = decoder.raw_decode(text)
        if isinstance(value, dict):
            value = {known.get(name.lower(), name): item for name, item in value.items()}
        yield value
        text = text[length:]


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def result_of(results: Sequence[Any]) -> Any:
    """Return the value of a filter: its single result, null for none, or a list of several."""
    return results[0] if len(results) == 1 else list(results) or None


def render_json(value: Any, *, indented: bool = False) -> str:
    """Render a value as Go's encoding/json does: sorted keys, Go's number format.

    Args:
        indented: Write a line for each part, instead of one line without spaces.
    """
    return "".join(_rendered(value, "\n" if indented else ""))


def _rendered(value: Any, line: str) -> Iterator[str]:
    inner = line and f"{line}  "
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
            colon = ": " if line else ":"
            yield "{"
            for index, key in enumerate(sorted(value)):
                yield f"{',' if index else ''}{inner}{_quoted(key)}{colon}"
                yield from _rendered(value[key], inner)
            yield f"{line if value else ''}}}"
        case _:
            yield "["
            for index, item in enumerate(value):
                yield f"{',' if index else ''}{inner}"
                yield from _rendered(item, inner)
            yield f"{line if value else ''}]"


def stored_size(text: bytes) -> int:
    """Return the bytes of JSON as the API server stores it, with Go's escapes of ``<>&``."""
    return len(text) + _ESCAPED * sum(map(text.count, (b"<", b">", b"&")))


def _quoted(text: str) -> str:
    return gojson.escape(json.dumps(text, ensure_ascii=False))


def _number(value: float) -> str:
    number = gojson.number_of(float(value))
    return str(number) if isinstance(number, int) else gojson.write_float(number)
