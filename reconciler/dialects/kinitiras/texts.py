"""The small notations in these policies: paths, placeholders, numbers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from reconciler.engine.values.gonumbers import parse_float
from reconciler.errors import EvaluationError, InvalidPolicy

_PLACEHOLDER: Final = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_INDEX: Final = re.compile(r"[0-9]+")
_STEP: Final = re.compile(r'(?:^|\.)(?:"([^"]+)"|([^.\[\]"]+))|\[([0-9]+)\]')
_LONGEST_INDEX: Final = 9


class Absent:
    """What is not there; null is there."""

    __slots__ = ()


ABSENT: Final = Absent()


@dataclass(frozen=True, slots=True)
class Path:
    """A way through an object.

    Attributes:
        steps: Keys and indexes.
    """

    steps: tuple[str | int, ...]

    @property
    def text(self) -> str:
        """The path as messages have it: ``spec.containers[0]."key-1"``."""
        pieces: list[str] = []
        for step in self.steps:
            if isinstance(step, int):
                pieces.append(f"[{step}]")
            else:
                name = f'"{step}"' if "-" in step or "." in step else step
                pieces.append(f".{name}" if pieces else name)
        return "".join(pieces)

    def look_up(self, obj: Any) -> Any:
        """Return what is there, `ABSENT` where nothing is."""
        for step in self.steps:
            if isinstance(obj, Mapping):
                obj = obj.get(str(step), ABSENT)
            elif isinstance(obj, list) and _is_index(str(step)) and int(step) < len(obj):
                obj = obj[int(step)]
            else:
                return ABSENT
        return obj


def read_path(raw: Any, location: str) -> Path:
    """Read ``/spec/containers/0/image`` or ``spec.containers[0].image``.

    Raises:
        InvalidPolicy: It is neither.
    """
    if not isinstance(raw, str) or not raw.strip("/"):
        raise InvalidPolicy(location, "expected a path, as /spec/replicas")
    if "/" in raw:
        names = (part.replace("~1", "/").replace("~0", "~") for part in raw.strip("/").split("/"))
        return Path(tuple(int(name) if _is_index(name) else name for name in names))
    steps: list[str | int] = []
    position = 0
    while position < len(raw):
        found = _STEP.match(raw, position)
        if found is None or (found[3] and not _is_index(found[3])):
            raise InvalidPolicy(location, "expected a path, as spec.containers[0].image")
        steps.append(int(found[3]) if found[3] else found[1] or found[2])
        position = found.end()
    return Path(tuple(steps))


def _is_index(name: str) -> bool:
    return len(name) <= _LONGEST_INDEX and _INDEX.fullmatch(name) is not None


def placeholders(text: str) -> list[str]:
    """Return the paths between double braces, in the order of the text."""
    return _PLACEHOLDER.findall(text)


def filled(text: str, obj: Mapping[str, Any]) -> str | None:
    """Put the texts of an object in place of placeholders; they are not looked at again.

    Returns:
        The text, None where a placeholder names what the object does not have.

    Raises:
        EvaluationError: A placeholder is empty, or names what is no text.
    """
    pieces: list[str] = []
    position = 0
    for found in _PLACEHOLDER.finditer(text):
        if not found[1]:
            raise EvaluationError("a placeholder {{}} names nothing; write {{metadata.name}}")
        value = Path(tuple(found[1].split("."))).look_up(obj)
        if value is ABSENT:
            return None
        if not isinstance(value, str):
            raise EvaluationError(f"the placeholder {found[0]} names what is no text")
        pieces += [text[position : found.start()], value]
        position = found.end()
    return "".join([*pieces, text[position:]])


def filled_selector(selector: Mapping[str, Any], obj: Mapping[str, Any]) -> dict[str, Any] | None:
    """Fill the placeholders in the values of a label selector, None as `filled` gives it."""
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
        InvalidPolicy: It is no number.
    """
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        return Number(raw, is_percent=False)
    text = raw if isinstance(raw, str) else ""
    value = parse_float(text.removesuffix("%"))
    if value is None or value != value or abs(value) == float("inf"):  # noqa: PLR0124 - not a number
        raise InvalidPolicy(location, "expected a number or a percentage, as 10 or 30%")
    percent = text.endswith("%")
    return Number(value / 100 if percent else value, is_percent=percent)
