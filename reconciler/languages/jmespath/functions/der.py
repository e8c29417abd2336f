"""Parses the binary form of certificates (DER), as far as the functions need it.

All raise ValueError for bytes that are not what they expect.
No library is used, because certificates in clusters are often slightly wrong (a serial number of
0), and `cryptography` refuses those or announces that it will; `docs/design/0004-libraries.md`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

BOOLEAN = 0x01
INTEGER = 0x02
BIT_STRING = 0x03
OCTET_STRING = 0x04
OBJECT_ID = 0x06
UTC_TIME = 0x17
GENERALIZED_TIME = 0x18
SEQUENCE = 0x30
SET = 0x31

_TEXTS = {
    0x0C: "utf-8",
    0x12: "ascii",
    0x13: "ascii",
    0x14: "latin-1",
    0x16: "ascii",
    0x1E: "utf-16-be",
}
_LONG = 0x80
_LENGTH_BYTES = 4
_HIGH_TAG = 0x1F


@dataclass(frozen=True, slots=True)
class Element:
    """One DER element.

    Attributes:
        tag: Its identifier octet.
        raw: All its bytes.
        content: Its bytes without tag and length.
    """

    tag: int
    raw: bytes
    content: bytes

    def children(self, tag: int | None = None) -> "list[Element]":
        """Return the elements inside; the tag of this one must be `tag`, if one is given."""
        self.expect(tag)
        return list(_elements(self.content))

    def expect(self, tag: int | None) -> bytes:
        """Return the content; the tag of the element must be `tag`, if one is given."""
        if tag is not None and self.tag != tag:
            raise ValueError(f"tag {self.tag:#x} where {tag:#x} belongs")
        return self.content

    def integer(self) -> int:
        """Return the value of an integer."""
        return int.from_bytes(self.expect(INTEGER), signed=True)

    def bits(self) -> bytes:
        """Return the bytes of a bit string; the rest of the last byte is filled with zeros."""
        content = self.expect(BIT_STRING)
        if not content:
            raise ValueError("a string of bits without its first byte")
        return content[1:]

    def oid(self) -> tuple[int, ...]:
        """Return the numbers of an object identifier."""
        parts: list[int] = []
        value = 0
        for byte in self.expect(OBJECT_ID):
            value = value << 7 | byte & 0x7F
            if not byte & _LONG:
                parts.append(value)
                value = 0
        if not parts:
            raise ValueError("an empty object identifier")
        first = min(parts[0] // 40, 2)
        return (first, parts[0] - first * 40, *parts[1:])

    def text(self) -> str:
        """Return the text of a string."""
        if self.tag not in _TEXTS:
            raise ValueError(f"tag {self.tag:#x} where a text belongs")
        return self.content.decode(_TEXTS[self.tag])


def parse(raw: bytes) -> Element:
    """Return the one element that `raw` consists of."""
    found = next(_elements(raw), None)
    if found is None or len(found.raw) != len(raw):
        raise ValueError("bytes that belong to nothing")
    return found


def _elements(data: bytes) -> Iterator[Element]:
    position = 0
    while position < len(data):
        start = position
        tag = data[position]
        if tag & _HIGH_TAG == _HIGH_TAG:
            raise ValueError("a tag of several bytes")
        length, position = _length(data, position + 1)
        end = position + length
        if end > len(data):
            raise ValueError("cut off")
        yield Element(tag, data[start:end], data[position:end])
        position = end


def _length(data: bytes, position: int) -> tuple[int, int]:
    if position >= len(data):
        raise ValueError("cut off")
    length = data[position]
    position += 1
    if length < _LONG:
        return length, position
    count = length - _LONG
    if not 1 <= count <= _LENGTH_BYTES:
        raise ValueError("a length that DER does not allow")
    return int.from_bytes(data[position : position + count]), position + count
