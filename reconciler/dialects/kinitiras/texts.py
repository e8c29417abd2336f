"""The notations in these policies: paths, placeholders and numbers."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from reconciler.engine import reading
from reconciler.engine.values.gonumbers import parse_float
from reconciler.errors import ErrorList, EvaluationError, InvalidPolicy

_PLACEHOLDER: Final = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_INDEX: Final = re.compile(r"[0-9]+")
_STEP: Final = re.compile(r'(?:^|\.)(?:"([^"]+)"|([^.\[\]"]+))|\[(?:"([^"]+)"|([0-9]+))\]')
_LONGEST_INDEX: Final = 9
API_VERSION: Final = re.compile(
    r"v[a-z0-9]{1,62}|[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?"
)
KIND: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{0,62}")


class Absent:
    """The type of `ABSENT`, which stands for a missing value; null is not missing."""

    __slots__ = ()


ABSENT: Final = Absent()


@dataclass(frozen=True, slots=True)
class Path:
    """A path into an object.

    Attributes:
        steps: Keys and indexes.
    """

    steps: tuple[str | int, ...]

    @property
    def text(self) -> str:
        """The path in the form for messages: ``spec.containers[0]."key-1"``."""
        pieces: list[str] = []
        for step in self.steps:
            if isinstance(step, int):
                pieces.append(f"[{step}]")
            else:
                name = f'"{step}"' if "-" in step or "." in step else step
                pieces.append(f".{name}" if pieces else name)
        return "".join(pieces)

    def look_up(self, obj: Any) -> Any:
        """Return the value at the path, or `ABSENT`."""
        for step in self.steps:
            if isinstance(obj, Mapping):
                obj = obj.get(str(step), ABSENT)
            elif isinstance(obj, list) and _is_index(str(step)) and int(step) < len(obj):
                obj = obj[int(step)]
            else:
                return ABSENT
        return obj


def read_text(fields: Mapping[str, Any], name: str, location: str) -> str:
    """Read a field with a text of any content, empty where it is missing or null.

    Raises:
        InvalidPolicy: The value is not a string.
    """
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise _no_string(value, f"{location}.{name}")
    return value or ""


def _no_string(value: Any, location: str) -> InvalidPolicy:
    reason = f"expected a string, got {reading.kind_of(value)}: put the value in quotes"
    return InvalidPolicy(location, reason)


def read_kind(fields: Mapping[str, Any], location: str) -> tuple[str, str]:
    """Read ``apiVersion`` and ``kind``.

    Raises:
        InvalidPolicy: One of them is missing, or no kind can have it.
    """
    api_version, kind = (read_text(fields, name, location) for name in ("apiVersion", "kind"))
    if not API_VERSION.fullmatch(api_version):
        raise InvalidPolicy(f"{location}.apiVersion", "expected a value such as apps/v1")
    if not KIND.fullmatch(kind):
        raise InvalidPolicy(f"{location}.kind", "expected a value such as Deployment")
    return api_version, kind


def read_texts(raw: Any, location: str) -> dict[str, str]:
    """Read an object whose values are texts of any content.

    Raises:
        InvalidPolicy: A value is not a string; it holds an error for each.
    """
    fields = reading.object_at(raw, location)
    with ErrorList() as errors:
        for name, value in fields.items():
            if not isinstance(value, str):
                errors.add(_no_string(value, f"{location}.{name}"))
    return dict(fields)


def read_path(raw: Any, location: str) -> Path:
    """Read ``/spec/containers/0/image`` or ``spec.containers[0].image``.

    A key in the second notation may be quoted: ``metadata.labels."a/b"`` or ``["a/b"]``.

    Raises:
        InvalidPolicy: The text has neither form.
    """
    if not isinstance(raw, str) or not raw.strip("/"):
        raise InvalidPolicy(location, "expected a path, as /spec/replicas")
    if raw.startswith("/") or ("/" in raw and '"' not in raw):
        names = (part.replace("~1", "/").replace("~0", "~") for part in raw.strip("/").split("/"))
        return Path(tuple(int(name) if _is_index(name) else name for name in names))
    steps: list[str | int] = []
    position = 0
    while position < len(raw):
        found = _STEP.match(raw, position)
        if found is None or (found[4] and not _is_index(found[4])):
            raise InvalidPolicy(location, "expected a path, as spec.containers[0].image")
        steps.append(int(found[4]) if found[4] else found[1] or found[2] or found[3])
        position = found.end()
    return Path(tuple(steps))


def _is_index(name: str) -> bool:
    return len(name) <= _LONGEST_INDEX and _INDEX.fullmatch(name) is not None


def has_placeholder(text: str) -> bool:
    """Return whether a text contains a placeholder in double braces."""
    return _PLACEHOLDER.search(text) is not None


def pieces_of(text: str) -> list[tuple[str, bool]]:
    """Split a text into pieces, each with whether it is the path of a placeholder."""
    parts = _PLACEHOLDER.split(text)
    return [(part, bool(at % 2)) for at, part in enumerate(parts) if part or at % 2]


def filled_pieces(text: str, obj: Mapping[str, Any]) -> list[tuple[str, bool]] | None:
    """Fill placeholders and return the pieces, each with whether it comes from the object.

    Returns:
        The pieces, or None if the object does not have the field of a placeholder.

    Raises:
        EvaluationError: A placeholder is empty, or its field is not a string.
    """
    pieces: list[tuple[str, bool]] = []
    for part, is_path in pieces_of(text):
        value = _named(part, obj) if is_path else part
        if value is None:
            return None
        pieces.append((value, is_path))
    return pieces


def _named(path: str, obj: Mapping[str, Any]) -> str | None:
    if not path:
        raise EvaluationError(
            "the placeholder {{}} is empty; write a path, such as {{metadata.name}}"
        )
    value = Path(tuple(path.split("."))).look_up(obj)
    if value is ABSENT:
        return None
    if not isinstance(value, str):
        raise EvaluationError(f"the field of the placeholder {{{{{path}}}}} is not a string")
    return value


def filled(text: str, obj: Mapping[str, Any]) -> str | None:
    """Fill placeholders with texts of an object; placeholders within these texts stay.

    Returns:
        The text, or None as from `filled_pieces`.

    Raises:
        EvaluationError: As `filled_pieces`.
    """
    pieces = filled_pieces(text, obj)
    return None if pieces is None else "".join(piece for piece, _ in pieces)


def filled_selector(selector: Mapping[str, Any], obj: Mapping[str, Any]) -> dict[str, Any] | None:
    """Fill the placeholders in the values of a label selector; None as from `filled`."""
    labels = {
        key: filled(value, obj) for key, value in (selector.get("matchLabels") or {}).items()
    }
    expressions = [
        {**item, "values": [filled(value, obj) for value in item.get("values") or ()]}
        for item in selector.get("matchExpressions") or ()
    ]
    values = [*labels.values(), *(value for item in expressions for value in item["values"])]
    if None in values:
        return None
    parts = {"matchLabels": labels, "matchExpressions": expressions}
    return {name: part for name, part in parts.items() if part}


@dataclass(frozen=True, slots=True)
class Number:
    """A number, and whether it was written in percent."""

    value: float
    is_percent: bool


def read_number(raw: Any, location: str) -> Number:
    """Read ``10``, ``"1.2"`` or ``"30%"``.

    Raises:
        InvalidPolicy: The value is not a number or percentage.
    """
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        return Number(raw, is_percent=False)
    text = raw if isinstance(raw, str) else ""
    value = parse_float(text.removesuffix("%"))
    if value is None or not math.isfinite(value):
        raise InvalidPolicy(location, "expected a number or a percentage, as 10 or 30%")
    percent = text.endswith("%")
    return Number(value / 100 if percent else value, is_percent=percent)
