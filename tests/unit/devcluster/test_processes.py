"""The supervisor ends every process that it started, however it ends itself."""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from devcluster import state
from devcluster.lock import locked
from devcluster.state import Group, Process, State, mark_by_ps, process_mark
from devcluster.supervision import Supervision, last_lines
from devcluster.waiting import wait_until
from reconciler.errors import InvalidSetting, Unavailable

SLEEP = ("/bin/sleep", "60")
STUBBORN = ("/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done")


def gone(pid: int) -> bool:
    return not process_mark(pid)


def test_the_exit_code_of_a_program_is_reported(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Supervision(tmp_path / "supervisor.log") as supervision:
        supervision.start("a", ("/bin/sh", "-c", "echo said; exit 3"), log=log)
        assert supervision.wait_exit("a", 10.0) == 3
        supervision.start("b", SLEEP, log=log)
        assert supervision.exit_code("b") is None
        supervision.kill("b")
        assert supervision.wait_exit("b", 10.0) == -signal.SIGKILL
        assert not supervision.pids
    assert last_lines(log) == "  said"


def test_a_name_can_be_reused_after_its_program_ends(tmp_path: Path) -> None:
    with Supervision(tmp_path / "supervisor.log") as supervision:
        for _ in range(3):
            supervision.start("a", ("/bin/sh", "-c", "exit 7"), log=tmp_path / "log")
            assert supervision.wait_exit("a", 10.0) == 7


def test_a_missing_program_is_reported(tmp_path: Path) -> None:
    with (
        Supervision(tmp_path / "supervisor.log") as supervision,
        pytest.raises(Unavailable, match=r"a does not start: .*No such file"),
    ):
        supervision.start("a", ("/nonexistent/program",), log=tmp_path / "log")


def test_a_program_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Supervision(tmp_path / "supervisor.log") as supervision:
        pid = supervision.start("a", STUBBORN, log=log, grace=0.2)
        wait_until(lambda: "ready" in last_lines(log), within=10.0, what="it listens")
    assert gone(pid)


def test_children_of_a_program_end_with_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Supervision(tmp_path / "supervisor.log") as supervision:
        supervision.start("a", ("/bin/sh", "-c", "sleep 60 & echo $!; wait"), log=log)
        child = int(wait_until(log.read_text, within=10.0, what="the child runs"))
        supervision.kill("a", signal.SIGTERM)
        supervision.wait_exit("a", 10.0)
        wait_until(lambda: gone(child), within=10.0, what="the child is gone")


def test_a_detached_group_outlives_its_starter_until_it_is_stopped(tmp_path: Path) -> None:
    script = (
        "import pathlib, sys; from devcluster.supervision import Supervision\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "s = Supervision(folder / 'supervisor.log')\n"
        f"print(s.pid, s.start('a', {SLEEP!r}, log=folder / 'log'))\n"
        "s.own(folder / 'kept')\n"
        "s.detach()\n"
    )
    (tmp_path / "kept").mkdir()
    completed = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    supervisor, pid = (int(word) for word in completed.stdout.split())
    group = Group(supervisor=Process.of("supervisor", supervisor), members=(Process.of("a", pid),))
    assert group.complete()
    group.stop(10.0)
    assert gone(pid)
    assert gone(supervisor)
    assert not group.complete()
    assert (tmp_path / "kept").is_dir()


def test_a_group_without_its_supervisor_is_still_killed(tmp_path: Path) -> None:
    with Supervision(tmp_path / "supervisor.log") as supervision:
        pid = supervision.start("a", SLEEP, log=tmp_path / "log")
        group = Group(
            supervisor=Process.of("supervisor", supervision.pid),
            members=(Process.of("a", pid),),
        )
        os.kill(supervision.pid, signal.SIGKILL)
        group.stop(10.0)
        assert gone(pid)


def test_another_process_under_the_same_id_is_skipped() -> None:
    me = Process(name="a", pid=os.getpid(), mark="started at another time")
    assert not me.running()
    Group(supervisor=me, members=(me,)).stop(1.0)


@pytest.mark.skipif(shutil.which("ps") is None, reason="no ps on this machine")
def test_without_proc_a_process_is_known_by_the_time_that_ps_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # macOS takes all that follows the first "=" for the title of one column.
    ps = tmp_path / "ps"
    lines = ("#!/bin/sh", 'case "$*" in *=,*) echo ",lstart="; echo S; exit ;; esac')
    ps.write_text("\n".join([*lines, f'exec {shutil.which("ps")} "$@"\n']))
    ps.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with subprocess.Popen(SLEEP) as process:
        mark = mark_by_ps(process.pid)
        assert re.search(r"\d\d:\d\d:\d\d", mark)
        # A later command may run in another shell.
        monkeypatch.setenv("TZ", "Asia/Kathmandu")
        monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
        assert mark_by_ps(process.pid) == mark
        process.kill()
        wait_until(lambda: not mark_by_ps(process.pid), within=10.0, what="it has ended")
    assert not mark_by_ps(process.pid)


def test_a_group_whose_processes_have_just_ended_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as they are not reaped, macOS answers EPERM, and Linux with success."""

    def killpg(group: int, number: int) -> NoReturn:
        os.kill(group, number)
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "killpg", killpg)
    with Supervision(tmp_path / "supervisor.log") as supervision:
        supervision.start("a", SLEEP, log=tmp_path / "log")
        supervision.kill("a")
        assert supervision.wait_exit("a", 10.0) == -signal.SIGKILL
        pid = supervision.start("a", SLEEP, log=tmp_path / "log")
        os.kill(supervision.pid, signal.SIGKILL)
        Group(
            supervisor=Process.of("supervisor", supervision.pid),
            members=(Process.of("a", pid),),
        ).stop(10.0)
        assert gone(pid)


def test_a_state_is_read_back_as_written(tmp_path: Path) -> None:
    process = Process(name="a", pid=1, mark="m", health="http://127.0.0.1:1/readyz")
    group = Group(supervisor=process, members=(process, process))
    for programs in (group, None):
        written = State(
            kubeconfig="k",
            server="s",
            cluster=group,
            programs=programs,
            overlay="default",
            audit_log=True,
        )
        state.save(tmp_path, written)
        assert state.load(tmp_path) == written
    state.forget(tmp_path)
    assert state.load(tmp_path) is None


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"kubeconfig": "", "server": "", "cluster": 1}']
)
def test_an_invalid_state_file_is_reported(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(InvalidSetting, match=r"state\.json is not a state"):
        state.load(tmp_path)


def test_a_folder_is_locked_by_one_process_at_a_time(tmp_path: Path) -> None:
    with (
        locked(tmp_path / "lock", wait=False),
        pytest.raises(InvalidSetting, match="another process is at work"),
        locked(tmp_path / "lock", wait=False),
    ):
        pass
    with locked(tmp_path / "lock", wait=False):
        pass
