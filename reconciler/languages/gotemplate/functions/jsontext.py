"""JSON as Go's encoding/json writes and reads it."""

import json
import math
import re
from collections.abc import Callable
from typing import Any, Final

from reconciler.engine.values import gojson
from reconciler.languages.gotemplate.functions.runes import runes
from reconciler.languages.gotemplate.limits import Run
from reconciler.languages.gotemplate.signature import (
    ANY,
    STRING,
    Failure,
    Family,
    Function,
    family,
    function,
)
from reconciler.languages.gotemplate.values import Int, Opaque, Record, deref, is_nil

_ESCAPES: Final = {"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t"}
_ESCAPED: Final = re.compile('[\x00-\x1f"\\\\\u2028\u2029\udc80-\udcff]')
_HTML: Final = re.compile('[\x00-\x1f"\\\\<>&\u2028\u2029\udc80-\udcff]')
_LONE: Final = re.compile("[\ud800-\udfff]")
_SURROGATE: Final = 0xD800


class _Writer:
    """Writes a value as JSON.

    Attributes:
        indent: The indentation of one level; empty to write a single line.
    """

    def __init__(self, run: Run, *, indent: str, html: bool) -> None:
        self.indent = indent
        self._run = run
        self._escaped = _HTML if html else _ESCAPED

    def text(self, value: Any, depth: int = 0) -> str:
        """Return the JSON text of a value.

        Raises:
            Failure: JSON cannot represent the value.
        """
        self._run.visit(1)
        if depth > self._run.limits.depth:
            raise Failure(f"a value is nested deeper than {self._run.limits.depth} levels")
        value = deref(value)
        if isinstance(value, Record):
            value = dict(value.fields)
            return self._map(value, list(value), depth)
        if isinstance(value, dict):
            return "null" if is_nil(value) else self._map(value, sorted(value), depth)
        if isinstance(value, list):
            return "null" if is_nil(value) else self._list(value, depth)
        return self._scalar(value)

    def _scalar(self, value: Any) -> str:
        if isinstance(value, str):
            return self._string(value)
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, Int):
            return str(int(value))
        if isinstance(value, float | int):
            return _number(float(value))
        if isinstance(value, Opaque):
            return self._string(value.json())
        if value is None:
            return "null"
        raise Failure("JSON cannot represent the value")

    def _string(self, text: str) -> str:
        self._run.spend(len(text))
        return f'"{self._escaped.sub(_escape, text)}"'

    def _map(self, value: dict[str, Any], keys: list[str], depth: int) -> str:
        colon = ": " if self.indent else ":"
        items = [self._string(key) + colon + self.text(value[key], depth + 1) for key in keys]
        return self._enclosed("{", items, "}", depth)

    def _list(self, value: list[Any], depth: int) -> str:
        return self._enclosed("[", [self.text(item, depth + 1) for item in value], "]", depth)

    def _enclosed(self, opening: str, items: list[str], closing: str, depth: int) -> str:
        self._run.write(sum(map(len, items)))
        if not self.indent or not items:
            return opening + ",".join(items) + closing
        line = "\n" + self.indent * (depth + 1)
        return f"{opening}{line}{f',{line}'.join(items)}\n{self.indent * depth}{closing}"


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    # A byte that belongs to no character is replaced.
    return _ESCAPES.get(found[0]) or f"\\u{code if code < _SURROGATE else 0xFFFD:04x}"


def _number(value: float) -> str:
    if not math.isfinite(value):
        raise Failure("JSON has no infinity and no NaN")
    return gojson.write_float(value)


def _writing(*, must: bool, indent: str = "", html: bool = True) -> Function:
    def written(run: Run, value: Any) -> str:
        try:
            return _Writer(run, indent=indent, html=html).text(value)
        except Failure:
            if must:
                raise
            return ""  # as in the original; only the must variant fails

    return function(written, ANY)


def _read(run: Run, text: str, number: Callable[[str], float | None]) -> Any:
    run.spend(4 * len(text))
    try:
        value = json.loads(
            runes(text), parse_int=number, parse_float=number, parse_constant=_never
        )
    except (ValueError, RecursionError) as error:
        raise Failure("the string is not valid JSON") from error
    return _sound(run, value) if "\\u" in text else value


def _real(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError("a number that no float64 holds")
    return value


def _never(_text: str) -> float:
    raise ValueError("JSON has no such number")


def _sound(run: Run, value: Any) -> Any:
    """Replace lone surrogates, which come from escapes, with the replacement character."""
    run.visit(1)
    if isinstance(value, str):
        return _LONE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_sound(run, item) for item in value]
    if isinstance(value, dict):
        return {_LONE.sub("\ufffd", key): _sound(run, item) for key, item in value.items()}
    return value


def _from_json(run: Run, text: str) -> Any:
    try:
        # The original ignores the error and keeps all values but numbers beyond float64.
        return _read(run, text, _real_or_none)
    except Failure:
        return None


def _real_or_none(text: str) -> float | None:
    value = float(text)
    return None if math.isinf(value) else value


FUNCTIONS: Family = family(
    {
        "toJson": _writing(must=False),
        "toPrettyJson": _writing(must=False, indent="  "),
        "toRawJson": _writing(must=True, html=False),
        "fromJson": function(_from_json, STRING),
        "mustToJson": _writing(must=True),
        "mustToPrettyJson": _writing(must=True, indent="  "),
        "mustFromJson": function(lambda run, text: _read(run, text, _real), STRING),
    },
    mustToRawJson="toRawJson",
)
