"""Values of a policy: constants, and references to what the request carries."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from reconciler.dialects.kinitiras.texts import ABSENT, Path, read_path
from reconciler.engine import reading
from reconciler.engine.context import Context
from reconciler.engine.values.gonumbers import parse_float
from reconciler.errors import InvalidPolicy

_CONSTANTS: Final = (
    "string", "integer", "float", "boolean", "stringSlice", "integerSlice", "floatSlice",
    "stringMap",
)  # fmt: skip
_REFERENCE: Final = ("from", "path", "k8s", "http")
_OBJECTS: Final[Mapping[str, str]] = {"current": "object", "old": "oldObject"}
_OUTSIDE: Final = ("k8s", "owner", "http")


@dataclass(frozen=True, slots=True)
class Constant:
    """What the policy says itself."""

    value: Any

    def of(self, context: Context) -> Any:
        """Return it."""
        del context
        return self.value

    @property
    def reads_old(self) -> bool:
        """Whether it is of the object as it was."""
        return False


@dataclass(frozen=True, slots=True)
class Reference:
    """A part of the object as it is, or as it was."""

    field: str
    path: Path

    def of(self, context: Context) -> Any:
        """Return it, `ABSENT` where the object does not have it."""
        return self.path.look_up(context.data["request"].get(self.field) or {})

    @property
    def reads_old(self) -> bool:
        """Whether it is of the object as it was."""
        return self.field == _OBJECTS["old"]


Source = Constant | Reference


def read_constant(raw: Any, location: str) -> Constant:
    """Read a value, of which exactly one type may be given.

    Raises:
        InvalidPolicy: It has none or several, or is not of its type.
    """
    fields = reading.mapping(raw, location, allowed=_CONSTANTS)
    given = [name for name in _CONSTANTS if fields.get(name) is not None]
    if len(given) != 1:
        found = "; found " + ", ".join(given) if given else ""
        raise InvalidPolicy(location, f"expected one of {', '.join(_CONSTANTS)}{found}")
    (name,) = given
    return Constant(_typed(name, fields[name], f"{location}.{name}"))


def _typed(name: str, value: Any, location: str) -> Any:
    if name == "stringMap":
        return dict(reading.string_map(value, location))
    if name.endswith("Slice"):
        items = reading.sequence(value, location)
        one = name.removesuffix("Slice")
        return [_typed(one, item, f"{location}[{at}]") for at, item in enumerate(items)]
    if name == "float":
        number = parse_float(value) if isinstance(value, str) else value
        if isinstance(number, float | int) and not isinstance(number, bool):
            return float(number)
        raise InvalidPolicy(location, 'expected a number as text, as "0.5"')
    wanted = {"string": str, "integer": int, "boolean": bool}[name]
    if type(value) is not wanted:
        raise InvalidPolicy(location, f"expected a value of the type {name}")
    return value


def read_reference(raw: Any, location: str) -> Reference:
    """Read a reference.

    Raises:
        InvalidPolicy: It is wrong, or leads out of the request.
    """
    fields = reading.mapping(raw, location, allowed=_REFERENCE)
    source = fields.get("from")
    if source in _OUTSIDE:
        reason = f"{source} is not supported: write current or old"
        raise InvalidPolicy(f"{location}.from", reason)
    if not isinstance(source, str) or source not in _OBJECTS:
        raise InvalidPolicy(f"{location}.from", "expected current or old")
    return Reference(_OBJECTS[source], read_path(fields.get("path"), f"{location}.path"))


def read_source(fields: Mapping[str, Any], location: str) -> Source | None:
    """Read ``value`` or ``valueRef``, None where neither is given.

    Raises:
        InvalidPolicy: Both are given, or one is wrong.
    """
    constant, reference = fields.get("value"), fields.get("valueRef")
    if constant is not None and reference is not None:
        raise InvalidPolicy(f"{location}.valueRef", "there is a value as well; remove one of them")
    if constant is not None:
        return read_constant(constant, f"{location}.value")
    return None if reference is None else read_reference(reference, f"{location}.valueRef")


def as_text(value: Any) -> str | None:
    """Return the text of a single value, None where it is none."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    return f"{value:g}" if isinstance(value, float) else None


def is_given(value: Any) -> bool:
    """Return whether a reference found something."""
    return value is not ABSENT and value is not None
