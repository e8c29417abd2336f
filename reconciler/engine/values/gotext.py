"""Texts as Go programs make them, for the policy languages whose originals are such programs.

All numbers of a JSON document are floating-point numbers there.
"""

import math
from collections.abc import Callable
from typing import Any

from reconciler.engine.values.gonumbers import format_float


def float_of(number: float) -> float:
    """Return a JSON number as the float64 that Go decodes; infinite where it is too large."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def go_text(value: Any) -> str:
    """Return a JSON value as Go's ``%v`` prints it, with sorted map keys.

    Eighty is ``80``, a million ``1e+06``, null ``<nil>``.
    """
    parts: list[str] = []
    _write(value, parts.append)
    return "".join(parts)


def _write(value: Any, put: Callable[[str], None]) -> None:
    """Write the parts of a text one by one; a text for each level would repeat those below."""
    match value:
        case str():
            put(str(value))
        case None:
            put("<nil>")
        case bool():
            put("true" if value else "false")
        case int() | float():
            put(format_float(float_of(value)))
        case dict():
            put("map[")
            for position, key in enumerate(sorted(value)):
                put(f"{' ' if position else ''}{key}:")
                _write(value[key], put)
            put("]")
        case list() | tuple():
            put("[")
            for position, item in enumerate(value):
                if position:
                    put(" ")
                _write(item, put)
            put("]")
        case _:
            put(str(value))


def upper(text: str) -> str:
    """Map each character to upper case, if that is a single character."""
    return text.upper() if text.isascii() else "".join(map(_upper, text))


def lower(text: str) -> str:
    """Map each character to lower case."""
    return text.lower() if text.isascii() else "".join([each.lower()[0] for each in text])


def title(character: str) -> str:
    """Map a character to title case, if that is a single character."""
    mapped = character.title()
    return mapped if len(mapped) == 1 else character


def _upper(character: str) -> str:
    mapped = character.upper()
    # If upper case has several characters, title case may have a single one.
    return mapped if len(mapped) == 1 else title(character)


def clean_path(path: str) -> str:
    """Return the shortest equivalent path with slashes."""
    rooted = path.startswith("/")
    parts: list[str] = []
    for part in path.split("/"):
        if part in {"", "."}:
            continue
        if part != "..":
            parts.append(part)
        elif parts and parts[-1] != "..":
            parts.pop()
        elif not rooted:
            parts.append("..")
    return ("/" if rooted else "") + "/".join(parts) or "."
