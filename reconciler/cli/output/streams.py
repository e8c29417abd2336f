"""Standard output and standard error, whose failure ends the command once, and by name."""

import io
import signal
import sys
from typing import TYPE_CHECKING, Any, Final, TextIO

from typing_extensions import override

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_NAMES: Final = {"stdout": "standard output", "stderr": "standard error"}
READER_GONE: Final = 128 + signal.SIGPIPE
"""The exit code that a shell shows for a program that SIGPIPE ends, as grep, git and kubectl."""


def open_outputs() -> None:
    """Replace the streams of this process by those of this module, in UTF-8."""
    for name, shown in _NAMES.items():
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            setattr(sys, name, _opened(stream, shown))


def _opened(stream: io.TextIOWrapper, name: str) -> TextIO:
    return io.TextIOWrapper(
        io.BufferedWriter(_Output(stream, name)),
        # As kubectl: what a locale lacks would end the command, or change YAML in a file.
        encoding="utf-8",
        errors="backslashreplace",
        line_buffering=stream.line_buffering,
    )


class _Output(io.FileIO):
    def __init__(self, stream: io.TextIOWrapper, name: str) -> None:
        super().__init__(stream.fileno(), "w", closefd=False)
        self._stream = stream  # It would close the descriptor when nobody refers to it.
        self._name = name
        self._failed = False

    @override
    def write(self, data: "ReadableBuffer", /) -> Any:
        if self._failed:
            # What is left in buffers must not fail again while the command ends.
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except BrokenPipeError:
            self._failed = True
            sys.exit(READER_GONE)
        except OSError as error:
            self._failed = True
            raise OSError(
                error.errno, f"cannot be written: {error.strerror}", self._name
            ) from error
