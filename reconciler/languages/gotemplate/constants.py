"""The string, character and number literals of templates; ValueError for an invalid one."""

import math
import re

from reconciler.engine.values.goescapes import ESCAPE, unescape
from reconciler.engine.values.gonumbers import (
    INT64_MAX,
    INT64_MIN,
    parse_float,
    parse_int64,
    parse_uint64,
)
from reconciler.languages.gotemplate.nodes import Constant
from reconciler.languages.gotemplate.values import Int, decode, encode


def unquoted(text: str) -> str:
    """Return the value of a quoted or raw string literal."""
    if text[0] == "`":
        return text[1:-1].replace("\r", "")
    inner = text[1:-1]
    return decode(_unescaped(inner)) if "\\" in inner else inner


def _unescaped(inner: str) -> bytes:
    pieces: list[bytes] = []
    end = 0
    for found in ESCAPE.finditer(inner):
        pieces += [encode(inner[end : found.start()]), unescape(found, '"')]
        end = found.end()
    return b"".join([*pieces, encode(inner[end:])])


def character(text: str, position: int) -> Constant:
    """Read a character literal, which is an integer."""
    inner = text[1:-1]
    if inner.startswith("\\"):
        found = ESCAPE.fullmatch(inner)
        if found is None or found.lastindex is None or found[1] == '"':
            raise ValueError("a character constant that is malformed")
        value = unescape(found, "'")
        code = value[0] if found[2] or found[3] else ord(value.decode())
    elif len(inner) == 1:
        code = ord(inner)
    else:
        raise ValueError("a character constant is one character")
    return Constant(position, Int(code), whole=code, real=float(code))


def number(text: str, position: int) -> Constant:
    """Read a number literal, whose notation decides its type where none is expected."""
    if text[-1] == "i":
        imaginary = parse_float(text[:-1])
        if imaginary is not None:
            return _complex(complex(0, imaginary), position)
    whole, unsigned = parse_int64(text), parse_uint64(text)
    if whole is not None or unsigned is not None:
        value = None if whole is None else Int(whole)
        return Constant(position, value, whole, float(whole or unsigned or 0))
    real = parse_float(text)
    if real is None:
        raise ValueError("a number that cannot be read")
    if not re.search("[.eEpP]", text):
        raise ValueError("an integer that does not fit into 64 bits")
    is_whole = math.isfinite(real) and real.is_integer() and INT64_MIN <= real <= INT64_MAX
    return Constant(position, real, int(real) if is_whole else None, real)


def complex_number(text: str, position: int) -> Constant:
    """Read a complex literal, the sum of a real and an imaginary number."""
    middle = max(
        index
        for index, sign in enumerate(text)
        if sign in "+-" and index and text[index - 1] not in "eEpP"
    )
    real, imaginary = parse_float(text[:middle]), parse_float(text[middle:-1])
    if real is None or imaginary is None:
        raise ValueError("a number that cannot be read")
    return _complex(complex(real, imaginary), position)


def _complex(value: complex, position: int) -> Constant:
    if value.imag:
        return Constant(position, value)
    whole = int(value.real) if value.real.is_integer() else None
    return Constant(position, value, whole, value.real)
