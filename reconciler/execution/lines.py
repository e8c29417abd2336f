"""What a process prints, as lines that a log can bear."""

import re
from typing import Final

LONGEST: Final = 16 * 1024
"""Bytes of a line, and characters of what is shown of it; the rest is left out."""
RATE: Final = 1000
"""Lines of one stream in a second; the rest of them is left out."""
_CUT: Final = " [cut]"
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""What would steer a terminal; a tab does not."""


class LineReader:
    """Divides a stream into lines."""

    def __init__(self) -> None:
        self._rest = b""
        self._second = 0.0
        self._count = 0
        self.left_out = 0
        self.last = ""
        """The last line that is not empty, whether it was left out or not."""

    def feed(self, data: bytes, now: float) -> list[str]:
        """Take in what was read; return the lines that are whole now.

        Args:
            data: As it came.
            now: In seconds.
        """
        *whole, rest = (self._rest + data).split(b"\n")
        # One byte more than a line may have tells that it was cut.
        self._rest = rest[: LONGEST + 1]
        return self._passed(whole, now)

    def finish(self, now: float) -> list[str]:
        """Return what stands after the last line break."""
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
