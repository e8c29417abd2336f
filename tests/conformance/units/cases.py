"""The cases of the engine's functions, and the registry of runners for their kinds.

A runner reads every field of its case. An unknown kind, field or value fails the case by name,
because an expectation that is not checked would look as if it were met.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NoReturn

from typing_extensions import override

from reconciler.errors import EvaluationError, InvalidPolicy

HEAD: Final = frozenset({"source", "test", "case", "kind", "input", "expected"})
# A remark for readers, and the platform that the figures of a case are from.
_REMARKS: Final = frozenset({"note", "platform"})
_ERRORS: Final = ("error", "compile_error", "wantErr", "err")


class UnknownValueError(Exception):
    """A case has a value that its runner does not know."""


class Fields(Mapping[str, Any]):
    """A part of a case that tracks which of its fields have not been read.

    A membership test with ``in`` does not count as reading.
    """

    def __init__(self, raw: Any, place: str) -> None:
        if not isinstance(raw, dict):
            raise UnknownValueError(f"{place}: expected an object, found {raw!r}")
        self.place = place
        self._raw: dict[str, Any] = raw
        self._unread = set(raw)
        self._parts: list[Fields] = []

    @override
    def __getitem__(self, name: str) -> Any:
        if name not in self._raw:
            raise KeyError(f"{self.place} has no {name!r}")
        value = self._raw[name]
        self._unread.discard(name)
        return value

    @override
    def __contains__(self, name: object) -> bool:
        return name in self._raw

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    @override
    def __len__(self) -> int:
        return len(self._raw)

    def part(self, name: str) -> "Fields":
        """Return the object in a field, empty for null, whose own fields must be read too."""
        value = self.get(name)
        return self._part({} if value is None else value, f"{self.place}.{name}")

    def parts(self, name: str) -> "list[Fields]":
        """Return the objects in a list, whose own fields must be read too."""
        return [
            self._part(item, f"{self.place}.{name}[{index}]")
            for index, item in enumerate(self.get(name) or ())
        ]

    def one_of(self, name: str, table: Mapping[str, Any]) -> Any:
        """Read a field whose values are keys of a table, and return the table's value."""
        value = self[name]
        if value not in table:
            self.refuse(name, value)
        return table[value]

    def refuse(self, name: str, value: Any) -> NoReturn:
        """Fail the case because the runner does not know a value."""
        raise UnknownValueError(f"{self.place}.{name}: the runner does not know {value!r}")

    def unread(self) -> list[str]:
        """Return the places of the fields that were not read."""
        found = [f"{self.place}.{name}" for name in sorted(self._unread)]
        return found + [place for part in self._parts for place in part.unread()]

    def _part(self, raw: Any, place: str) -> "Fields":
        part = Fields(raw, place)
        self._parts.append(part)
        return part


class Case:
    """A case of a file.

    Attributes:
        given: The field ``input``.
        wanted: The field ``expected``.
    """

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.fields = Fields(dict(raw), "case")
        for name in HEAD & raw.keys() - {"input", "expected"} | _REMARKS & raw.keys():
            self.fields.get(name)
        self.kind = str(raw["kind"])
        self.test = str(raw["test"])
        self.given = self.fields.part("input")
        self.given.get("note")
        self.wanted = self.fields.part("expected")

    def expects_error(self) -> bool:
        """Return whether an error is expected: an error field is neither false nor null."""
        found = [self.wanted.get(name) for name in _ERRORS]
        return any(found)

    def check_error(self, error: str | None) -> None:
        """Compare the presence of an error, and its message, with the expectation.

        Args:
            error: The message of the error, or None without an error.
        """
        wanted = self.expects_error()
        assert (error is not None) is wanted, error or "expected an error"
        for name in _ERRORS:
            text = self.wanted.get(name)
            text = text.get("$error") if isinstance(text, dict) else text
            assert not isinstance(text, str) or text in (error or "")
        self.check_message(error)

    def check_message(self, message: str | None) -> None:
        """Compare a message with the expectations of the case about it, if any."""
        shown = message or ""
        for name in ("message_contains", "errContains"):
            for part in texts(self.wanted.get(name)):
                assert part in shown
        if self.wanted.get("message") is not None:
            assert shown.strip() == self.wanted["message"].strip()


Runner = Callable[[Case], None]
RUNNERS: Final[dict[str, Runner]] = {}


def runs(*kinds: str) -> Callable[[Runner], Runner]:
    """Return a decorator that registers a function as the runner of kinds of cases."""

    def register(runner: Runner) -> Runner:
        for kind in kinds:
            if kind in RUNNERS:
                msg = f"two runners for the kind {kind}"
                raise ValueError(msg)
            RUNNERS[kind] = runner
        return runner

    return register


def attempt(work: Callable[[], Any]) -> tuple[Any, str | None]:
    """Return the result of `work` and None, or None and the text of its error."""
    try:
        return work(), None
    except (InvalidPolicy, EvaluationError) as error:
        return None, str(error)


def texts(value: Any) -> list[str]:
    """Return the texts of a field that contains one, several or none."""
    if value is None:
        return []
    return [value] if isinstance(value, str) else list(value)
