"""Reader of documents without unknown fields, which collects all errors with their locations.

A document is read to its end in spite of errors, so that its author sees all of them at once.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from reconciler.engine.reading import kind_of
from reconciler.errors import ErrorList, InvalidPolicy

_Value = TypeVar("_Value")


class Fields:
    """An object of a document.

    An invalid field is collected as an error, and reads as its default.

    Attributes:
        location: Its location in the document; empty for the document itself.
    """

    __slots__ = ("_errors", "_known", "_raw", "_readable", "location")

    def __init__(self, raw: Any, location: str, errors: ErrorList) -> None:
        self.location = location
        self._errors = errors
        self._known: set[str] = set()
        self._readable = isinstance(raw, Mapping)
        self._raw: Mapping[str, Any] = raw if self._readable else {}
        if not self._readable:
            errors.add(InvalidPolicy(location, f"expected an object, got {kind_of(raw)}"))

    def __contains__(self, name: str) -> bool:
        return name in self._raw

    def __len__(self) -> int:
        return len(self._raw)

    def names(self) -> tuple[str, ...]:
        """Return the names of its fields, for objects whose keys are free."""
        return tuple(map(str, self._raw))

    def place(self, name: str) -> str:
        """Return the location of a field."""
        return f"{self.location}.{name}" if self.location else name

    def refuse(self, name: str, reason: str) -> None:
        """Add an error on a field, or on the object itself for an empty name."""
        self._errors.add(InvalidPolicy(self.place(name) if name else self.location, reason))

    def require(self, *names: str) -> None:
        """Add an error for each of these fields that is missing."""
        for name in names:
            if self._readable and name not in self._raw:
                self.refuse(name, "is required")

    def raw(self, name: str) -> Any:
        """Return the raw value of a field, None if it is missing."""
        self._known.add(name)
        return self._raw.get(name)

    def _typed(self, name: str, kind: type[_Value], wanted: str) -> _Value | None:
        """Read a value of a type; None if it is missing or of another type."""
        value = self.raw(name)
        if isinstance(value, kind):
            return value
        if name in self._raw:
            self.refuse(name, f"expected {wanted}, got {kind_of(value)}")
        return None

    def text(self, name: str, default: str = "", *, among: Sequence[str] = ()) -> str:
        """Read a text, which must be one of ``among`` if given."""
        value = self._typed(name, str, "a string")
        if value is not None and among and value not in among:
            self.refuse(name, f"{value!r} is not known, use {' or '.join(among)}")
            return default
        return default if value is None else value

    def boolean(self, name: str, *, default: bool) -> bool:
        """Read true or false."""
        value = self._typed(name, bool, "true or false")
        return default if value is None else value

    def integer(self, name: str) -> int | None:
        """Read a whole number; None if it is missing."""
        value = self.raw(name)
        if name not in self._raw:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            self.refuse(name, f"expected a whole number, got {kind_of(value)}")
            return None
        return value

    def items(self, name: str, *, least: int = 0) -> tuple[Any, ...]:
        """Read a list of any values; empty if it is missing."""
        value = self._typed(name, list, "a list")
        if value is not None and len(value) < least:
            self.refuse(name, "is empty: list at least one item, or omit the field")
        return tuple(value or ())

    def texts(self, name: str, *, least: int = 0, among: Sequence[str] = ()) -> tuple[str, ...]:
        """Read a list of texts, each of which must be one of ``among`` if given."""
        found = []
        for index, item in enumerate(self.items(name, least=least)):
            place = f"{name}[{index}]"
            if not isinstance(item, str):
                self.refuse(place, f"expected a string, got {kind_of(item)}")
            elif among and item not in among:
                self.refuse(place, f"{item!r} is not known, use {' or '.join(among)}")
            else:
                found.append(item)
        return tuple(found)

    def part(self, name: str) -> "Fields | None":
        """Return the reader of an object in a field; None if it is missing."""
        value = self.raw(name)
        return Fields(value, self.place(name), self._errors) if name in self._raw else None

    def parts(self, name: str, *, least: int = 0) -> "list[Fields]":
        """Return the readers of the objects in a list; empty if it is missing."""
        return [
            Fields(item, self.place(f"{name}[{index}]"), self._errors)
            for index, item in enumerate(self.items(name, least=least))
        ]

    def close(self) -> None:
        """Add an error for each field that was not read."""
        for name in self._raw:
            if name not in self._known:
                known = ", ".join(sorted(self._known))
                self.refuse(str(name), f"unknown field, expected one of {known}")
