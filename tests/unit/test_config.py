import dataclasses
import os

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from reconciler.config import (
    AdmissionSettings,
    ControllerSettings,
    build,
    options,
    parse_duration,
    render_duration,
)
from reconciler.errors import InvalidSetting


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("0s", 0),
        ("500ms", 0.5),
        ("30s", 30),
        ("10m", 600),
        ("24h", 86400),
        ("7d", 604800),
        ("1h30m", 5400),
        ("1m30s500ms", 90.5),
        ("1.5h", 5400),
    ],
)
def test_a_duration_is_parsed(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "5", "-5s", "5 s", " 5s", "5x", "s", "1h30", "1e3s", "five", "5S", "--"]
)
def test_an_invalid_duration_is_refused_with_examples_of_valid_ones(text):
    with pytest.raises(InvalidSetting, match="write it as 500ms, 30s, 10m, 24h or 1h30m") as found:
        parse_duration(text)
    assert repr(text) in str(found.value)


@given(st.integers(0, 10**9))
def test_a_duration_in_whole_milliseconds_survives_rendering_and_parsing(milliseconds):
    seconds = milliseconds / 1000
    assert parse_duration(render_duration(seconds)) == pytest.approx(seconds, abs=1e-6)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0"), (0.5, "500ms"), (1.5, "1s500ms"), (90, "1m30s"), (86400, "1d"), (5400.0, "1h30m")],
)
def test_a_duration_is_rendered_in_its_shortest_form(seconds, text):
    assert render_duration(seconds) == text


def run(settings, *arguments, **environment):
    """Run a command that only builds its settings; return them, or its output on an error."""
    made = []

    @click.command()
    @options(settings)
    def program(**values):
        try:
            made.append(build(settings, values, os.environ))
        except InvalidSetting as error:
            raise click.UsageError(str(error)) from error

    result = CliRunner().invoke(program, arguments, env=environment)
    return made[0] if made else result.output


@pytest.mark.parametrize("settings", [AdmissionSettings, ControllerSettings])
def test_without_flags_the_defaults_apply(settings):
    assert run(settings) == settings()


def test_flags_and_environment_variables_are_named_after_the_fields():
    built = run(
        ControllerSettings,
        "--retain-completed",
        "1h",
        RETROFIT_LANES="7",
        RETROFIT_LEASE_DURATION="1m",
        RETROFIT_LOG_FORMAT="console",
    )
    assert (built.retain_completed, built.lanes) == (3600.0, 7)
    assert (built.lease_duration, built.log_format) == (60.0, "console")


def test_a_flag_overrides_the_environment_variable():
    assert run(ControllerSettings, "--lanes", "3", RETROFIT_LANES="7").lanes == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--backoff-base", "soon"), "'soon' is not a duration"),
        (("--lanes", "many"), "'many' is not a valid integer"),
        (("--log-level", "loud"), "'loud' is not one of"),
        (("--nonsense", "1"), "No such option"),
    ],
)
def test_an_invalid_value_of_a_flag_is_named_in_the_error(arguments, said):
    assert said in run(ControllerSettings, *arguments)


def test_an_invalid_value_of_an_environment_variable_is_named_in_the_error():
    said = run(ControllerSettings, RETROFIT_RESYNC="soon")
    assert "'soon' is not a duration" in said


@pytest.mark.parametrize(
    "values",
    [
        {"lease_renew": 15.0},
        {"lease_renew": 20.0},
        {"lease_retry": 10.0},
        {"lease_duration": 2.0},
        {"lease_retry": 0.0},
    ],
)
def test_lease_retry_must_be_shorter_than_renew_and_renew_than_duration(values):
    with pytest.raises(InvalidSetting, match="--lease-retry must be shorter than --lease-renew"):
        build(ControllerSettings, values)


@pytest.mark.parametrize("settings", [AdmissionSettings, ControllerSettings])
def test_the_waiting_limit_may_be_zero_but_the_hard_limit_may_not(settings):
    assert build(settings, {"waiting_limit": 0}).waiting_limit == 0
    with pytest.raises(InvalidSetting, match="--waiting-limit must be at least 0"):
        build(settings, {"waiting_limit": -1})
    with pytest.raises(InvalidSetting, match="--hard-limit must be at least 1"):
        build(settings, {"hard_limit": 0})


@pytest.mark.parametrize("field", ["lanes", "list_page", "conflict_retries"])
@pytest.mark.parametrize("value", [0, -1])
def test_settings_that_must_be_positive_refuse_zero_and_negative_values(field, value):
    flag = "--" + field.replace("_", "-")
    with pytest.raises(InvalidSetting, match=f"{flag} must be at least 1"):
        build(ControllerSettings, {field: value})


@pytest.mark.parametrize(
    ("settings", "field", "wrong", "least"),
    [
        (ControllerSettings, "resync", 0.5, "1s"),
        (ControllerSettings, "backoff_base", 0.0, "100ms"),
        (ControllerSettings, "backoff_ceiling", 0.0, "100ms"),
        (ControllerSettings, "retain_per_policy", -1, "0"),
        (ControllerSettings, "max_snapshots", -1, "0"),
        (ControllerSettings, "max_entry", 0, "1"),
        (AdmissionSettings, "max_reads", -1, "0"),
        (AdmissionSettings, "max_recorded", 0, "1"),
        (AdmissionSettings, "body_timeout", 0.0, "1s"),
    ],
)
def test_a_pause_or_size_with_which_a_program_cannot_work_is_refused(
    settings, field, wrong, least
):
    flag = "--" + field.replace("_", "-")
    with pytest.raises(InvalidSetting, match=f"^{flag} must be at least {least}$"):
        build(settings, {field: wrong})


@pytest.mark.parametrize("settings", [AdmissionSettings, ControllerSettings])
def test_every_setting_has_a_help_text_and_a_default(settings):
    for item in dataclasses.fields(settings):
        assert item.metadata["help"].endswith(".")
        assert item.default is not dataclasses.MISSING


@pytest.mark.parametrize("settings", [AdmissionSettings, ControllerSettings])
def test_the_help_shows_the_environment_variable_of_each_setting(settings):
    said = run(settings, "--help")
    for item in dataclasses.fields(settings):
        assert f"RETROFIT_{item.name.upper()}" in said.replace("\n", "").replace(" ", "")


def test_an_empty_variable_means_the_default_where_empty_has_no_meaning_of_its_own():
    assert run(ControllerSettings, RETROFIT_BIND_ADDRESS="", RETROFIT_LANES="") == (
        ControllerSettings()
    )


@pytest.mark.parametrize("settings", [AdmissionSettings, ControllerSettings])
def test_no_service_is_allowed_if_the_variable_is_empty(settings):
    assert run(settings, RETROFIT_SERVICE_HOSTS="").service_hosts == ""
    assert run(settings, RETROFIT_SERVICE_HOSTS="a.svc").service_hosts == "a.svc"
    assert run(settings, "--service-hosts=b.svc", RETROFIT_SERVICE_HOSTS="").service_hosts == (
        "b.svc"
    )


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [([], True), (["--reports=false"], False), (["--reports"], True), (["--reports=true"], True)],
)
def test_a_switch_is_set_with_or_without_a_value(arguments, wanted):
    assert run(ControllerSettings, *arguments).reports is wanted


def test_a_switch_can_be_set_by_an_environment_variable():
    assert run(ControllerSettings, RETROFIT_REPORTS="false").reports is False
    assert "not a valid boolean" in run(ControllerSettings, "--reports=perhaps")


@pytest.mark.parametrize("settings", [AdmissionSettings, ControllerSettings])
def test_enabling_exceptions_requires_their_namespaces(settings):
    with pytest.raises(InvalidSetting, match="--enable-policy-exception needs"):
        build(settings, {"enable_policy_exception": True, "exception_namespace": " "})
    assert build(settings, {"enable_policy_exception": True, "exception_namespace": "*"})


@pytest.mark.parametrize(
    ("field", "wrong", "right"),
    [
        ("patch_war_limit", -1, 0),
        ("patch_war_window", 0.5, 1.0),
        ("max_in_flight", 1000, 0),
        ("max_in_flight", -1, 1024 * 1024),
    ],
)
def test_limits_outside_their_allowed_values_are_refused(field, wrong, right):
    flag = "--" + field.replace("_", "-")
    with pytest.raises(InvalidSetting, match=flag):
        build(ControllerSettings, {field: wrong})
    assert getattr(build(ControllerSettings, {field: right}), field) == right
