"""Quoting of strings and characters as in Go's strconv."""

from typing import Final

_NAMED: Final = {
    7: r"\a", 8: r"\b", 12: r"\f", 10: r"\n", 13: r"\r", 9: r"\t", 11: r"\v", 92: r"\\",
}  # fmt: skip
_LONE: Final = range(0xDC80, 0xDD00)
_SURROGATES: Final = range(0xD800, 0xE000)
_ASCII: Final = 0x7F
_CONTROL: Final = 0x20
_SHORT: Final = 0xFFFF
_LAST: Final = 0x10FFFF
_REPLACEMENT: Final = 0xFFFD


def quote(text: str, mark: str = '"', *, ascii_only: bool = False) -> str:
    """Return a text in quotes, with escapes for characters that cannot be printed."""
    plain = text.isprintable() and mark not in text and "\\" not in text
    if plain and (text.isascii() or not ascii_only):
        return f"{mark}{text}{mark}"
    return mark + "".join(_escaped(each, mark, ascii_only) for each in text) + mark


def _escaped(character: str, mark: str, ascii_only: bool) -> str:  # noqa: FBT001
    code = ord(character)
    if code in _LONE:
        return f"\\x{code - 0xDC00:02x}"
    if character == mark:
        return f"\\{mark}"
    if code in _NAMED:
        return _NAMED[code]
    if character.isprintable() and (code <= _ASCII or not ascii_only):
        return character
    if code < _CONTROL or code == _ASCII:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= _SHORT else f"\\U{code:08x}"


def quote_character(code: int, *, ascii_only: bool = False) -> str:
    """Return a character in single quotes."""
    return quote(chr(valid(code)), "'", ascii_only=ascii_only)


def valid(code: int) -> int:
    """Return a code point, or that of the replacement character for an invalid one."""
    return code if 0 <= code <= _LAST and code not in _SURROGATES else _REPLACEMENT


def can_backquote(text: str) -> bool:
    """Return whether a text can stand in back quotes as it is."""
    return not any(
        each in "`\ufeff\x7f" or ord(each) in _LONE or (ord(each) < _CONTROL and each != "\t")
        for each in text
    )
