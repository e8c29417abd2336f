"""The capabilities of an output stream: colours and line width."""

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
"""Columns where the width of the terminal is unknown."""
_LEAST: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """The capabilities of a stream; the defaults describe a stream that is not a terminal.

    Attributes:
        width: Columns.
        folding: Whether to fold long lines. Where the stream is not a terminal, each message
            stays on one line for programs and `grep`.
    """

    coloured: bool = False
    width: int = WIDTH
    folding: bool = False

    def style(self, text: str, **style: Any) -> str:
        """Return a text in a style of `click.style`, or unchanged on a stream without colours."""
        return styled(click.style(visible(text), **style)) if self.coloured and text else text

    def fold(self, text: str, indent: str = "", *, hanging: str | None = None) -> list[str]:
        """Return a message as lines, broken between words only.

        Args:
            text: The message; its own line breaks are kept.
            indent: Prefix of each line.
            hanging: Prefix of all lines but the first, instead of ``indent``.
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
        """Return a `rich` console that writes to the stream."""
        # Importing rich takes as long as all of `retrofit --help`; most commands do not need it.
        from rich.console import Console  # noqa: PLC0415

        return Console(
            file=bare_stream(stream),
            highlight=False,
            soft_wrap=True,
            width=self.width,
            color_system="standard" if self.coloured else None,
        )


def screen_of(stream: TextIO) -> Screen:
    """Return the capabilities of a stream.

    Only terminals get colours, unless NO_COLOR is set and not empty (https://no-color.org) or
    the terminal is dumb.
    """
    if not stream.isatty():
        return Screen()
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return Screen(coloured=not plain, width=_columns(stream), folding=True)


def warn(message: str) -> None:
    """Print a message for the user to standard error."""
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
