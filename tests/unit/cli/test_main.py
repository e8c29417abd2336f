"""The program at the desk: its face, its errors."""

import io
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from typing_extensions import override

from reconciler.cli.dev.follow import log_files, print_last
from reconciler.cli.dev.progress import Progress
from reconciler.cli.dev.waiting import wait_until
from reconciler.cli.main import retrofit
from reconciler.clock import SystemClock
from reconciler.errors import Unavailable


@pytest.fixture
def runner() -> CliRunner:
    return CliRunner()


def test_help_lists_the_commands_without_loading_them(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "reconciler.cli.dev.commands", raising=False)
    done = runner.invoke(retrofit, ["--help"])
    assert done.exit_code == 0
    assert "  dev " in done.output
    assert "reconciler.cli.dev.commands" not in sys.modules


def test_the_help_loads_nothing_that_takes_long() -> None:
    script = (
        "import sys\nfrom reconciler.cli.main import retrofit\n"
        "retrofit(['--help'], standalone_mode=False)\n"
        "heavy = {'rich', 'yaml', 'orjson', 'aiohttp', 'jsonschema', 'kubernetes', 'asyncio'}\n"
        "print(*(heavy & sys.modules.keys()), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stderr.split() == []


@pytest.mark.parametrize(
    "words", [["dev"], *(["dev", name] for name in ("up", "down", "status", "logs"))]
)
def test_every_help_shows_examples(runner: CliRunner, words: list[str]) -> None:
    done = runner.invoke(retrofit, [*words, "-h"])
    assert done.exit_code == 0
    assert "Examples:\n  " in done.output


def test_the_version(runner: CliRunner) -> None:
    assert runner.invoke(retrofit, ["--version"]).output.startswith("retrofit, version ")


def test_an_error_of_ours_is_one_line(
    runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETROFIT_CONTROL_PLANE", str(tmp_path / "absent"))
    done = runner.invoke(retrofit, ["dev", "control-plane"])
    assert done.exit_code == 2
    assert done.stderr == f"Error: RETROFIT_CONTROL_PLANE: {tmp_path}/absent does not exist\n"


def test_an_unknown_command_is_an_error(runner: CliRunner) -> None:
    assert runner.invoke(retrofit, ["absent"]).exit_code == 2


@pytest.mark.parametrize(
    ("words", "code"), [(["status"], 1), (["down"], 0), (["logs", "etcd"], 2)]
)
def test_a_folder_where_nothing_runs(
    runner: CliRunner, tmp_path: Path, words: list[str], code: int
) -> None:
    done = runner.invoke(retrofit, ["dev", *words, "--dir", str(tmp_path / "absent")])
    assert done.exit_code == code
    assert "Nothing runs in" in done.stderr or "there are: none" in done.stderr
    assert not (tmp_path / "absent").exists()


def test_logs_name_their_part_when_there_are_several(tmp_path: Path) -> None:
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


def test_progress_without_a_terminal_is_a_line_now_and_then() -> None:
    clock, out = _Time(), io.StringIO()
    with Progress(stream=out, clock=clock) as progress:
        for second in range(41):
            clock.seconds = second
            progress.update(f"step {second}")
    assert out.getvalue() == "  0:15  step 15\n  0:30  step 30\n"


def test_waiting_ends_with_the_reason() -> None:
    with pytest.raises(Unavailable, match="waited 0 s in vain until the sun rises"):
        wait_until(lambda: False, within=0.0, what="the sun rises")
    assert wait_until(lambda: "light", within=0.0, what="the sun rises") == "light"
