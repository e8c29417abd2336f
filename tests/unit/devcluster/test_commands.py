"""`retrofit dev`: messages where nothing runs, the names of logs, and progress while waiting."""

import contextlib
import io
import os
import pty
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import pytest
from click.testing import CliRunner
from typing_extensions import override

from devcluster import state
from devcluster.follow import log_files, print_last
from devcluster.progress import Progress, console_of
from devcluster.waiting import wait_until
from reconciler.cli.main import retrofit
from reconciler.cli.output.terminal import visible_streams
from reconciler.clock import SystemClock
from reconciler.errors import Unavailable


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["status"], 1),
        (["down"], 0),
        (["logs"], 2),
        (["logs", "-f"], 2),
        (["logs", "etcd"], 2),
        (["logs", ""], 2),
    ],
)
def test_commands_report_a_folder_where_nothing_runs(
    tmp_path: Path, words: list[str], code: int
) -> None:
    done = CliRunner().invoke(retrofit, ["dev", *words, "--dir", str(tmp_path / "absent")])
    assert done.exit_code == code
    assert "Nothing runs in" in done.stderr or "there are: none" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "absent").exists()


def test_a_negative_number_of_lines_is_refused() -> None:
    done = CliRunner().invoke(retrofit, ["dev", "logs", "-n", "-5"])
    assert done.exit_code == 2
    assert "-5 is not in the range" in done.stderr


@contextlib.contextmanager
def _terminal() -> Iterator[tuple[TextIO, int]]:
    """Yield a terminal that is standard output and standard error of a command, and its reader."""
    near, far = pty.openpty()
    with (
        os.fdopen(near, "rb", 0),
        os.fdopen(far, "w") as stream,
        contextlib.redirect_stdout(stream),
        contextlib.redirect_stderr(stream),
    ):
        yield stream, near


def _closed(stream: TextIO, near: int) -> str:
    """Close a terminal, and return all that was written to it."""
    stream.close()
    shown = b""
    # Reading a closed terminal ends with an error, not with an end of file.
    with contextlib.suppress(OSError):
        while part := os.read(near, 65536):
            shown += part
    return shown.decode()


def test_on_a_terminal_colours_are_colours_and_not_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with _terminal() as (stream, near), visible_streams():
        console_of(sys.stderr).print("[bold]scene[/bold]")
        console_of(sys.stdout).print("[bold]act[/bold]")
        with Progress() as progress:
            progress.update("building")
        shown = _closed(stream, near)
    assert shown.startswith("\x1b[1mscene\x1b[0m\r\n\x1b[1mact\x1b[0m\r\n")
    assert "building" in shown
    assert "\\x1b" not in shown


def test_a_program_that_has_ended_is_reported_with_the_remedy(tmp_path: Path) -> None:
    part = state.Process(name="retrofit-controller", pid=os.getpid(), mark="before")
    group = state.Group(supervisor=part, members=(part,))
    state.save(tmp_path, state.State(kubeconfig="k", server="s", cluster=group, programs=None))
    with _terminal() as (stream, near):
        with contextlib.suppress(SystemExit):
            retrofit(["dev", "status", "--dir", str(tmp_path)])
        shown = _closed(stream, near)
    assert "x1b" not in shown
    assert f"retrofit-controller  {os.getpid()}" in shown
    assert f"retrofit dev up --dir {tmp_path}" in shown


def test_the_status_names_the_folder_of_the_logs_in_full(tmp_path: Path) -> None:
    folder = tmp_path / "a-folder-with-a-name-as-long-as-those-that-temporary-folders-have"
    folder.mkdir()
    part = state.Process.of("kube-controller-manager", os.getpid())
    group = state.Group(supervisor=part, members=(part,))
    running = state.State(kubeconfig="k", server="s", cluster=group, programs=None)
    state.save(folder, running)
    done = CliRunner().invoke(retrofit, ["dev", "status", "--dir", str(folder)])
    assert done.exit_code == 0
    assert str(folder / "logs") in done.stdout
    assert "…" not in done.stdout


@pytest.fixture
def running(tmp_path: Path) -> state.State:
    """A cluster that was started with the overlay default, and without an audit log."""
    part = state.Process.of("kube-apiserver", os.getpid())
    group = state.Group(supervisor=part, members=(part,))
    found = state.State(
        kubeconfig="k", server="s", cluster=group, programs=group, overlay="default"
    )
    state.save(tmp_path, found)
    return found


def test_the_status_shows_what_the_cluster_was_started_with(
    tmp_path: Path, running: state.State
) -> None:
    words = ["dev", "status", "--dir", str(tmp_path)]
    assert "overlay     default\n" in CliRunner().invoke(retrofit, words).stdout
    state.save(tmp_path, replace(running, overlay="", programs=None, audit_log=True))
    shown = CliRunner().invoke(retrofit, words).stdout
    assert "overlay     none" in shown
    assert f"audit log   {tmp_path}/audit.log\n" in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--overlay", "conformance"], "runs with the overlay default, not conformance: "),
        (["--audit-log"], "runs without an audit log: "),
    ],
)
def test_up_refuses_options_that_a_running_cluster_does_not_have(
    tmp_path: Path, running: state.State, words: list[str], said: str
) -> None:
    done = CliRunner().invoke(retrofit, ["dev", "up", "--dir", str(tmp_path), *words])
    assert done.exit_code == 2
    assert said in done.stderr
    assert f"end it with `retrofit dev down --dir {tmp_path}`" in done.stderr
    assert state.load(tmp_path) == running


def test_lines_of_several_logs_are_prefixed_with_their_program(tmp_path: Path) -> None:
    (tmp_path / "etcd.log").write_text("one\ntwo\n")
    (tmp_path / "kube-apiserver.log").write_text("three\n")
    said: list[str] = []
    files = log_files(tmp_path)
    assert print_last(files, 1, said.append) == {"etcd": 8, "kube-apiserver": 6}
    assert said == ["etcd           | two", "kube-apiserver | three"]
    said.clear()
    print_last({"etcd": files["etcd"]}, 5, said.append)
    assert said == ["one", "two"]


class _Time(SystemClock):
    def __init__(self) -> None:
        self.seconds = 0.0

    @override
    def monotonic(self) -> float:
        return self.seconds


def test_progress_without_a_terminal_is_printed_at_intervals() -> None:
    clock, out = _Time(), io.StringIO()
    with Progress(stream=out, clock=clock) as progress:
        for second in range(41):
            clock.seconds = second
            progress.update(f"step {second}")
    assert out.getvalue() == "  0:15  step 15\n  0:30  step 30\n"


def test_a_wait_that_times_out_reports_what_it_waited_for() -> None:
    with pytest.raises(Unavailable, match="waited 0 s in vain until the sun rises"):
        wait_until(lambda: False, within=0.0, what="the sun rises")
    assert wait_until(lambda: "light", within=0.0, what="the sun rises") == "light"
