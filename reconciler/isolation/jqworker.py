"""The process that evaluates jq programs: a script that no module imports.

It runs with an empty environment, and once it is ready it cannot open files any more. It reads
requests and writes answers, each a length of four bytes and JSON: one frame when it is ready, then
for each request one for the program and one for each input, as soon as it is known.
"""

import json
import os
import resource
import signal
import sys
import time
from functools import lru_cache
from typing import Any

import jq

_COMPILED = 64
_HEAD = 4
_STDERR = 2


def main() -> None:
    """Answer requests until the input ends."""
    seconds, memory, most = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    _prepare(memory)
    _write({})
    while request := _read():
        _answer(json.loads(request), seconds, most)


def _prepare(memory: int) -> None:
    # Python itself may have set a locale.
    os.environ.clear()
    # Libraries that read files on first use do so now.
    time.localtime()
    _compile(".").input_text("null").text()
    os.nice(10)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (_STDERR + 1, _STDERR + 1))
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - keeps imports few
            pages = int(file.read().split()[0])
    except OSError:
        return
    limit = pages * resource.getpagesize() + memory
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


@lru_cache(_COMPILED)
def _compile(program: str) -> Any:
    return jq.compile(program)


def _answer(request: dict[str, Any], seconds: float, most: int) -> None:
    # A program that uses more processor time than this ends the process.
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        program = _compile(request["program"])
    except ValueError as error:
        _write({"error": str(error)})
        return
    _write({})
    for text in request["inputs"]:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        _write(_result(program, text, most))
    signal.setitimer(signal.ITIMER_PROF, 0)


def _result(program: Any, text: str, most: int) -> dict[str, str]:
    try:
        found = program.input_text(text).text()
    except ValueError as error:
        return {"error": str(error)}
    return {"results": found} if len(found) <= most else {"error": "its result is too large"}


def _read() -> bytes:
    head = sys.stdin.buffer.read(_HEAD)
    return sys.stdin.buffer.read(int.from_bytes(head, "big")) if len(head) == _HEAD else b""


def _write(answer: dict[str, str]) -> None:
    body = json.dumps(answer).encode()
    sys.stdout.buffer.write(len(body).to_bytes(_HEAD, "big") + body)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
