"""JSON pointers (RFC 6901), and list indexes in them."""

import re
from collections.abc import Iterable
from typing import Final

Pointer = tuple[str, ...]

APPEND: Final = "-"
MAX_DEPTH: Final = 200  # of a pointer and of a document that a patch makes; orjson ends at 254
_INDEX: Final = re.compile(r"[+-]?[0-9]{1,9}")


def parse_pointer(text: str) -> Pointer:
    """Split a pointer into its parts; the empty text is the whole document.

    Raises:
        ValueError: The text is not empty and does not begin with a slash.
    """
    if not text:
        return ()
    if not text.startswith("/"):
        raise ValueError(f'path "{text}" must begin with a forward slash')
    parts = text[1:].split("/")
    if "~" not in text:
        return tuple(parts)
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in parts)


def render_pointer(parts: Iterable[str | int]) -> str:
    """Return the pointer with these parts."""
    return "".join("/" + escaped(part) for part in parts)


def escaped(part: str | int) -> str:
    """Return a part as it is escaped in a pointer."""
    return str(part).replace("~", "~0").replace("/", "~1")


def parse_index(part: str) -> int | None:
    """Parse a list index as Go parses an integer; return None when the part is none."""
    return int(part) if _INDEX.fullmatch(part) else None
