"""Classes of single characters, as in Go's unicode package."""

from typing import Final

SPACES: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_SPACES: Final = frozenset(SPACES)
_LONE: Final = range(0xDC80, 0xDD00)


def runes(text: str) -> str:
    """Return the characters of a string; a byte that belongs to none becomes U+FFFD."""
    if text.isascii():
        return text
    return "".join("\ufffd" if ord(each) in _LONE else each for each in text)


def is_space(character: str) -> bool:
    """Return whether a character is white space."""
    return character in _SPACES
