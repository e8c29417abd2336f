"""Rules for every command: exit codes, colours, width, and no output of libraries."""

import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from reconciler.cli.main import retrofit
from tests.architecture.conftest import ROOT
from tests.unit.cli.nowhere import KUBECONFIG

EXAMPLES = ROOT / "docs/examples"
PROGRAM = Path(sys.executable).with_name("retrofit")
ESCAPE = "\x1b["


def commands(group: click.Group, *words: str) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, *words, name)
        elif command is not None:
            yield (*words, name)


ALL = [words for words in commands(retrofit) if words[0] != "dev"]
"""Commands of `retrofit dev` are excluded: they start processes, and have their own tests."""


def run(*words: str) -> Result:
    done = CliRunner().invoke(retrofit, list(words))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)


NO_CODES = {("completion",), ("jp", "parse"), ("jp", "function"), ("jp", "query")}


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_the_help_explains_the_exit_codes(words: tuple[str, ...]) -> None:
    # The exit codes of the commands of `jp` are in the help of the group.
    shown = run(*(words[:1] if words in NO_CODES else words), "--help").stdout
    if words != ("completion",):
        assert "Exit code:\n" in shown
        assert re.search(r"^ +2 ", shown, re.MULTILINE)


GROUPS = [(), *sorted({words[:-1] for words in commands(retrofit) if len(words) > 1})]


@pytest.mark.parametrize("words", [*commands(retrofit), *GROUPS], ids=" ".join)
def test_the_help_fits_eighty_columns(words: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(retrofit, [*words, "--help"], terminal_width=80).stdout
    # The path in which bash looks for completions is long.
    lines = [line for line in shown.splitlines() if "/bash-completion/" not in line]
    assert [line for line in lines if len(line) > 80] == []


@pytest.mark.parametrize("words", GROUPS, ids=" ".join)
def test_no_summary_of_a_command_is_cut(words: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(retrofit, [*words, "--help"], terminal_width=80).stdout
    _, _, summaries = shown.partition("Commands:\n")
    assert [line for line in summaries.splitlines() if line.endswith("...")] == []


POLICY, TRIGGER, TARGETS = "reload-web.yaml", "configmap.yaml", "deployments.yaml"
MISSING = [
    ["apply", "absent.yaml", "-r", TRIGGER],
    ["apply", POLICY, "-r", "absent.yaml"],
    ["apply", POLICY, "-r", TRIGGER, "-t", "absent.yaml"],
    ["apply", POLICY, "-r", TRIGGER, "-f", "absent.yaml"],
    ["apply", POLICY, "-r", TRIGGER, "-u", "absent.yaml"],
    ["apply", POLICY, "-r", TRIGGER, "--exception", "absent.yaml"],
    ["apply", POLICY, "-r", TRIGGER, "--context-file", "absent.yaml"],
    ["explain", "absent.yaml"],
    ["explain", POLICY, "--trigger", "absent.yaml"],
    ["explain", POLICY, "--trigger", TRIGGER, "--target", "absent.yaml"],
    ["explain", POLICY, "--trigger", TRIGGER, "--old", "absent.yaml"],
    ["explain", POLICY, "--trigger", TRIGGER, "--userinfo", "absent.yaml"],
    ["preview", "absent.yaml"],
    ["preview", POLICY, "--baseline", "absent.yaml"],
    ["preview", POLICY, "--userinfo", "absent.yaml"],
    ["lint", "absent.yaml"],
    ["test", "absent"],
    ["jp", "query", "-i", "absent.yaml", "a"],
]


@pytest.mark.parametrize("words", MISSING, ids=" ".join)
def test_a_missing_file_is_reported_alike_by_all_commands(words: list[str]) -> None:
    done = run(*words)
    (name,) = [word for word in words if word.startswith("absent")]
    assert (done.exit_code, done.stdout) == (2, "")
    kind = "folder" if words[0] == "test" else "file"
    assert done.stderr.splitlines()[0] == f"Error: {name}: there is no such {kind}"


LIVE = [
    ["preview", POLICY],
    ["apply", POLICY, "--cluster"],
    ["explain", "reload-web", "--cluster"],
    ["run", "reload-web"],
    ["status"],
    ["retry", "reload-web"],
]


@pytest.mark.parametrize("words", LIVE, ids=" ".join)
def test_an_unreachable_cluster_is_reported_alike_by_all_commands(
    words: list[str], tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    done = run(*words, "--kubeconfig", str(kubeconfig))
    assert (done.exit_code, done.stdout) == (2, "")
    assert "127.0.0.1:1 does not answer (connection refused)" in done.stderr
    absent = run(*words, "--kubeconfig", "absent")
    assert (absent.exit_code, absent.stdout) == (2, "")
    assert "there is no kubeconfig absent" in absent.stderr


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_a_flag_that_does_not_exist_is_wrong_usage(words: tuple[str, ...]) -> None:
    assert run(*words, "--no-such-flag").exit_code == 2


SHOWN = [
    ["apply", POLICY, "-r", TRIGGER, "-t", TARGETS, "-v"],
    ["explain", POLICY, "--trigger", TRIGGER, "--target", TARGETS],
    ["test", "."],
]


def in_terminal(
    words: list[str], columns: int = 80, environment: Mapping[str, str] | None = None
) -> str:
    """Return the whole output of a command on a terminal."""
    ours, theirs = pty.openpty()
    kept = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    given = {**kept, "TERM": "xterm", "COLUMNS": str(columns), **(environment or {})}
    with subprocess.Popen(
        [PROGRAM, *words], stdin=theirs, stdout=theirs, stderr=theirs, env=given, cwd=EXAMPLES
    ) as program:
        os.close(theirs)
        shown = b""
        while select.select([ours], [], [], 60)[0]:
            try:
                part = os.read(ours, 65536)
            except OSError:
                break
            if not part:
                break
            shown += part
        program.wait(timeout=20)
    os.close(ours)
    return shown.decode().replace("\r\n", "\n")


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize("words", SHOWN, ids=" ".join)
def test_a_terminal_gets_colours_unless_no_color_is_set(words: list[str]) -> None:
    coloured = in_terminal(words)
    assert ESCAPE in coloured
    without = in_terminal(words, environment={"NO_COLOR": "1"})
    assert ESCAPE not in without
    assert plain(coloured) == without


@pytest.mark.parametrize("words", SHOWN, ids=" ".join)
def test_a_pipe_gets_the_same_text_without_colours(words: list[str]) -> None:
    piped = run(*words)
    said = piped.stdout + piped.stderr
    assert ESCAPE not in said
    wide = in_terminal(words, columns=400, environment={"NO_COLOR": "1"})
    assert sorted(wide.splitlines()) == sorted(said.splitlines())


@pytest.mark.parametrize("words", SHOWN, ids=" ".join)
def test_no_word_is_cut_on_a_terminal_of_eighty_columns(words: list[str]) -> None:
    lines = in_terminal(words, environment={"NO_COLOR": "1"}).splitlines()
    assert [line for line in lines if len(line) > 80] == []
    piped = run(*words)
    whole = (piped.stdout + piped.stderr).split()
    assert sorted(" ".join(lines).split()) == sorted(whole)


def test_apply_shows_a_coloured_diff_folded_to_the_terminal() -> None:
    words = ["apply", POLICY, "-r", TRIGGER, "-t", TARGETS]
    assert in_terminal(words, columns=60) == (
        "\x1b[1mreload-web / settings-changed: Deployment shop/web,\x1b[0m\n"
        "\x1b[1mtriggered by ConfigMap shop/web-settings\x1b[0m\n"
        "\x1b[1m--- Deployment shop/web\x1b[0m\n"
        "\x1b[1m+++ Deployment shop/web\x1b[0m\n"
        "\x1b[36m@@ -14,6 +14,8 @@\x1b[0m\n"
        "     metadata:\n"
        "       labels:\n"
        "         app: web\n"
        "\x1b[32m+      annotations:\x1b[0m\n"
        '\x1b[32m+        example.com/settings-seen: "4711"\x1b[0m\n'
        "     spec:\n"
        "       containers:\n"
        "       - name: web\n"
        "\n"
        "1 object read as trigger\n"
        "pass: 1, fail: 0, warn: 0, error: 0, skip: 0\n"
    )


def test_an_error_is_folded_on_a_terminal_and_one_line_elsewhere() -> None:
    words = ["explain", POLICY, "--trigger", TRIGGER, "--set", "requst.operation=UPDATE"]
    text = "Error: --set requst.operation=UPDATE: no rule reads requst; did you mean request?"
    assert run(*words).stderr == f"{text}\n"
    assert in_terminal(words, columns=50) == (
        "Error: --set requst.operation=UPDATE: no rule\nreads requst; did you mean request?\n"
    )
