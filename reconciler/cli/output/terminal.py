"""Sanitized output streams: names and messages cannot send control sequences to a terminal.

An object's name, a message or a diff may hold escapes that clear the screen, hide a line or
reverse text. Everything that a command writes passes through here, where escapes become visible
text. Only the styles of `Screen` become escapes again, by a random mark that no object can guess.
"""

import contextlib
import re
import secrets
import sys
from collections.abc import Iterator
from typing import Any, Final, TextIO, cast

_MARK: Final = f"\x1b{secrets.token_hex(8)}["
_ESCAPE: Final = "\x1b["
# Control characters, those that change the direction of text or end a line, and surrogates, which
# no encoding has.
_STEERING: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_DELETE: Final = 0x7F
CLEAR: Final = f"{_MARK}2J{_MARK}1;1H"
"""The sequence that clears the screen."""


def visible(text: str) -> str:
    """Return a text with terminal control characters written out as printable escapes."""
    return _STEERING.sub(_written, text)


def styled(escapes: str) -> str:
    """Return a text whose escapes are marked as trusted, so that they reach the terminal."""
    return escapes.replace(_ESCAPE, _MARK)


def bare_stream(stream: TextIO) -> TextIO:
    """Return the unsanitized stream, for output that holds no content of objects."""
    return stream.bare if isinstance(stream, _VisibleStream) else stream


@contextlib.contextmanager
def visible_streams() -> Iterator[None]:
    """Sanitize standard output and standard error within the context."""
    out, err = bare_stream(sys.stdout), bare_stream(sys.stderr)
    with (
        contextlib.redirect_stdout(cast("TextIO", _VisibleStream(out))),
        contextlib.redirect_stderr(cast("TextIO", _VisibleStream(err))),
    ):
        yield


class _VisibleStream:
    def __init__(self, bare: TextIO) -> None:
        self.bare = bare

    def write(self, text: str) -> int:
        parts = (visible(part) for part in text.split(_MARK))
        self.bare.write(_ESCAPE.join(parts))
        return len(text)

    def writelines(self, lines: Iterator[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.bare, name)


def _written(found: re.Match[str]) -> str:
    code = ord(found[0])
    # JSON holds no raw character below U+007F, so all that is escaped in it stays valid.
    return f"\\x{code:02x}" if code < _DELETE else f"\\u{code:04x}"
