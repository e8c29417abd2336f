"""The values of Go, represented in Python.

`bool`, `str`, `float` and `complex` represent bool, string, float64 and complex128; `list` and
`dict` represent slices of and maps to values of any type; None is a nil interface. A plain `int`
comes from JSON and so is a float64, as in Go; the integers of Go have types of this module. In a
`str`, a byte that belongs to no character is a lone surrogate, as with ``surrogateescape``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from reconciler.engine.values.gonumbers import UINT64_MAX
from reconciler.values import value_class

if TYPE_CHECKING:
    from reconciler.languages.gotemplate.signature import Function

ANY: Final = "interface {}"
_BITS: Final = 63


MISSING: Final = object()
"""No value at all, as for a missing key, which differs from nil."""


class Int(int):
    """An ``int``; results of arithmetic wrap around as its 64 bits do."""

    __slots__ = ()
    type_name: ClassVar[str] = "int"
    kind: ClassVar[str] = "int"


class Int64(Int):
    """An ``int64``."""

    __slots__ = ()
    type_name = "int64"
    kind = "int64"


class Uint(Int):
    """An integer without a sign: ``uint64``."""

    __slots__ = ()
    type_name = "uint64"
    kind = "uint64"


class Uint8(Uint):
    """A ``uint8``: a byte of a string."""

    __slots__ = ()
    type_name = "uint8"
    kind = "uint8"


class Opaque(ABC):
    """A value of a type with methods and a String form, as a time or a version."""

    __slots__ = ()

    @property
    @abstractmethod
    def type_name(self) -> str:
        """Return the name of the type."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """Return the kind of the type."""

    @abstractmethod
    def text(self) -> str:
        """Return the result of its method String."""

    @abstractmethod
    def json(self) -> str:
        """Return its text in JSON, before quoting."""

    @classmethod
    @abstractmethod
    def methods(cls) -> "Mapping[str, Function]":
        """Return the methods by name; each takes the value as its first argument."""


class Slice(list[Any]):
    """A slice of one type, or a nil slice.

    Attributes:
        element: The name of the type of its elements.
        nil: The slice is nil.
    """

    __slots__ = ("element", "nil")

    def __init__(
        self, items: Iterable[Any] = (), element: str = ANY, *, nil: bool = False
    ) -> None:
        super().__init__(items)
        self.element = element
        self.nil = nil


class Map(dict[str, Any]):
    """A map to one type, or a nil map.

    Attributes:
        element: The name of the type of its values.
        nil: The map is nil.
    """

    __slots__ = ("element", "nil")

    def __init__(
        self, items: Mapping[str, Any] | None = None, element: str = ANY, *, nil: bool = False
    ) -> None:
        super().__init__(items or {})
        self.element = element
        self.nil = nil


@value_class(frozen=True, slots=True)
class Pointer:
    """A pointer to an interface: fields and indexes go through it, functions get the pointer."""

    target: Any


@value_class(frozen=True, slots=True)
class Record:
    """A struct, as for data at the root; the use of an unknown field is an error.

    Attributes:
        name: Of its type, with a ``*`` where the template gets a pointer to it.
        fields: By name.
    """

    name: str
    fields: Mapping[str, Any]


def wrapped(value: int) -> int:
    """Return an integer wrapped to 64 bits with a sign."""
    value &= UINT64_MAX
    return value - UINT64_MAX - 1 if value >> _BITS else value


def to_word(value: float) -> int:
    """Return a number cut to 64 bits with a sign, the lowest one where it does not fit."""
    return int(value) if -(1 << _BITS) <= value < 1 << _BITS else -(1 << _BITS)


def loaded(value: Any) -> Any:
    """Return a value that was read from data, with a JSON number as a float64."""
    return float(value) if type(value) is int else value


def deref(value: Any) -> Any:
    """Return the target of a pointer to an interface, or any other value itself."""
    while type(value) is Pointer:
        value = loaded(value.target)
    return value


def is_nil(value: Any) -> bool:
    """Return whether there is no value, or the nil of its type."""
    return value is None or value is MISSING or getattr(value, "nil", False)


def truth(value: Any) -> bool:
    """Return whether a value is true for ``if``: it is not the zero value of its type."""
    if isinstance(value, Opaque | Record | Pointer):
        return True
    return value is not MISSING and bool(value)


def length(value: str) -> int:
    """Return the number of bytes of a string."""
    return len(value) if value.isascii() else len(encode(value))


def encode(value: str) -> bytes:
    """Return the bytes of a string."""
    return value.encode("utf-8", "surrogateescape")


def decode(content: bytes) -> str:
    """Return the string of some bytes."""
    return content.decode("utf-8", "surrogateescape")


_NAMES: Final[Mapping[type, str]] = {
    str: "string",
    bool: "bool",
    int: "float64",
    float: "float64",
    complex: "complex128",
    list: f"[]{ANY}",
    dict: f"map[string]{ANY}",
    Pointer: f"*{ANY}",
}


def type_name(value: Any) -> str:
    """Return the name of a value's type, as %T prints it."""
    name = _NAMES.get(type(value))
    if name is not None:
        return name
    if isinstance(value, Slice):
        return f"[]{value.element}"
    if isinstance(value, Map):
        return f"map[string]{value.element}"
    if isinstance(value, Record):
        return value.name
    return value.type_name if isinstance(value, Int | Opaque) else "<nil>"


def kind(value: Any) -> str:
    """Return the kind of a value's type, as named by reflect; ``invalid`` for no value."""
    if isinstance(value, list):
        return "slice"
    if isinstance(value, dict):
        return "map"
    if isinstance(value, Record):
        return "ptr" if value.name.startswith("*") else "struct"
    if type(value) is Pointer:
        return "ptr"
    if isinstance(value, Int | Opaque):
        return value.kind
    return _NAMES.get(type(value), "invalid")


_NOTHING: Final = (None, MISSING)


def deep_equal(one: Any, other: Any, visit: Callable[[int], None]) -> bool:
    """Return whether two values and their types are equal by reflect.DeepEqual.

    `visit` counts the compared values.
    """
    waiting = [(one, other)]
    while waiting:
        visit(1)
        left, right = waiting.pop()
        absent = left in _NOTHING or right in _NOTHING
        if absent or type_name(left) != type_name(right):
            if not (left in _NOTHING and right in _NOTHING):
                return False
        elif isinstance(left, list | dict):
            if is_nil(left) != is_nil(right) or len(left) != len(right):
                return False
            if isinstance(left, dict) and left.keys() != right.keys():
                return False
            keys = left if isinstance(left, dict) else range(len(left))
            waiting += ((left[key], right[key]) for key in keys)
        elif isinstance(left, Pointer):
            waiting.append((left.target, right.target))
        elif left != right:
            return False
    return True
