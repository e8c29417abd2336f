"""Real scripts, run as processes: their input, their limits, and the reports of their runs."""

import asyncio
import json
import os
import signal
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.errors import Interrupted, InvalidPolicy
from reconciler.execution.discovery import Executable
from reconciler.execution.environment import clean_environment
from reconciler.execution.executables import Answer, Executables
from reconciler.execution.process import HookProcess
from reconciler.execution.workspace import clear
from tests.linux import linux
from tests.unit.execution.conftest import SECONDS, script
from tests.unit.services.conftest import until

pytestmark = linux

MIB = 1024 * 1024


class Said:
    """Collects the lines that a hook prints."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def __call__(self, line: str, stream: str) -> None:
        self.lines.append((stream, line))


async def run(
    executables: Executables, hook: Executable, context: str = "[]", seconds: float = SECONDS
) -> tuple[Answer, list[tuple[str, str]]]:
    said = Said()
    answer = await executables.run(hook, context, said, seconds=seconds)
    return answer, said.lines


async def test_a_hook_reads_its_context_and_writes_its_response_files(
    executables: Executables, tmp_path: Path
) -> None:
    hook = script(
        tmp_path,
        'cat "$BINDING_CONTEXT_PATH"; echo; echo oh >&2',
        'echo "{\\"operation\\": \\"Create\\"}" >> "$KUBERNETES_PATCH_PATH"',
        'echo metric >> "$METRICS_PATH"',
        'echo allowed > "$VALIDATING_RESPONSE_PATH"',
        'test "$VALIDATING_RESPONSE_PATH" = "$ADMISSION_RESPONSE_PATH"',
        'echo converted > "$CONVERSION_RESPONSE_PATH"',
    )
    context = json.dumps([{"binding": "onStartup"}])
    answer, said = await run(executables, hook, context)
    assert answer.failure is None
    assert sorted(said) == [("stderr", "oh"), ("stdout", context)]
    assert answer.operations == '{"operation": "Create"}\n'
    assert (answer.metrics, answer.admission) == ("metric\n", "allowed\n")
    assert answer.conversion == "converted\n"
    assert answer.ended is not None
    assert answer.ended.most_memory > 100_000
    assert list(executables.folder.iterdir()) == []


async def test_files_of_a_run_are_private(executables: Executables, tmp_path: Path) -> None:
    hook = script(tmp_path, 'touch "$TMPDIR/own"', "exit 1")
    await replace(executables, keep_files=True).run(hook, "[]", Said())
    (folder,) = executables.folder.iterdir()
    modes = {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert (stat.S_IMODE(folder.stat().st_mode), modes) == (0o700, {0o600})
    clear(executables.folder)
    assert list(executables.folder.iterdir()) == []


async def test_the_environment_of_a_hook_has_no_variables_of_the_program(
    executables: Executables, tmp_path: Path
) -> None:
    answer, said = await run(executables, script(tmp_path, "env; umask; pwd; ulimit -c"))
    assert answer.failure is None
    shown = [line for _, line in said]
    names = {line.partition("=")[0] for line in shown if "=" in line}
    assert "TOKEN" not in names
    assert {"PATH", "BINDING_CONTEXT_PATH", "TMPDIR"} <= names
    assert shown[-3:] == ["0077", str(tmp_path / "hooks/some"), "0"]


def test_the_environment_has_cluster_and_listed_variables_only() -> None:
    given = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "RETROFIT_X": "1", "HTTPS_PROXY": "p", "A": ""}
    assert clean_environment(given, ["HTTPS_PROXY", "B"]) == {
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "HTTPS_PROXY": "p",
    }


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("echo one >&2", "echo no such secret >&2", "exit 3"), "exit 3: no such secret"),
        (("exit 4",), "exit 4"),
        (("echo bye >&2", "kill -KILL $$"), "ended by SIGKILL: bye"),
        (('rm "$KUBERNETES_PATCH_PATH"',), "$KUBERNETES_PATCH_PATH cannot be read: No such file"),
        (
            ('rm "$METRICS_PATH"; mkfifo "$METRICS_PATH"',),
            "$METRICS_PATH is no longer a regular file: do not replace it",
        ),
        (
            ('ln -sf /etc/passwd "$KUBERNETES_PATCH_PATH"',),
            "$KUBERNETES_PATCH_PATH cannot be read: Too many levels",
        ),
        (
            ('head -c 9000000 /dev/zero > "$KUBERNETES_PATCH_PATH"',),
            "$KUBERNETES_PATCH_PATH is larger than 8 MiB: write less in one run",
        ),
        (
            ('printf "a\\377" > "$KUBERNETES_PATCH_PATH"',),
            "$KUBERNETES_PATCH_PATH is not UTF-8 text: see byte 1",
        ),
    ],
)
async def test_a_failed_run_reports_its_reason_in_one_line(
    executables: Executables, tmp_path: Path, lines: tuple[str, ...], said: str
) -> None:
    answer, _ = await run(executables, script(tmp_path, *lines))
    assert str(answer.failure).startswith(said)
    assert len(str(answer.failure).splitlines()) == 1


async def test_a_failed_run_still_returns_its_operations(
    executables: Executables, tmp_path: Path
) -> None:
    hook = script(tmp_path, 'echo patch > "$KUBERNETES_PATCH_PATH"', "exit 1")
    answer, _ = await run(executables, hook)
    assert (str(answer.failure), answer.operations) == ("exit 1", "patch\n")


async def test_a_hook_that_exceeds_its_time_limit_is_ended(
    executables: Executables, tmp_path: Path
) -> None:
    hook = script(tmp_path, "trap '' TERM", "while :; do sleep 0.05; done")
    answer, _ = await run(executables, hook, seconds=0.2)
    assert str(answer.failure) == "took longer than 0.2 s and was ended"


async def test_processes_left_behind_by_a_hook_are_ended(
    executables: Executables, tmp_path: Path
) -> None:
    hook = script(tmp_path, "sleep 1000 & echo $!", "sleep 1000 > /dev/null 2>&1 & echo $!")
    answer, said = await run(executables, hook)
    assert answer.failure is None
    assert answer.ended is not None
    assert answer.ended.left_behind
    await until(lambda: not any(is_running(int(pid)) for _, pid in said))


async def test_a_hook_that_is_ended_at_its_time_limit_has_left_nothing_behind(
    executables: Executables, tmp_path: Path
) -> None:
    child = "(trap '' TERM; while :; do sleep 0.05; done) > /dev/null 2>&1 &"
    answer, _ = await run(executables, script(tmp_path, child, "wait"), seconds=0.2)
    assert answer.ended is not None
    assert (answer.ended.late, answer.ended.left_behind) == (True, False)


async def test_a_process_that_leaves_the_group_does_not_delay_the_run(
    executables: Executables, tmp_path: Path
) -> None:
    answer, said = await run(executables, script(tmp_path, "setsid sleep 1000 & echo $!"))
    assert answer.failure is None
    ((_, pid),) = said
    os.kill(int(pid), signal.SIGKILL)


async def test_cancelling_a_run_ends_its_process(executables: Executables, tmp_path: Path) -> None:
    hook = script(tmp_path, "echo $$", "trap 'echo asked; exit' TERM", "sleep 1000 & wait")
    said = Said()
    task = asyncio.ensure_future(executables.run(hook, "[]", said))
    await until(lambda: said.lines != [])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_running(int(said.lines[0][1]))
    assert list(executables.folder.iterdir()) == []


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in {"Z", "X"}


async def test_ten_megabytes_of_output_are_cut(executables: Executables, tmp_path: Path) -> None:
    lines = ("head -c 10000000 /dev/zero", "echo", "seq 1500000")
    answer, said = await run(executables, script(tmp_path, *lines))
    assert answer.failure is None
    assert all(len(line) <= 16 * 1024 + 10 for _, line in said)
    assert len(said) + answer.left_out == 1_500_001
    assert answer.left_out > 1_000_000


async def test_memory_and_file_size_of_a_process_are_limited(
    executables: Executables, tmp_path: Path
) -> None:
    limits = replace(executables.limits, memory=64 * MIB, file=MIB)
    limited = replace(executables, limits=limits)
    answer, _ = await run(limited, script(tmp_path, "exec head -c 2000000 /dev/zero > big"))
    assert str(answer.failure) == "wrote a file larger than 1 MiB and was ended"
    hungry = script(tmp_path, "x = 'x' * 10**9", shell="#!/usr/bin/env python3")
    answer, _ = await run(limited, hungry)
    assert answer.failure is not None
    assert answer.failure.exit_code is not None


async def test_the_configuration_is_read_from_standard_output(
    executables: Executables, tmp_path: Path
) -> None:
    hook = script(
        tmp_path,
        'test "$1" = --config || exit 9',
        f'test "$PWD" = "{tmp_path}/hooks" || exit 8',
        "echo starting >&2",
        "cat <<EOF",
        "configVersion: v1",
        "onStartup: 1",
        "EOF",
    )
    assert await executables.config(hook) == "configVersion: v1\nonStartup: 1\n"
    assert list(executables.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ((":",), "prints nothing: print the configuration, which begins with configVersion: v1"),
        (("head -c 2000000 /dev/zero",), "prints more than 1 MiB, not a configuration"),
        (("printf 'a\\377'",), "its output is not UTF-8 text"),
        (("printf 'a\\000'",), "its output is binary, not text"),
        (("echo jq: not found >&2", "exit 127"), "exit 127: jq: not found"),
    ],
)
async def test_an_invalid_configuration_output_is_reported(
    executables: Executables, tmp_path: Path, lines: tuple[str, ...], said: str
) -> None:
    with pytest.raises(InvalidPolicy) as error:
        await executables.config(script(tmp_path, *lines))
    assert (error.value.location, error.value.reason) == ("--config", said)


async def test_printing_the_configuration_has_a_time_limit(
    executables: Executables, tmp_path: Path
) -> None:
    limits = replace(executables.limits, config_seconds=0.2)
    with pytest.raises(InvalidPolicy, match=r"took longer than 0\.2 s and was ended"):
        await replace(executables, limits=limits).config(script(tmp_path, "sleep 1000"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"echo hello\n", "is not a program: its first line must name its interpreter"),
        (b"", "is not a program"),
        (b"#!/bin/sh\r\necho\r\n", "ends with a carriage return"),
        (b"#!/usr/bin/nope -x\n", "its interpreter '/usr/bin/nope' does not exist"),
        (b"#!\n", "its interpreter '' does not exist"),
    ],
)
async def test_a_file_that_cannot_be_started_is_reported_with_the_reason(
    executables: Executables, tmp_path: Path, content: bytes, said: str
) -> None:
    hook = script(tmp_path)
    hook.path.write_bytes(content)
    with pytest.raises(InvalidPolicy) as error:
        await executables.config(hook)
    assert said in error.value.reason
    answer, _ = await run(executables, hook)
    assert said in str(answer.failure)


async def test_a_process_is_ended_whose_name_is_cut_within_a_letter(
    executables: Executables, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    hook = script(tmp_path, "(while :; do sleep 1; done) >/dev/null 2>&1 &", f"echo $! > '{pid}'")
    path = hook.path.rename(hook.path.with_name("a-name-up-to-aö.sh"))
    answer, _ = await run(executables, replace(hook, path=path))
    assert answer.failure is None
    assert answer.ended is not None
    assert answer.ended.left_behind
    await until(lambda: not _is_running(int(pid.read_text())))


def _is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[0] not in {b"Z", b"X"}


async def test_a_signal_without_a_name_is_reported_by_its_number(
    executables: Executables, tmp_path: Path
) -> None:
    answer, _ = await run(executables, script(tmp_path, "kill -40 $$"))
    assert str(answer.failure) == "ended by signal 40"


async def test_a_process_that_cannot_be_started_leaves_no_file_open() -> None:
    files = Path("/proc/self/fd")
    before = len(list(files.iterdir()))
    for _ in range(5):
        with pytest.raises(Interrupted, match="No such file"):
            HookProcess.start(["/nonexistent"], {}, print, print)
    assert len(list(files.iterdir())) == before
