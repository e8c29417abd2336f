"""What is told: notes within notes, as indented lines or as JSON."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rich.console import Console
from rich.text import Text

Mark = tuple[str, str]
"""An answer and its colour."""

YES: Final[Mark] = ("yes", "green")
NO: Final[Mark] = ("no", "red")
OPEN: Final[Mark] = ("open", "yellow")
FAIL: Final[Mark] = ("error", "bold red")
_STEP: Final = "  "
_LONGEST: Final = 160
_DIFF: Final = {"+": "green", "-": "red", "@": "cyan"}
_BOLD: Final = frozenset({"policy", "rule", "target"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One thing that is told.

    Attributes:
        kind: For programs, as ``precondition``; the page of the command in the docs lists them.
        text: For people.
        mark: None where it answers nothing.
        facts: For programs, without anything secret.
        notes: What belongs to it.
    """

    kind: str
    text: str
    mark: Mark | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: "list[Note]" = field(default_factory=list)

    def fields(self) -> dict[str, Any]:
        """Return it for programs."""
        found: dict[str, Any] = {"kind": self.kind}
        if self.mark is not None:
            found["answer"] = self.mark[0]
        found |= {"text": self.text, **self.facts}
        if self.notes:
            found["notes"] = [note.fields() for note in self.notes]
        return found


@dataclass(frozen=True, slots=True)
class Page:
    """Where notes go, one below the other."""

    notes: list[Note] = field(default_factory=list)

    @property
    def inner(self) -> "Page":
        """Return the page inside of the last note."""
        return Page(self.notes[-1].notes)

    def line(self, kind: str, text: str, **facts: Any) -> None:
        """Tell something."""
        self.notes.append(Note(kind=kind, text=text, facts=facts))

    def answer(self, mark: Mark, kind: str, text: str, **facts: Any) -> None:
        """Answer something."""
        self.notes.append(Note(kind=kind, text=text, mark=mark, facts=facts))


def show(notes: Iterable[Note], console: Console | None = None, indent: str = "") -> None:
    """Write notes as indented lines, in colours on a terminal."""
    console = console or Console(highlight=False, soft_wrap=True)
    for note in notes:
        for text in _lines(note):
            console.print(Text.assemble(indent, text))
        show(note.notes, console, indent + _STEP)


def _lines(note: Note) -> Iterable[Text]:
    if note.kind == "diff" and note.mark is None:
        for line in note.text.splitlines():
            bold = line.startswith(("---", "+++"))
            yield Text(line, "bold" if bold else _DIFF.get(line[:1], ""))
    elif note.mark is None:
        yield Text(note.text, "bold" if note.kind in _BOLD else "")
    else:
        word, style = note.mark
        yield Text.assemble((f"{word:<5} ", style), note.text)


def shown(value: Any) -> str:
    """Return a value as one short line of JSON."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text)} characters)"
