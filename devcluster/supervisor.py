"""Runs child processes, and ends them when the process that started it is gone.

This separate script uses only the standard library. Orders arrive on standard input and
answers are written to standard output, one JSON object per line:

    {"do": "start", "name": N, "argv": [..], "env": {..}, "log": FILE, "signal": S, "grace": G}
        -> {"did": "start", "name": N, "pid": P} or {"did": "fail", "name": N, "reason": R}
    {"do": "own", "folder": F} -> {"did": "own"}; F is removed at the end, unless detached
    {"do": "detach"} -> {"did": "detach"}; from then on the end of the input is ignored
    (by itself)      -> {"did": "exit", "name": N, "code": C}

The end of the input is the only signal that works everywhere: a pipe closes however its writer
ended, kill -9 included. Each child leads a process group of its own and is ended with that group.
"""

import contextlib
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Child:
    process: subprocess.Popen[bytes]
    signal: int
    grace: float


class _Supervisor:
    def __init__(self) -> None:
        self._children: dict[str, _Child] = {}
        self._detached = False
        self._ending = False
        self._input = b""
        self._folders: list[str] = []

    def run(self) -> None:
        reader, writer = socket.socketpair()
        reader.settimeout(0)
        writer.settimeout(0)
        signal.set_wakeup_fd(writer.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in _ENDING:
            signal.signal(number, self._end)
        selector = selectors.DefaultSelector()
        selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
        selector.register(reader, selectors.EVENT_READ)
        try:
            while not self._ending:
                for key, _ in selector.select():
                    if key.fileobj is reader:
                        reader.recv(4096)
                    elif not self._read():
                        selector.unregister(key.fileobj)
                        self._ending = not self._detached
                self._reap()
        finally:
            self._stop()

    def _end(self, *_: object) -> None:
        self._ending = True

    def _read(self) -> bool:
        chunk = os.read(sys.stdin.fileno(), 65536)
        *lines, self._input = (self._input + chunk).split(b"\n")
        for line in lines:
            self._obey(json.loads(line))
        return bool(chunk)

    def _obey(self, order: dict[str, Any]) -> None:
        if order["do"] == "detach":
            self._detached = True
            _say(did="detach")
            return
        if order["do"] == "own":
            self._folders.append(order["folder"])
            _say(did="own")
            return
        name = order["name"]
        try:
            with Path(order["log"]).open("ab") as log:
                process = subprocess.Popen(  # noqa: S603 - the purpose of a supervisor
                    order["argv"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **order["env"]},
                    cwd=order["cwd"],
                    process_group=0,
                )
        except OSError as error:
            _say(did="fail", name=name, reason=str(error))
            return
        self._children[name] = _Child(
            process=process, signal=order["signal"], grace=order["grace"]
        )
        _say(did="start", name=name, pid=process.pid)

    def _reap(self) -> None:
        for name, child in list(self._children.items()):
            code = child.process.poll()
            if code is not None:
                # Processes that a program left in its group must not outlive it.
                signal_group(child.process.pid, signal.SIGKILL)
                del self._children[name]
                _say(did="exit", name=name, code=code)
        if self._detached and not self._children:
            self._ending = True

    def _stop(self) -> None:
        now = time.monotonic()
        for child in self._children.values():
            signal_group(child.process.pid, child.signal)
        for child in self._children.values():
            left = max(0.0, now + child.grace - time.monotonic())
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(left)
            signal_group(child.process.pid, signal.SIGKILL)
            child.process.wait()
        if not self._detached:
            for folder in self._folders:
                shutil.rmtree(folder, ignore_errors=True)


def signal_group(group: int, number: int) -> None:
    """Send a signal to a process group, if it has a running process."""
    # PermissionError: macOS refuses to signal processes that have ended and are not reaped.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _say(**answer: object) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    _Supervisor().run()
