"""The escape sequences in Go's string and character literals."""

import re
from typing import Final

ESCAPE: Final = re.compile(
    r"\\(?:([abfnrtv\\'\"])|([0-7]{3})|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|.)",
    re.DOTALL,
)
"""A backslash with what follows; no group matches where Go does not define the escape."""
_SIMPLE: Final = {
    "a": b"\a", "b": b"\b", "f": b"\f", "n": b"\n", "r": b"\r", "t": b"\t", "v": b"\v",
    "\\": b"\\",
}  # fmt: skip
_SURROGATES: Final = range(0xD800, 0xE000)
_BYTE: Final = 0xFF
_LAST: Final = 0x10FFFF


def unescape(found: re.Match[str], quote: str) -> bytes:
    """Return the bytes of a match of `ESCAPE`; they may be only a part of a character.

    Args:
        quote: The quote around the literal, which alone needs an escape in it.

    Raises:
        ValueError: Go does not define the escape.
    """
    simple, octal, byte, short, long = found.groups()
    if simple in _SIMPLE:
        return _SIMPLE[simple]
    if simple == quote:
        return quote.encode()
    if octal and int(octal, 8) <= _BYTE:
        return bytes([int(octal, 8)])
    if byte:
        return bytes([int(byte, 16)])
    if code := short or long:
        value = int(code, 16)
        if value > _LAST or value in _SURROGATES:
            raise ValueError("an escape sequence of an invalid character")
        return chr(value).encode()
    raise ValueError("an unknown escape sequence")
