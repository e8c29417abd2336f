"""The output of `retrofit explain`: nested notes, as indented lines or as JSON."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TextIO

import click

from reconciler.cli.desk.emit import paint
from reconciler.cli.output.screen import Screen

Mark = tuple[str, str]
"""An answer and its colour."""

YES: Final[Mark] = ("yes", "green")
NO: Final[Mark] = ("no", "red")
OPEN: Final[Mark] = ("open", "yellow")
FAIL: Final[Mark] = ("error", "red")
_STEP: Final = "  "
_LONGEST: Final = 160
_BOLD: Final = frozenset({"policy", "rule", "target"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One line of an explanation.

    Attributes:
        kind: A word for programs, such as ``precondition``; the docs of the command list them.
        mark: The answer; None where the note is not an answer.
        facts: Data for programs, without secrets.
    """

    kind: str
    text: str
    mark: Mark | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: "list[Note]" = field(default_factory=list)

    def fields(self) -> dict[str, Any]:
        """Return the fields of the note for JSON output."""
        found: dict[str, Any] = {"kind": self.kind}
        if self.mark is not None:
            found["answer"] = self.mark[0]
        found |= {"text": self.text, **self.facts}
        if self.notes:
            found["notes"] = [note.fields() for note in self.notes]
        return found


@dataclass(frozen=True, slots=True)
class OutlineWriter:
    """Collects notes in order."""

    notes: list[Note] = field(default_factory=list)

    @property
    def inner(self) -> "OutlineWriter":
        """Return a writer of notes nested in the last one."""
        return OutlineWriter(self.notes[-1].notes)

    def line(self, kind: str, text: str, **facts: Any) -> None:
        """Add a note without an answer."""
        self.notes.append(Note(kind=kind, text=text, facts=facts))

    def answer(self, mark: Mark, kind: str, text: str, **facts: Any) -> None:
        """Add a note with an answer."""
        self.notes.append(Note(kind=kind, text=text, mark=mark, facts=facts))


def show(notes: Iterable[Note], stream: TextIO, screen: Screen, indent: str = "") -> None:
    """Print notes as indented lines that fit a screen."""
    for note in notes:
        for line in _lines(note, screen, indent):
            click.echo(line, stream)
        show(note.notes, stream, screen, indent + _STEP)


def _lines(note: Note, screen: Screen, indent: str) -> Iterable[str]:
    if note.kind == "diff" and note.mark is None:
        for line in paint(note.text.splitlines(), screen):
            yield f"{indent}{line}"
    elif note.mark is None:
        for line in screen.fold(note.text, indent, hanging=indent + _STEP):
            yield screen.style(line, bold=True) if note.kind in _BOLD else line
    else:
        word, colour = note.mark
        head = f"{word:<5} "
        first, *rest = screen.fold(head + note.text, indent, hanging=indent + " " * len(head))
        text = first[len(indent) + len(head) :]
        yield f"{indent}{screen.style(head, fg=colour)}{text}"
        yield from rest


def shown(value: Any) -> str:
    """Return a value as one short line of JSON."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    if len(text) <= _LONGEST:
        return text
    # Cut at a space if possible: a cut word can look like another word.
    begun = text[:_LONGEST].rpartition(" ")[0] or text[:_LONGEST]
    return f"{begun} ... ({len(text)} characters)"
