"""Completion in a real bash, hints for misspelt names, and `version` without a cluster."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from reconciler.cli.main import retrofit

# compopt only works during a completion, and bash completes only on a terminal.
_SCRIPT = """
compopt() { :; }
eval "$(retrofit completion bash)"
COMP_WORDS=(%s)
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_retrofit_completion retrofit
printf '%%s\\n' "${COMPREPLY[@]}"
"""


def _bash(line: str) -> list[str]:
    if not shutil.which("bash"):
        pytest.skip("no bash on this machine")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", _SCRIPT % line],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("retrofit comp", ["completion"]),
        ("retrofit dev do", ["down"]),
        ("retrofit lint --out", ["--output"]),
        ("retrofit lint -o s", ["sarif"]),
        ("retrofit completion z", ["zsh"]),
    ],
)
def test_bash_completes_commands_and_options(line: str, expected: list[str]) -> None:
    assert _bash(line) == expected


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_scripts_of_other_shells_call_the_same_program(shell: str) -> None:
    done = CliRunner().invoke(retrofit, ["completion", shell])
    assert done.exit_code == 0
    assert f"_RETROFIT_COMPLETE={shell}_complete" in done.stdout


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["aply"], "Did you mean 'apply'?"),
        (["dev", "upp"], "Did you mean 'up'?"),
        (["lint", "--stric", "x"], "Did you mean '--strict'?"),
    ],
)
def test_a_misspelt_name_gets_a_hint(words: list[str], hint: str) -> None:
    done = CliRunner().invoke(retrofit, words)
    assert done.exit_code == 2
    assert hint in done.stderr


def test_version_shows_the_version_of_the_client() -> None:
    done = CliRunner().invoke(retrofit, ["version", "--client", "-o", "json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["client"]["version"]


def test_the_client_version_is_shown_without_a_reachable_cluster(tmp_path: Path) -> None:
    done = CliRunner().invoke(retrofit, ["version", "--kubeconfig", str(tmp_path / "absent")])
    assert done.exit_code == 2
    assert done.stdout.startswith("retrofit ")
    assert "--client contacts no cluster" in done.stderr
