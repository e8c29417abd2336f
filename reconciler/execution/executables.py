"""Runs executable hooks, and reads their configuration."""

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from reconciler.clock import SystemClock
from reconciler.errors import Interrupted, InvalidPolicy
from reconciler.execution import workspace
from reconciler.execution.discovery import Executable
from reconciler.execution.limits import HookLimits
from reconciler.execution.lines import LineReader
from reconciler.execution.process import Ended, HookProcess
from reconciler.execution.workspace import BadAnswer, Workspace
from reconciler.hooks.ports import RunFailure

_PLACE: Final = "--config"
_ARGUMENT: Final = "--config"
_LONGEST_REASON: Final = 300
_MIB: Final = 1024 * 1024
_INTERPRETED: Final = b"#!"
# Magic numbers of ELF and of macOS executables.
_PROGRAMS: Final = (
    b"\x7fELF",
    b"\xcf\xfa\xed\xfe",
    b"\xca\xfe\xba\xbe",
)
_HEAD: Final = 4096

Say = Callable[[str, str], None]
"""Receives a line that a hook printed, and its stream: ``stdout`` or ``stderr``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of a run of an executable.

    Attributes:
        operations: Text, not yet parsed, as are the next three. All are empty if the files cannot
            be read.
        failure: None if it succeeded.
        ended: How its process ended; None if it never started.
        left_out: Number of output lines dropped by the rate limit.
    """

    operations: str = ""
    metrics: str = ""
    admission: str = ""
    conversion: str = ""
    failure: RunFailure | None = None
    ended: Ended | None = None
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Executables:
    """Runs executables.

    Attributes:
        environment: That of a hook, without the variables that name its files.
    """

    folder: Path
    environment: Mapping[str, str]
    limits: HookLimits = field(default_factory=HookLimits)
    keep_files: bool = False

    async def config(self, executable: Executable) -> str:
        """Return the configuration that an executable prints when run in the folder of hooks.

        Raises:
            InvalidPolicy: It prints no configuration.
            Interrupted: The machine could not run it.
        """
        _check_program(executable)
        printed = bytearray()
        most = self.limits.config

        def keep(data: bytes) -> None:
            if len(printed) <= most:
                printed.extend(data)

        errors = _Stream("stderr", lambda _line, _stream: None)
        files = self._workspace("")
        try:
            process = HookProcess.start(
                self.limits.command(executable.path, (_ARGUMENT,), executable.root),
                {**self.environment, "TMPDIR": str(files.folder)},
                keep,
                errors.take,
            )
            ended = await process.ended(self.limits.config_seconds, self.limits.grace)
        finally:
            files.remove()
        errors.finish()
        if failure := _failure(ended, errors.lines.last, self.limits.config_seconds, self.limits):
            raise InvalidPolicy(_PLACE, str(failure))
        if len(printed) > most:
            reason = f"prints more than {most // _MIB} MiB, not a configuration"
            raise InvalidPolicy(_PLACE, reason)
        return _text(bytes(printed))

    async def run(
        self, executable: Executable, context: str, say: Say, *, seconds: float | None = None
    ) -> Answer:
        """Run an executable once, in its own folder, until it has ended.

        Args:
            executable: What to run, without arguments.
            context: The text of its binding contexts.
            say: Receives the lines that it prints.
            seconds: Its time limit; None for no limit.

        Raises:
            Interrupted: The machine could not run it.
        """
        try:
            _check_program(executable)
        except InvalidPolicy as error:
            return Answer(failure=RunFailure(reason=error.reason))
        output = _Stream("stdout", say)
        errors = _Stream("stderr", say)
        files = self._workspace(context)
        try:
            process = HookProcess.start(
                self.limits.command(executable.path, (), executable.path.parent),
                {**self.environment, **files.variables},
                output.take,
                errors.take,
            )
            ended = await process.ended(seconds, self.limits.grace)
            output.finish()
            errors.finish()
            failure = _failure(ended, errors.lines.last, seconds, self.limits)
            left_out = output.lines.left_out + errors.lines.left_out
            return self._answer(files, failure, ended, left_out)
        finally:
            if not self.keep_files:
                files.remove()

    def _workspace(self, context: str) -> Workspace:
        try:
            return Workspace.make(self.folder, context)
        except OSError as error:
            reason = f"the files of a run cannot be made in {self.folder}: {error.strerror}"
            raise Interrupted(reason) from error

    def _answer(
        self, files: Workspace, failure: RunFailure | None, ended: Ended, left_out: int
    ) -> Answer:
        most = self.limits.result
        try:
            return Answer(
                operations=files.read(workspace.OPERATIONS, most),
                metrics=files.read(workspace.METRICS, most),
                admission=files.read(workspace.ADMISSION, most),
                conversion=files.read(workspace.CONVERSION, most),
                failure=failure,
                ended=ended,
                left_out=left_out,
            )
        except BadAnswer as error:
            failure = failure or RunFailure(reason=str(error))
            return Answer(failure=failure, ended=ended, left_out=left_out)


class _Stream:
    """One stream of a run, line by line."""

    def __init__(self, name: str, say: Say) -> None:
        self._clock = SystemClock()
        self._name = name
        self._say = say
        self.lines = LineReader()

    def take(self, data: bytes) -> None:
        for line in self.lines.feed(data, self._clock.monotonic()):
            self._say(line, self._name)

    def finish(self) -> None:
        for line in self.lines.finish(self._clock.monotonic()):
            self._say(line, self._name)


def _check_program(executable: Executable) -> None:
    """Check that it can be started, because a shell would run any text as its own script."""
    try:
        with executable.path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise InvalidPolicy(_PLACE, f"its file cannot be read: {error.strerror}") from error
    if head.startswith(_PROGRAMS):
        return
    if not head.startswith(_INTERPRETED):
        reason = "is not a program: its first line must name its interpreter, as #!/bin/sh"
        raise InvalidPolicy(_PLACE, reason)
    line = head.splitlines(keepends=True)[0].removeprefix(_INTERPRETED).strip(b" \t\n")
    if line.endswith(b"\r"):
        reason = "its first line ends with a carriage return: save it with Unix line endings"
        raise InvalidPolicy(_PLACE, reason)
    name = os.fsdecode(line.split()[0]) if line else ""
    if not Path(name).is_file():
        raise InvalidPolicy(_PLACE, f"its interpreter {name!r} does not exist")


def _failure(
    ended: Ended, said: str, seconds: float | None, limits: HookLimits
) -> RunFailure | None:
    said = said.strip()[:_LONGEST_REASON]
    if ended.late:
        return RunFailure(reason=f"took longer than {round(seconds or 0, 1):g} s and was ended")
    if ended.code == -signal.SIGXFSZ:
        reason = f"wrote a file larger than {limits.file // _MIB} MiB and was ended"
        return RunFailure(reason=reason)
    if ended.code < 0:
        number = -ended.code
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        return RunFailure(reason=said, signal=name)
    if ended.code:
        return RunFailure(reason=said, exit_code=ended.code)
    return None


def _text(printed: bytes) -> str:
    if not printed.strip():
        reason = "prints nothing: print the configuration, which begins with configVersion: v1"
        raise InvalidPolicy(_PLACE, reason)
    try:
        text = printed.decode()
    except UnicodeDecodeError as error:
        raise InvalidPolicy(_PLACE, "its output is not UTF-8 text") from error
    if "\0" in text:
        raise InvalidPolicy(_PLACE, "its output is binary, not text")
    return text
