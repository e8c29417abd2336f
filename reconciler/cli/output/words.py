"""Phrases for messages: counts, suggestions of similar names, and shortened lists."""

import difflib
from collections.abc import Iterable


def number(count: int, one: str, many: str = "") -> str:
    """Return a count with its noun: ``1 object``, ``2,000 objects``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a "did you mean" suffix with the most similar known name, empty where none is."""
    found = difflib.get_close_matches(word, [*known], n=1)
    return f"; did you mean {found[0]}?" if found else ""


def some(names: Iterable[str], count: int | None = None, *, most: int = 3) -> str:
    """Return the first names and the number of the others.

    Args:
        names: The first names, or all of them.
        count: The total number, where ``names`` is not complete.
        most: The maximum number of names to list.
    """
    listed = [*names]
    left = (len(listed) if count is None else count) - len(listed[:most])
    return f"{', '.join(listed[:most])}{f' and {left:,} more' if left > 0 else ''}"
