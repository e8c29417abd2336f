"""Text tables that fit the width of a screen."""

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final

_GAP: Final = "  "
_LEAST: Final = 12
"""Minimum columns of a folded cell; narrower ones are hard to read."""
# Kubernetes names are long words: they are broken after their own separators.
_PARTS: Final = re.compile(r"[^\s/.,-]*[/.,-]*\s*")


def table(rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Yield the lines of a table whose first row is the header.

    Cells that are too wide continue on the next line. Where the columns do not fit at all, each
    row becomes a block with one line per field.
    """
    widths = _fitted([max(map(len, column)) for column in zip(*rows, strict=True)], rows, width)
    if not widths:
        yield from _blocks(rows)
        return
    for row in rows:
        cells = [_folded(cell, room) for cell, room in zip(row, widths, strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            line = _GAP.join(part.ljust(room) for part, room in zip(parts, widths, strict=True))
            yield line.rstrip()


def _fitted(wanted: list[int], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the width of each column, empty where the rows do not fit."""
    room = width - len(_GAP) * (len(wanted) - 1)
    found = list(wanted)
    # Narrow columns, such as numbers and their headers, are not folded.
    least = [
        min(size, max(_LEAST, *map(_longest, column))) if size > _LEAST else size
        for size, column in zip(wanted, zip(*rows, strict=True), strict=True)
    ]
    while sum(found) > room:
        spare = [size - low for size, low in zip(found, least, strict=True)]
        most = max(spare)
        if not most:
            return []
        found[spare.index(most)] -= 1
    return found


def _folded(cell: str, room: int) -> list[str]:
    lines = [""]
    for part in _PARTS.findall(cell):
        if lines[-1] and len((lines[-1] + part).rstrip()) > room:
            lines.append("")
        lines[-1] += part
    return [line.rstrip() for line in lines]


def _longest(cell: str) -> int:
    return max((len(part.rstrip()) for part in _PARTS.findall(cell)), default=0)


def _blocks(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    head, *others = rows
    room = max(map(len, head))
    for number, row in enumerate(others):
        if number:
            yield ""
        for name, cell in zip(head, row, strict=True):
            yield f"{name.ljust(room)}{_GAP}{cell}".rstrip()
