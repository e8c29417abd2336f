"""Values of a policy: constants, and references to the request, other objects and services."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from typing_extensions import override

from reconciler.api.rights import Need, ReadNeed
from reconciler.dialects.kinitiras.references import OwnerReference, read_object_reference
from reconciler.dialects.kinitiras.services import read_service_reference
from reconciler.dialects.kinitiras.texts import ABSENT, Path, read_path, read_texts
from reconciler.engine import reading
from reconciler.engine.context import Context
from reconciler.engine.loads import Load, NeedsLoad
from reconciler.engine.values import scalars
from reconciler.engine.values.gonumbers import parse_float
from reconciler.errors import InvalidPolicy

_CONSTANTS: Final = (
    "string", "integer", "float", "boolean", "stringSlice", "integerSlice", "floatSlice",
    "stringMap",
)  # fmt: skip
_REFERENCE: Final = ("from", "path", "k8s", "http")
_OBJECTS: Final[Mapping[str, str]] = {"current": "object", "old": "oldObject"}
_DELETE: Final = "DELETE"
_SOURCES: Final = (*_OBJECTS, "k8s", "owner", "http")


class Source(Protocol):
    """The source of a value."""

    @property
    def loads(self) -> bool:
        """Whether the value is read from outside of the request."""

    @property
    def reads(self) -> frozenset[tuple[str, ...]]:
        """The context paths that the value depends on."""

    def of(self, context: Context) -> Any:
        """Return the value, or `ABSENT`.

        Raises:
            EvaluationError: The value cannot be read.
            NeedsLoad: The value has not been read yet.
        """

    def needs(self) -> Iterator[Need | ReadNeed]:
        """Yield the rights that reading the value requires; none for a part of the request."""
        return iter(())


class PartOf(Source, Protocol):
    """A part of an object, or of an answer."""

    @property
    def path(self) -> Path:
        """The path to the part."""


@dataclass(frozen=True, slots=True)
class Constant(Source):
    """A value that the policy itself contains."""

    value: Any

    loads = False
    reads = frozenset[tuple[str, ...]]()

    @override
    def of(self, context: Context) -> Any:
        return self.value


@dataclass(frozen=True, slots=True)
class Reference(Source):
    """A part of the object of a request, or of its old object."""

    field: str
    path: Path

    loads = False

    @override
    def of(self, context: Context) -> Any:
        """Return the part, or `ABSENT` if the object does not have it.

        A deleted object is the current one; only an UPDATE has an old object.
        """
        request = context.data["request"]
        if self.field == _OBJECTS["old"] and request.get("operation") == _DELETE:
            return ABSENT
        return self.path.look_up(request.get(self.field) or {})

    @property
    @override
    def reads(self) -> frozenset[tuple[str, ...]]:
        return frozenset({("request", self.field)})


def read_constant(raw: Any, location: str) -> Constant:
    """Read a constant, for which exactly one type has to be given.

    Raises:
        InvalidPolicy: No type or several are given, or the value has another type.
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
        return read_texts(value, location)
    if name.endswith("Slice"):
        items = reading.sequence(value, location)
        one = name.removesuffix("Slice")
        return [_typed(one, item, f"{location}[{at}]") for at, item in enumerate(items)]
    if name == "float":
        number = parse_float(value) if isinstance(value, str) else value
        if isinstance(number, float | int) and not isinstance(number, bool):
            return float(number)
        raise InvalidPolicy(location, 'expected a number as a string, as "0.5"')
    wanted = {"string": str, "integer": int, "boolean": bool}[name]
    if type(value) is not wanted:
        raise InvalidPolicy(location, f"expected a value of the type {name}")
    return value


def read_reference(raw: Any, location: str, home: str) -> PartOf:
    """Read a reference.

    Args:
        home: The namespace to which the policy is confined; empty where it is not.

    Raises:
        InvalidPolicy: The reference is invalid, or leaves that namespace.
    """
    fields = reading.mapping(raw, location, allowed=_REFERENCE)
    source = fields.get("from")
    if source not in _SOURCES:
        raise InvalidPolicy(f"{location}.from", f"expected one of {', '.join(_SOURCES)}")
    path = read_path(fields.get("path"), f"{location}.path")
    match source:
        case "k8s":
            return read_object_reference(fields.get("k8s"), path, location, home)
        case "owner":
            return OwnerReference(home=home, location=location, path=path)
        case "http":
            return read_service_reference(fields.get("http"), path, location, home)
        case _:
            return Reference(_OBJECTS[source], path)


def read_source(fields: Mapping[str, Any], location: str, home: str) -> Source | None:
    """Read ``value`` or ``valueRef``, None where neither is given.

    Raises:
        InvalidPolicy: Both are given, or one is invalid.
    """
    constant, reference = fields.get("value"), fields.get("valueRef")
    if constant is not None and reference is not None:
        raise InvalidPolicy(f"{location}.valueRef", "there is a value as well; remove one of them")
    if constant is not None:
        return read_constant(constant, f"{location}.value")
    place = f"{location}.valueRef"
    return None if reference is None else read_reference(reference, place, home)


def values_of(sources: Sequence[Source], context: Context) -> list[Any]:
    """Return the values of several sources, whose loads are requested together.

    Raises:
        EvaluationError: A value cannot be read.
        NeedsLoad: Values have not been read yet; it holds the loads of all of them.
    """
    values: list[Any] = []
    unread: list[Load] = []
    for source in sources:
        try:
            values.append(source.of(context))
        except NeedsLoad as need:
            unread += need.loads
    if unread:
        raise NeedsLoad(*unread)
    return values


def as_text(value: Any) -> str | None:
    """Return the text of a text, number or boolean, or None for any other value."""
    return scalars.text(value) if isinstance(value, str | int | float) else None


def is_given(value: Any) -> bool:
    """Return whether a value is neither missing nor null."""
    return value is not ABSENT and value is not None
