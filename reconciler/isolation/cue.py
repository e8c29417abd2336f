"""The `Cue` port: runs the command ``cue`` in processes of its own for each program.

A process has a temporary folder with the program and its data, no inherited environment, and
limits on time, memory, files and output. Its error messages may quote the data, so only the place
of an error is shown.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import orjson

from reconciler.api.account import ServiceAccount
from reconciler.engine.loads import CueLoad, Load
from reconciler.errors import Invalid, InvalidPolicy, InvalidSetting, Unavailable
from reconciler.services.ports.cue import Cue
from reconciler.services.ports.objects import RuleLoader
from reconciler.services.processing.fairness import FairGate

NO_CUE: Final = (
    "CUE is not evaluated: use template or plaintext, or start both programs with --cue=PATH, the"
    " path of the cue command"
)
_KIB: Final = 1024
_MIB: Final = 1024 * _KIB
_BLOCK: Final = 512
_FILES: Final = 64
_NOT_STARTED: Final = frozenset({126, 127})
"""Exit codes of a shell that does not find a command, or may not start it."""
_TOGETHER: Final = 2
_SHARE: Final = 1
_SOURCE: Final = "policy.cue"
_DATA: Final = "data.json"
_WHOLE: Final = f' && "$1" eval {_SOURCE} {_DATA} > /dev/null'
"""Finds errors anywhere in the program, as the original does; an export evaluates its output."""
_ERRORS: Final = 16_384
"""Bytes that are read of the command's error output."""
_PLACE: Final = re.compile(r"policy\.cue:([0-9]+):([0-9]+)")
_MISSING: Final = re.compile(r'reference "[a-z]+" not found:\n\s*--expression:1:1')


@dataclass(frozen=True, slots=True, kw_only=True)
class CueLimits:
    """The limits of one program.

    Attributes:
        seconds: Wall-clock time until it is killed.
        memory: Bytes of its data segment; Go reserves far more addresses than it uses.
        answer: Bytes of the resulting JSON.
    """

    seconds: float = 2.0
    memory: int = 256 * _MIB
    answer: int = 1 * _MIB


class NoCue:
    """Refuses all programs, with a message on how to enable CUE."""

    async def check(self, source: str, *, location: str) -> None:
        """Refuse a program."""
        del source
        raise InvalidPolicy(location, NO_CUE)

    async def evaluate(self, load: CueLoad) -> Any:
        """Refuse a program."""
        del load
        raise Invalid(NO_CUE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CueCommand:
    """Evaluates CUE programs by running the ``cue`` executable."""

    file: Path
    limits: CueLimits = CueLimits()
    _gate: FairGate = field(default_factory=lambda: FairGate(_TOGETHER, share=_SHARE), repr=False)

    async def check(self, source: str, *, location: str) -> None:
        """Check that a program can be parsed."""
        try:
            async with self._gate.enter(source):
                code, _, said = await self._run(source, None, "vet", "-c=false", _SOURCE)
        except Invalid as error:
            raise InvalidPolicy(location, str(error)) from error
        if code:
            # No data is involved yet, but the place of the error is all that an author needs.
            raise InvalidPolicy(location, f"the CUE program cannot be parsed{_place(said)}")

    async def evaluate(self, load: CueLoad) -> Any:
        """Return the output of a program, None where the program does not define it."""
        args = ("export", _SOURCE, _DATA, "-e", load.output, "--out", "json")
        async with self._gate.enter(load.tenant):
            code, answer, said = await self._run(load.source, load.data, *args)
        if not code:
            return _decoded(answer)
        if _MISSING.search(said):
            return None
        raise Invalid(f"the CUE program cannot be evaluated{_place(said)}")

    async def _run(self, source: str, data: str | None, *args: str) -> tuple[int, bytes, str]:
        try:
            with _folder() as folder:
                await asyncio.to_thread(_write, folder, source, data)
                return await self._ended(folder, args)
        except OSError as error:
            raise Unavailable(f"the cue command cannot be started: {error.strerror}") from error

    async def _ended(self, folder: Path, args: tuple[str, ...]) -> tuple[int, bytes, str]:
        process = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", self._script(*args), "sh", str(self.file), *args),
            cwd=folder,
            env={"HOME": str(folder), "CUE_REGISTRY": "none", "GOMAXPROCS": "1"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(self.limits.seconds):
                answer, said = await asyncio.gather(
                    _read(process.stdout, self.limits.answer + 1), _read(process.stderr, _ERRORS)
                )
                if len(answer) > self.limits.answer:
                    raise Invalid(f"the CUE program returns more than {self.limits.answer} bytes")
                code = await process.wait()
        except TimeoutError:
            raise Invalid(f"the CUE program takes more than {self.limits.seconds:g} s") from None
        finally:
            # The processes that it started are killed with it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            # asyncio reports its end only after its pipes are drained, and no reader is left.
            await asyncio.gather(_read(process.stdout, 0), _read(process.stderr, 0))
            await process.wait()
        if code in _NOT_STARTED:
            raise Unavailable("the cue command cannot be started")
        return code, answer, said.decode(errors="replace")

    def _script(self, *args: str) -> str:
        """Return the shell script that sets the limits before the command replaces the shell."""
        blocks, kilobytes = self.limits.answer // _BLOCK, self.limits.memory // _KIB
        return (
            f"ulimit -c 0 && ulimit -n {_FILES} && ulimit -f {blocks} && ulimit -d {kilobytes}"
            f'{_WHOLE if _DATA in args else ""} && exec "$@"'
        )


@dataclass(frozen=True, slots=True)
class WithCue:
    """A `RuleLoader` that evaluates CUE programs, and delegates all other loads.

    Attributes:
        account: The account that reads; programs read nothing.
    """

    loader: RuleLoader
    cue: Cue
    account: ServiceAccount | None = None

    def acting_as(self, account: ServiceAccount | None) -> "WithCue":
        """Return a loader that reads as an account."""
        return self if account is None else replace(self, account=account)

    async def load(self, load: Load) -> Any:
        """Return the data of a load."""
        if isinstance(load, CueLoad):
            return await self.cue.evaluate(load)
        return await self.loader.acting_as(self.account).load(load)


def why_no_cue(path: str) -> str:
    """Return why CUE programs are not evaluated, empty where a command is configured."""
    return "" if path else NO_CUE


def cue_at(path: str) -> Cue:
    """Return the `Cue` port for a path of the command; it refuses all programs without one.

    Raises:
        InvalidSetting: There is no such command.
    """
    if not path:
        return NoCue()
    file = Path(path)
    if not file.is_absolute() or not os.access(file, os.X_OK) or file.is_dir():
        msg = f"--cue={path}: expected the absolute path of the cue command, an executable file"
        raise InvalidSetting(msg)
    return CueCommand(file=file)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="cue-"))
    try:
        yield folder
    finally:
        # Without a free file descriptor no folder can be listed, but these can be removed.
        for name in (_SOURCE, _DATA):
            (folder / name).unlink(missing_ok=True)
        try:
            folder.rmdir()
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)


def _write(folder: Path, source: str, data: str | None) -> None:
    (folder / _SOURCE).write_text(source, encoding="utf-8")
    if data is not None:
        (folder / _DATA).write_text(data, encoding="utf-8")


def _decoded(answer: bytes) -> Any:
    try:
        return orjson.loads(answer)
    except orjson.JSONDecodeError as error:
        msg = "the CUE program returns a value that is nested too deeply or has too large a number"
        raise Invalid(msg) from error


async def _read(stream: asyncio.StreamReader | None, most: int) -> bytes:
    """Return the first bytes of a stream, and discard the rest."""
    found = b""
    while stream is not None and (part := await stream.read(65_536)):
        found += part[: max(0, most - len(found))]
        # Output without a pause would keep the event loop from enforcing the timeout.
        await asyncio.sleep(0)
    return found


def _place(said: str) -> str:
    found = _PLACE.search(said)
    return f": line {found[1]}, column {found[2]}" if found else ""
