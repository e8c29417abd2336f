"""What a stream can show: colours, and how wide its lines may be."""

import os
import sys
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from reconciler.cli.output.terminal import bare_stream, styled, visible

if TYPE_CHECKING:
    from rich.console import Console

WIDTH: Final = 80
"""Columns where no terminal says how many it has."""
_LEAST: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """A stream as a writer sees it; what it is by default no terminal is.

    Attributes:
        coloured: Escapes for colours and bold text are understood and wanted.
        width: Columns.
        folding: Long lines are to be folded. Elsewhere each message stays one line: programs
            read it, and `grep` finds it.
    """

    coloured: bool = False
    width: int = WIDTH
    folding: bool = False

    def style(self, text: str, **style: Any) -> str:
        """Return a text in a style of `click.style`, or as it is."""
        return styled(click.style(visible(text), **style)) if self.coloured and text else text

    def fold(self, text: str, indent: str = "", *, hanging: str | None = None) -> list[str]:
        """Return a message as lines, divided between words only.

        Args:
            text: The message; its own line breaks stay.
            indent: Before each line.
            hanging: Before all lines but the first, in place of ``indent``.
        """
        after = indent if hanging is None else hanging
        if not self.folding:
            return [f"{indent}{line}" for line in text.split("\n")]
        found: list[str] = []
        for line in text.split("\n"):
            found += textwrap.wrap(
                line,
                self.width,
                initial_indent=indent,
                subsequent_indent=after,
                break_long_words=False,
                break_on_hyphens=False,
            ) or [indent.rstrip()]
        return found

    def console(self, stream: TextIO) -> "Console":
        """Return the stream for what `rich` writes."""
        # It takes as long to load as all of `retrofit --help`, and most commands print no table.
        from rich.console import Console  # noqa: PLC0415

        return Console(
            file=bare_stream(stream),
            highlight=False,
            soft_wrap=True,
            width=self.width,
            color_system="standard" if self.coloured else None,
        )


def screen_of(stream: TextIO) -> Screen:
    """Return what a stream can show.

    Colours are for terminals, unless NO_COLOR is set to anything (https://no-color.org) or the
    terminal understands none.
    """
    if not stream.isatty():
        return Screen()
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return Screen(coloured=not plain, width=_columns(stream), folding=True)


def warn(message: str) -> None:
    """Tell the person something on standard error."""
    screen = screen_of(sys.stderr)
    for line in screen.fold(message):
        click.echo(line, err=True)


def _columns(stream: TextIO) -> int:
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return max(int(given), _LEAST)
    try:
        known = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        known = 0
    return max(known, _LEAST) if known else WIDTH
