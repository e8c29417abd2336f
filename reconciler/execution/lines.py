"""Splits the output of a process into lines that are safe for a log."""

import re
from typing import Final

LONGEST: Final = 16 * 1024
"""Maximum bytes of a line, and characters shown of it; the rest is cut off."""
RATE: Final = 1000
"""Maximum lines of one stream in a second; the others are dropped."""
_CUT: Final = " [cut]"
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters that would affect a terminal; a tab is harmless."""


class LineReader:
    """Splits a stream into lines."""

    def __init__(self) -> None:
        self._rest = b""
        self._second = 0.0
        self._count = 0
        self.left_out = 0
        self.last = ""
        """The last line that is not empty, even if it was dropped."""

    def feed(self, data: bytes, now: float) -> list[str]:
        """Add data; return the lines that are now complete.

        Args:
            data: As read from the stream.
            now: In seconds.
        """
        *whole, rest = (self._rest + data).split(b"\n")
        # One byte over the limit shows that the line was cut.
        self._rest = rest[: LONGEST + 1]
        return self._passed(whole, now)

    def finish(self, now: float) -> list[str]:
        """Return the text after the last line break."""
        rest, self._rest = self._rest, b""
        return self._passed([rest], now)

    def _passed(self, raw: list[bytes], now: float) -> list[str]:
        if now - self._second >= 1:
            self._second, self._count = now, 0
        said = [line for line in raw if line.strip()]
        if said:
            self.last = _text(said[-1])
        room = max(RATE - self._count, 0)
        self._count += len(said)
        self.left_out += max(len(said) - room, 0)
        return [_text(line) for line in said[:room]]


def _text(line: bytes) -> str:
    bare = line.rstrip(b"\r")
    text = bare[:LONGEST].decode(errors="backslashreplace")
    shown = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    whole = len(bare) <= LONGEST and len(shown) <= LONGEST
    return shown if whole else shown[:LONGEST] + _CUT
