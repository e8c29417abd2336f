"""Indented lines, in colours on a terminal."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rich.console import Console
from rich.text import Text

YES: Final = ("yes", "green")
NO: Final = ("no", "red")
OPEN: Final = ("open", "yellow")
FAIL: Final = ("error", "bold red")
_STEP: Final = "  "
_LONGEST: Final = 160
_DIFF: Final = {"+": "green", "-": "red", "@": "cyan"}


def _console() -> Console:
    return Console(highlight=False, soft_wrap=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Where lines go; an inner page is indented."""

    console: Console = field(default_factory=_console)
    indent: str = ""

    @property
    def inner(self) -> "Page":
        """Return the page one step further in."""
        return replace(self, indent=self.indent + _STEP)

    def head(self, text: str) -> None:
        """Write a headline."""
        self._print(Text(text, "bold"))

    def line(self, text: str) -> None:
        """Write a plain line."""
        self._print(Text(text))

    def answer(self, mark: tuple[str, str], text: str) -> None:
        """Write a line that begins with one of the marks."""
        word, style = mark
        self._print(Text.assemble((f"{word:<5} ", style), text))

    def diff(self, lines: Iterable[str]) -> None:
        """Write the lines of a unified diff."""
        for line in lines:
            bold = line.startswith(("---", "+++"))
            self._print(Text(line, "bold" if bold else _DIFF.get(line[:1], "")))

    def _print(self, text: Text) -> None:
        self.console.print(Text.assemble(self.indent, text))


def shown(value: Any) -> str:
    """Return a value as one short line of JSON."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text)} characters)"
