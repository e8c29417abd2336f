"""Counts in words, and the name that somebody may have meant."""

import difflib
from collections.abc import Iterable


def number(count: int, one: str, many: str = "") -> str:
    """Return how many there are of something: ``1 object``, ``2,000 objects``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a question after the name that comes next to a word, empty where none is near."""
    found = difflib.get_close_matches(word, [*known], n=1)
    return f"; did you mean {found[0]}?" if found else ""


def some(names: Iterable[str], count: int | None = None, *, most: int = 3) -> str:
    """Return some names, and how many more there are.

    Args:
        names: The first of them, or all.
        count: How many there are, where these are not all.
        most: How many to name.
    """
    listed = [*names]
    left = (len(listed) if count is None else count) - len(listed[:most])
    return f"{', '.join(listed[:most])}{f' and {left:,} more' if left > 0 else ''}"
