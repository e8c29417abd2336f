"""What `retrofit-hooks start` takes, and what the documents say of it."""

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import structlog
from click.testing import CliRunner

from reconciler.errors import InvalidSetting
from reconciler.runner.command import main
from reconciler.runner.settings import RunnerSettings, build, runner_options, without_effect
from tests.architecture.conftest import ROOT

PAGE = (ROOT / "docs/reference/settings.md").read_text()
ROW = re.compile(r"^\| `--([a-z-]+)` \| `(\w+)` \| (?:`([^`]*)`)? *\|", re.MULTILINE)


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    logging.root.handlers[:], logging.root.level = handlers, level
    structlog.reset_defaults()


def parsed(*words: str, **environment: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    @click.command()
    @runner_options
    def command(**values: Any) -> None:
        found.update(values)

    done = CliRunner().invoke(command, list(words), env=environment)
    assert done.exit_code == 0, done.output
    return found


def settings(*words: str, **environment: str) -> RunnerSettings:
    return build(parsed(*words, **environment))


def test_every_flag_is_documented_with_variable_and_default() -> None:
    section = PAGE.partition("\n## retrofit-hooks\n")[2].partition("\n## ")[0]
    start = main.commands["start"]
    options = [item for item in start.params if isinstance(item, click.Option)]
    shown = {
        (item.opts[0].removeprefix("--"), str(item.envvar), _default(item))
        for item in options
        if not item.hidden
    }
    assert set(ROW.findall(section)) == shown
    for item in options:
        assert not item.hidden or f"`{item.opts[0]}`" in section


def _default(item: click.Option) -> str:
    return "" if item.is_flag or item.multiple else str(item.default)


def test_names_are_those_of_the_original() -> None:
    made = settings(
        "--log-no-time",
        "--hook-env",
        "HTTPS_PROXY",
        SHELL_OPERATOR_HOOKS_DIR="/elsewhere",
        SHELL_OPERATOR_LISTEN_PORT="9000",
        DEBUG_KEEP_TMP_FILES="yes",
        RETROFIT_HOOK_TIMEOUT="1m30s",
    )
    assert (made.hooks_dir, made.listen_port) == (Path("/elsewhere"), 9000)
    assert (made.keep_files, made.log_time, made.hook_timeout) == (True, False, 90.0)
    assert made.hook_env == ("HTTPS_PROXY",)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--hook-memory", "-1"), "--hook-memory must not be negative"),
        (("--tmp-dir", "/hooks"), "--tmp-dir must not be --hooks-dir"),
    ],
)
def test_what_cannot_be_is_said(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(InvalidSetting, match=said):
        settings(*words)


def test_what_has_no_effect_is_said() -> None:
    values = parsed("--kube-client-qps", "20", JQ_LIBRARY_PATH="/lib")
    assert list(without_effect(values, {"JQ_EXEC": "yes"})) == [
        "--kube-client-qps has no effect: there is no such limit: calls are not slowed down",
        "--jq-library-path has no effect: jq programs of bindings read no libraries",
        "JQ_EXEC has no effect: jq programs are evaluated by libjq",
    ]


def test_a_folder_that_is_not_there_ends_it_in_one_line(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["start", "--tmp-dir", "/proc/none", "--listen-port", "0"])
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: temporary files cannot be kept in /proc/none")
