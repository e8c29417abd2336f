"""The command line as a whole: help, version and errors."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from reconciler.cli.main import retrofit


@pytest.fixture
def runner() -> CliRunner:
    return CliRunner()


def test_help_lists_the_commands_without_loading_them(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "devcluster.commands", raising=False)
    done = runner.invoke(retrofit, ["--help"])
    assert done.exit_code == 0
    assert "  dev " in done.output
    assert "devcluster.commands" not in sys.modules


def test_the_help_imports_no_slow_modules() -> None:
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
def test_the_help_of_every_dev_command_shows_examples(runner: CliRunner, words: list[str]) -> None:
    done = runner.invoke(retrofit, [*words, "-h"])
    assert done.exit_code == 0
    assert "Examples:\n  " in done.output


def test_the_version_flag_prints_the_version(runner: CliRunner) -> None:
    assert runner.invoke(retrofit, ["--version"]).output.startswith("retrofit, version ")


def test_an_error_of_a_command_is_reported_in_one_line(
    runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETROFIT_CONTROL_PLANE", str(tmp_path / "absent"))
    done = runner.invoke(retrofit, ["dev", "control-plane"])
    assert done.exit_code == 2
    assert done.stderr == f"Error: RETROFIT_CONTROL_PLANE: {tmp_path}/absent does not exist\n"


def test_an_unknown_command_is_an_error(runner: CliRunner) -> None:
    assert runner.invoke(retrofit, ["absent"]).exit_code == 2


_INTERRUPTING = """
import importlib.metadata, os, signal, sys

class Interrupting:
    def find_spec(self, name, *_):
        if name == sys.argv[0]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
(program,) = importlib.metadata.entry_points(group="console_scripts", name="retrofit")
program.load()()
"""


@pytest.mark.parametrize("imported", ["click", "reconciler.cli.lint.command"])
def test_ctrl_c_while_modules_are_imported_ends_without_a_traceback(imported: str) -> None:
    script = _INTERRUPTING.replace("sys.argv[0]", repr(imported))
    done = subprocess.run(
        [sys.executable, "-c", script, "lint", "absent.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_second_ctrl_c_does_not_stop_what_removes_temporary_files() -> None:
    """The Kubernetes client removes those with credentials in a callback at the exit."""
    script = (
        "import atexit, os, signal; from reconciler.cli.entry import main;"
        " atexit.register(lambda: (os.kill(os.getpid(), signal.SIGINT), print('removed')));"
        " main()"
    )
    words = [sys.executable, "-c", script, "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout.endswith("\nremoved\n")
    assert (done.returncode, done.stderr) == (0, "")
