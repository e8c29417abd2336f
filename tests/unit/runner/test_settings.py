"""The flags of `retrofit-hooks start`, and their documentation."""

import re
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from reconciler.errors import InvalidSetting
from reconciler.runner.command import main
from reconciler.runner.settings import RunnerSettings, build, runner_options, without_effect
from tests.architecture.conftest import ROOT

pytestmark = pytest.mark.usefixtures("kept_logs")

PAGE = (ROOT / "docs/reference/settings.md").read_text()
ROW = re.compile(r"^\| `--([a-z-]+)` \| `(\w+)` \| (?:`([^`]*)`)? *\|", re.MULTILINE)


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


def test_the_help_of_a_flag_says_what_the_page_says() -> None:
    section = PAGE.partition("\n## retrofit-hooks\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(--[a-z-]+)` .* \| ([^|]+) \|$", section, re.MULTILINE)
    page = {flag: re.sub(r"\[([^]]+)\]\([^)]*\)|`", r"\1", meaning) for flag, meaning in rows}
    for item in main.commands["start"].params:
        if isinstance(item, click.Option) and not item.hidden:
            # The page may say more.
            for clause in re.split(r"[;.](?: |$)", item.help or ""):
                assert clause in page[item.opts[0]], item.opts[0]


def _default(item: click.Option) -> str:
    return "" if item.is_flag or item.multiple else str(item.default)


def test_flags_and_variables_have_the_names_of_the_original() -> None:
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
def test_an_invalid_setting_is_refused_with_the_reason(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(InvalidSetting, match=said):
        settings(*words)


def test_settings_without_effect_are_reported() -> None:
    values = parsed("--kube-client-qps", "20", JQ_LIBRARY_PATH="/lib")
    assert list(without_effect(values, {"JQ_EXEC": "yes"})) == [
        "--kube-client-qps has no effect: this limit does not exist: calls are not slowed down",
        "--jq-library-path has no effect: jq programs of bindings read no libraries",
        "JQ_EXEC has no effect: jq programs are evaluated by libjq",
    ]


def test_an_unusable_folder_ends_the_program_with_one_line(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["start", "--tmp-dir", "/dev/null/none", "--listen-port", "0"])
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: temporary files cannot be kept in /dev/null/none")


def test_the_times_of_the_lease_must_be_in_order() -> None:
    lease = settings("--lease-duration=5s", "--lease-renew=4s", RETROFIT_LEASE_RETRY="1s").lease
    assert (lease.duration, lease.renew, lease.retry) == (5.0, 4.0, 1.0)
    with pytest.raises(InvalidSetting, match="--lease-retry must be shorter than --lease-renew"):
        settings("--lease-renew=15s")
    with pytest.raises(InvalidSetting, match="none of them may be 0"):
        settings("--lease-retry=0")


def test_certificate_files_are_used_if_they_are_named(tmp_path: Path) -> None:
    assert not settings().admission.has_files
    assert settings("--validating-webhook-ca=/other/ca.crt").admission.has_files
    found = settings(CONVERSION_WEBHOOK_SERVER_CERT=str(tmp_path))
    assert found.conversion.has_files
    assert not found.admission.has_files


def test_the_two_servers_have_separate_flags() -> None:
    found = settings(
        "--conversion-webhook-client-ca=/a",
        "--conversion-webhook-client-ca=/b",
        VALIDATING_WEBHOOK_CLIENT_CA="/c /d",
        VALIDATING_WEBHOOK_SERVICE_NAME="svc",
    )
    assert found.conversion.client_ca == (Path("/a"), Path("/b"))
    assert found.admission.client_ca == (Path("/c"), Path("/d"))
    assert (found.admission.service, found.admission.port) == ("svc", 9680)
    assert (found.conversion.service, found.conversion.port) == (
        "shell-operator-conversion-svc",
        9681,
    )
    assert found.hook_parallel > 0


@pytest.mark.parametrize(
    "flag", ["--validating-webhook-url=http://a", "--conversion-webhook-url=a:1"]
)
def test_a_webhook_url_must_use_https(flag: str) -> None:
    with pytest.raises(InvalidSetting, match=r"webhook-url .*: write it as https://host:port"):
        settings(flag)
