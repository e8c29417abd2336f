"""A case of the engine's functions, and the kinds that have a runner.

A runner reads every field of its case. What it does not know, a kind, a field, a value that no
table has, fails the case by name: a case that is left out says nothing, and looks as if it did.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NoReturn

from typing_extensions import override

from reconciler.errors import EvaluationError, InvalidPolicy

HEAD: Final = frozenset({"source", "test", "case", "kind", "input", "expected"})
# What a case says to people, and which platform its figures are from.
_REMARKS: Final = frozenset({"note", "platform"})
_ERRORS: Final = ("error", "compile_error", "wantErr", "err")


class UnknownValueError(Exception):
    """A case has a value that its runner does not know."""


class Fields(Mapping[str, Any]):
    """A part of a case that knows which of its fields nobody has read.

    To ask whether a field is there, by ``in``, is not to read it.
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
        """Read an object in a field, whose own fields have to be read too; null is empty."""
        value = self.get(name)
        return self._part({} if value is None else value, f"{self.place}.{name}")

    def parts(self, name: str) -> "list[Fields]":
        """Read a list of such objects."""
        return [
            self._part(item, f"{self.place}.{name}[{index}]")
            for index, item in enumerate(self.get(name) or ())
        ]

    def one_of(self, name: str, table: Mapping[str, Any]) -> Any:
        """Read a field whose values are the keys of a table, and give what stands there."""
        value = self[name]
        if value not in table:
            self.refuse(name, value)
        return table[value]

    def refuse(self, name: str, value: Any) -> NoReturn:
        """Fail the case, since the runner does not know a value."""
        raise UnknownValueError(f"{self.place}.{name}: the runner does not know {value!r}")

    def unread(self) -> list[str]:
        """Return the places of the fields that nobody has read."""
        found = [f"{self.place}.{name}" for name in sorted(self._unread)]
        return found + [place for part in self._parts for place in part.unread()]

    def _part(self, raw: Any, place: str) -> "Fields":
        part = Fields(raw, place)
        self._parts.append(part)
        return part


class Case:
    """A case of a file.

    Attributes:
        given: Its field ``input``.
        wanted: Its field ``expected``.
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
        """Return whether an error is expected: a field about errors is neither false nor null."""
        found = [self.wanted.get(name) for name in _ERRORS]
        return any(found)

    def check_error(self, error: str | None) -> None:
        """Compare whether something failed, and its message.

        Args:
            error: What the error says, None where there was none.
        """
        wanted = self.expects_error()
        assert (error is not None) is wanted, error or "expected an error"
        for name in _ERRORS:
            text = self.wanted.get(name)
            text = text.get("$error") if isinstance(text, dict) else text
            assert not isinstance(text, str) or text in (error or "")
        self.check_message(error)

    def check_message(self, message: str | None) -> None:
        """Compare a message with what the case says about it, if anything."""
        shown = message or ""
        for name in ("message_contains", "errContains"):
            for part in texts(self.wanted.get(name)):
                assert part in shown
        if self.wanted.get("message") is not None:
            assert shown.strip() == self.wanted["message"].strip()


Runner = Callable[[Case], None]
RUNNERS: Final[dict[str, Runner]] = {}


def runs(*kinds: str) -> Callable[[Runner], Runner]:
    """Name the kinds of cases that a function runs."""

    def register(runner: Runner) -> Runner:
        for kind in kinds:
            if kind in RUNNERS:
                msg = f"two runners for the kind {kind}"
                raise ValueError(msg)
            RUNNERS[kind] = runner
        return runner

    return register


def attempt(work: Callable[[], Any]) -> tuple[Any, str | None]:
    """Give the result of `work` and None, or None and the text of its error."""
    try:
        return work(), None
    except (InvalidPolicy, EvaluationError) as error:
        return None, str(error)


def texts(value: Any) -> list[str]:
    """Give the texts of a field that holds one, several or none."""
    if value is None:
        return []
    return [value] if isinstance(value, str) else list(value)
