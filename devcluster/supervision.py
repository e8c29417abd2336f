"""The client side of the supervisor: starts programs that end when this process does."""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from devcluster.supervisor import signal_group
from reconciler.clock import SystemClock
from reconciler.errors import Unavailable

_SCRIPT = Path(__file__).with_name("supervisor.py")
_ANSWER = 10.0
_TAIL = 8192


class Supervision:
    """Programs that are children of one supervisor process.

    Not safe for use from several threads at once.

    Attributes:
        pids: Last known process ids of the running programs, by name.
    """

    def __init__(self, log: Path) -> None:
        self._log = log.open("ab")
        # -I and -S: neither PYTHONPATH nor site-packages can change what runs here.
        self._process = subprocess.Popen(  # noqa: S603 - this project's own script
            [sys.executable, "-I", "-S", str(_SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self.pids: dict[str, int] = {}
        self._exits: dict[str, int] = {}
        self._answers: list[dict[str, Any]] = []
        self._received = b""
        self._grace = 0.0

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End all programs."""
        self.close()

    def start(
        self,
        name: str,
        argv: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
        grace: float = 5.0,
    ) -> int:
        """Start a program and return its process id.

        Args:
            name: Name for later calls; free again once the program has ended.
            log: File to which its output is appended.
            env: Environment variables in addition to those of this process.
            stop_signal: Signal that ends the program.
            grace: Seconds after this signal until the program is killed.

        Raises:
            Unavailable: The program could not be started.
        """
        self._grace = max(self._grace, grace)
        self._exits.pop(name, None)
        answer = self._ask(
            do="start",
            name=name,
            argv=list(argv),
            env=dict(env or {}),
            cwd=str(cwd) if cwd else None,
            log=str(log),
            signal=int(stop_signal),
            grace=grace,
        )
        if answer["did"] == "fail":
            raise Unavailable(f"{name} does not start: {answer['reason']}")
        return int(answer["pid"])

    def exit_code(self, name: str) -> int | None:
        """Return the exit code (negative: a signal), or None while the program runs."""
        self._receive(0.0)
        return self._exits.get(name)

    def wait_exit(self, name: str, within: float) -> int | None:
        """Return the exit code, or None if the program still runs after the limit."""
        self._receive_until(lambda: name in self._exits, within)
        return self._exits.get(name)

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a program and its process group; do nothing if it has ended."""
        if self.exit_code(name) is None and name in self.pids:
            signal_group(self.pids[name], number)

    def own(self, folder: Path) -> None:
        """Remove a folder when all programs have ended, however this process ends."""
        self._ask(do="own", folder=str(folder))

    def detach(self) -> None:
        """Keep the programs running after this process ends; a SIGTERM to `pid` ends them."""
        self._ask(do="detach")
        self._let_go()
        # The supervisor stays alive; without a return code, subprocess would warn about it.
        self._process.returncode = 0

    def close(self) -> None:
        """End all programs and the supervisor; a second call does nothing."""
        if self._process.returncode is not None:
            return
        self._let_go()
        try:
            self._process.wait(self._grace + 5.0)
        except subprocess.TimeoutExpired:
            for group in (*self.pids.values(), self.pid):
                signal_group(group, signal.SIGKILL)
            self._process.wait()

    def _let_go(self) -> None:
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream:
                with contextlib.suppress(OSError):
                    stream.close()

    def _ask(self, **order: object) -> dict[str, Any]:
        assert self._process.stdin  # noqa: S101 - it was opened as a pipe
        try:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
        except (OSError, ValueError) as error:
            raise Unavailable(f"the supervisor (process {self.pid}) is gone: {error}") from error
        if not self._receive_until(lambda: bool(self._answers), _ANSWER):
            raise Unavailable(
                f"the supervisor (process {self.pid}) gives no answer; see {self._log.name}"
            )
        return self._answers.pop(0)

    def _receive_until(self, condition: Callable[[], bool], within: float) -> bool:
        """Process output until a condition holds; return whether it does."""
        clock = SystemClock()
        deadline = clock.monotonic() + within
        while not condition():
            left = deadline - clock.monotonic()
            if left <= 0 or not self._receive(left):
                return False
        return True

    def _receive(self, within: float) -> bool:
        """Process the supervisor's output; return False at its end."""
        if not self._process.stdout or self._process.stdout.closed:
            return False
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(within):
                return True
        chunk = os.read(self._process.stdout.fileno(), 65536)
        *lines, self._received = (self._received + chunk).split(b"\n")
        for line in lines:
            said = json.loads(line)
            if said["did"] == "exit":
                self._exits[said["name"]] = said["code"]
                self.pids.pop(said["name"], None)
                continue
            if said["did"] == "start":
                # Recorded here and not by the caller, because the exit may be in the same chunk.
                self.pids[said["name"]] = int(said["pid"])
            self._answers.append(said)
        return bool(chunk)


def last_lines(log: Path, count: int = 5) -> str:
    """Return the end of a log file, indented, for an error message."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            text = file.read().decode(errors="replace")
    except OSError:
        return "  (no log)"
    lines = text.strip().splitlines()[-count:]
    return "\n".join(f"  {line[:400]}" for line in lines) or "  (the log is empty)"
