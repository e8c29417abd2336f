"""Reading of a closed document: each field once, with its place; what is wrong is collected.

A document is read to its end whatever is wrong in it, so that its author sees all of it at once.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.engine.reading import kind_of
from reconciler.errors import ErrorList, InvalidPolicy


class Fields:
    """An object of a document.

    A field that is not as it should be is noted, and reads as its default.

    Attributes:
        location: Where it stands; empty for the document itself.
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
        """Return the names of its fields, where its author chooses them."""
        return tuple(map(str, self._raw))

    def place(self, name: str) -> str:
        """Return where a field stands."""
        return f"{self.location}.{name}" if self.location else name

    def refuse(self, name: str, reason: str) -> None:
        """Note that a field is wrong; an empty name means the object itself."""
        self._errors.add(InvalidPolicy(self.place(name) if name else self.location, reason))

    def require(self, *names: str) -> None:
        """Note which of these fields are missing."""
        for name in names:
            if self._readable and name not in self._raw:
                self.refuse(name, "is required")

    def raw(self, name: str) -> Any:
        """Return a field as it stands, None where it is missing."""
        self._known.add(name)
        return self._raw.get(name)

    def text(self, name: str, default: str = "", *, among: Sequence[str] = ()) -> str:
        """Read a text, one of a few where these are given."""
        value = self.raw(name)
        if name not in self._raw:
            return default
        if not isinstance(value, str):
            self.refuse(name, f"expected a text, got {kind_of(value)}")
            return default
        if among and value not in among:
            self.refuse(name, f"{value!r} is not known, use {' or '.join(among)}")
            return default
        return value

    def boolean(self, name: str, *, default: bool) -> bool:
        """Read true or false."""
        value = self.raw(name)
        if name not in self._raw:
            return default
        if not isinstance(value, bool):
            self.refuse(name, f"expected true or false, got {kind_of(value)}")
            return default
        return value

    def integer(self, name: str) -> int | None:
        """Read a whole number; None where it is missing."""
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
        """Read a list of whatever; empty where it is missing."""
        value = self.raw(name)
        if name not in self._raw:
            return ()
        if not isinstance(value, list):
            self.refuse(name, f"expected a list, got {kind_of(value)}")
            return ()
        if len(value) < least:
            self.refuse(name, "is empty: name something, or leave the field out")
        return tuple(value)

    def texts(self, name: str, *, least: int = 0, among: Sequence[str] = ()) -> tuple[str, ...]:
        """Read a list of texts, each one of a few where these are given."""
        found = []
        for index, item in enumerate(self.items(name, least=least)):
            place = f"{name}[{index}]"
            if not isinstance(item, str):
                self.refuse(place, f"expected a text, got {kind_of(item)}")
            elif among and item not in among:
                self.refuse(place, f"{item!r} is not known, use {' or '.join(among)}")
            else:
                found.append(item)
        return tuple(found)

    def part(self, name: str) -> "Fields | None":
        """Return an object in a field; None where it is missing."""
        value = self.raw(name)
        return Fields(value, self.place(name), self._errors) if name in self._raw else None

    def parts(self, name: str, *, least: int = 0) -> "list[Fields]":
        """Return the objects of a list; none where it is missing."""
        return [
            Fields(item, self.place(f"{name}[{index}]"), self._errors)
            for index, item in enumerate(self.items(name, least=least))
        ]

    def close(self) -> None:
        """Note the fields that nobody has read."""
        for name in self._raw:
            if name not in self._known:
                known = ", ".join(sorted(self._known))
                self.refuse(str(name), f"unknown field, expected one of {known}")
