"""Fields of the files of the CLI, whose names are case-insensitive."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from reconciler.engine import reading
from reconciler.errors import InvalidSetting


def read_fields(raw: Any, location: str, *, allowed: Sequence[str]) -> Mapping[str, Any]:
    """Return the fields of a map by their canonical names; null is an empty map.

    Raises:
        InvalidPolicy: The value is not a map.
        InvalidSetting: A field is unknown, or given twice in different cases.
    """
    known = {name.lower(): name for name in allowed}
    found: dict[str, Any] = {}
    for written, value in reading.object_at(raw, location).items():
        name = known.get(str(written).lower())
        if name is None:
            raise InvalidSetting(f"{location}.{written}: {_unknown(str(written), known)}")
        if name in found:
            raise InvalidSetting(f"{location}.{written}: the field {name} is given twice")
        found[name] = value
    return found


def read_text(fields: Mapping[str, Any], name: str, location: str) -> str:
    """Return an optional text of a map, empty where it is absent.

    Raises:
        InvalidSetting: The value is no text.
    """
    value = fields.get(name)
    if not isinstance(value, str | None):
        raise InvalidSetting(f"{location}.{name}: expected a string")
    return value or ""


def _unknown(written: str, known: Mapping[str, str]) -> str:
    close = get_close_matches(written.lower(), known, n=1)
    if close:
        return f"unknown field {written!r}, did you mean {known[close[0]]}?"
    return f"unknown field {written!r}, expected one of {', '.join(known.values())}"
