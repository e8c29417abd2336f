"""Resolves scalars into texts, numbers and booleans."""

import base64
import binascii
import math
import re
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from yaml.events import ScalarEvent

from reconciler.engine.values.gonumbers import (
    INT64_MAX,
    format_float,
    parse_float,
    parse_int64,
    parse_uint64,
)
from reconciler.languages.goyaml.faults import refusal


def float_key(value: float) -> str:
    """Return the text of a float key, with the digits of a 32-bit float as in the original."""
    try:
        (narrow,) = struct.unpack("f", struct.pack("f", value))
    except OverflowError:
        narrow = math.copysign(math.inf, value)
    if not math.isfinite(narrow):
        return ".nan" if math.isnan(narrow) else ".inf" if narrow > 0 else "-.inf"
    texts = (f"{narrow:.{digits}g}" for digits in range(1, _FLOAT32_DIGITS + 1))
    fitting = (text for text in texts if struct.pack("f", float(text)) == struct.pack("f", narrow))
    return format_float(float(next(fitting, repr(narrow))))


def scalar(event: ScalarEvent) -> Any:
    """Return the value of a scalar: a text, a number, a boolean or None."""
    text: str = event.value
    tag: str = event.tag or ""
    if not tag and not event.implicit[0]:
        return text
    if tag == f"{TAG}binary":
        return _binary(event)
    if tag and tag not in _TAGS:
        return text
    value = text if tag == f"{TAG}str" else _resolved(text)
    if tag and not _TAGS[tag](text, value):
        raise refusal(event, f"the text does not fit its tag !!{tag.removeprefix(TAG)}")
    return float(value) if tag == f"{TAG}float" else value


def _binary(event: ScalarEvent) -> str:
    try:
        content = base64.b64decode(re.sub(r"[\r\n]", "", event.value), validate=True)
    except (binascii.Error, ValueError) as error:
        raise refusal(event, "!!binary takes base64") from error
    return content.decode("utf-8", "replace")


def _resolved(text: str) -> Any:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] == ".":
        number = parse_float(text)
        return text if number is None else number
    return _number(text) if text[0] in _SIGNS_AND_DIGITS else text


def _number(text: str) -> int | float | str:
    plain = text.replace("_", "")
    whole = parse_int64(plain) if plain else None
    if whole is None:
        whole = parse_uint64(plain)
    if whole is not None:
        return whole
    number = parse_float(plain) if _FLOAT.fullmatch(plain) else None
    return text if number is None else number


def _is_time(text: str) -> bool:
    found = next(filter(None, (form.fullmatch(text) for form in _TIMESTAMPS)), None)
    if found is None:
        return False
    year, month, day, *clock = map(int, found.groups())
    hour, minute, second = clock or (0, 0, 0)
    try:
        datetime(year or 4, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return False
    return True


TAG: Final = "tag:yaml.org,2002:"
_CONSTANTS: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **{
        form: meaning
        for words, meaning in (("true yes on y", True), ("false no off n", False))
        for word in words.split()
        for form in (word, word.capitalize(), word.upper())
    },
    **{
        sign + form: float(f"{sign}inf")
        for form in (".inf", ".Inf", ".INF")
        for sign in ("", "+", "-")
    },
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}
_SIGNS_AND_DIGITS: Final = frozenset("+-0123456789")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_DATE: Final = r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
_CLOCK: Final = r"([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?:[.,][0-9]+)?"
_TIMESTAMPS: Final = tuple(
    re.compile(form)
    for form in (
        _DATE,
        f"{_DATE} {_CLOCK}",
        rf"{_DATE}[Tt]{_CLOCK}(?:Z|[-+][0-9]{{2}}:[0-9]{{2}})",
    )
)
_TAGS: Final[Mapping[str, Callable[[str, Any], bool]]] = {
    f"{TAG}str": lambda _, value: isinstance(value, str),
    f"{TAG}int": lambda _, value: type(value) is int,
    f"{TAG}float": lambda _, value: (
        isinstance(value, float) or (type(value) is int and value <= INT64_MAX)
    ),
    f"{TAG}bool": lambda _, value: isinstance(value, bool),
    f"{TAG}null": lambda _, value: value is None,
    f"{TAG}timestamp": lambda text, _: _is_time(text),
}
_FLOAT32_DIGITS: Final = 9
