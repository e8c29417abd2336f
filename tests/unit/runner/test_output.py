"""The output of runs as log lines and metrics."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.api.meta import PolicyRef
from reconciler.execution.discovery import Executable
from reconciler.execution.executables import Answer
from reconciler.execution.process import Ended
from reconciler.execution.runs import RunLabels
from reconciler.hooks.declared import HOOKS
from reconciler.hooks.ports import RunFailure
from reconciler.observe import logs
from reconciler.observe.hookmetrics import HookProgramMetrics
from reconciler.runner.output import RunOutput
from reconciler.services.hooks.dispatch import RunReport
from tests.architecture.conftest import ROOT

RUN = RunLabels(hook="a.sh", binding="pods", queue="main", event="Added", allow_failure=False)
HOOK = PolicyRef(api_version=HOOKS.api_version, kind="Hook", namespace="n", name="a.sh")
ENDED = Ended(code=0, late=False, left_behind=False, user=0.5, system=0.25, most_memory=4096)


@pytest.fixture
def written(kept_logs: None) -> io.StringIO:
    stream = io.StringIO()
    logs.configure("json", "info", stream=stream, timed=False)
    return stream


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def output(proxied: io.StringIO | None = None) -> RunOutput:
    metrics = HookProgramMetrics("shell_operator_")
    known = {HOOK: Executable("a.sh", Path("/hooks/a.sh"))}
    return RunOutput(log=logs.logger("hooks"), metrics=metrics, known=known, proxied=proxied)


def report(**more: Any) -> RunReport:
    return RunReport(
        **{
            "hook": HOOK,
            "uid": "u",
            "binding": "pods",
            "queue": "main",
            "seconds": 1.0,
            "failure": "",
            "allowed": False,
            **more,
        }
    )


def value(shown: RunOutput, name: str, **more: str) -> float | None:
    labels = {"hook": "a.sh", "binding": "pods", "queue": "main", **more}
    return shown.metrics.registry.get_sample_value(f"shell_operator_{name}", labels)


def test_an_output_line_is_logged_with_the_labels_of_its_run(written: io.StringIO) -> None:
    output().said(RUN, "100% %s done", "stderr")
    assert lines(written) == [
        {
            "message": "100% %s done",
            "level": "info",
            "logger": "hooks",
            "hook": "a.sh",
            "binding": "pods",
            "queue": "main",
            "task": "HookRun",
            "output": "stderr",
        }
    ]


def test_json_lines_are_forwarded_with_the_labels_of_their_run(written: io.StringIO) -> None:
    stream = io.StringIO()
    shown = output(stream)
    shown.said(RUN, '{"msg": "x", "level": "warn", "queue": "mine"}', "stdout")
    shown.said(RUN, "[1]", "stdout")
    assert lines(stream) == [
        {
            "msg": "x",
            "level": "warn",
            "hook": "a.sh",
            "binding": "pods",
            "event": "Added",
            "queue": "main",
            "task": "HookRun",
        }
    ]
    assert [line["message"] for line in lines(written)] == ["[1]"]


def test_ended_processes_are_measured(written: io.StringIO) -> None:
    shown = output()
    failure = RunFailure(reason="no such secret", exit_code=3)
    shown.ended(RUN, Answer(ended=ENDED), 1.5, None)
    shown.ended(RUN, Answer(ended=ENDED, failure=failure), 0.5, failure)
    assert value(shown, "hook_run_seconds_sum") == 2
    assert value(shown, "hook_run_user_cpu_seconds_sum") == 1
    assert value(shown, "hook_run_max_rss_bytes") == 4096
    # Whether the run succeeded depends on its operations, too.
    assert value(shown, "hook_run_success_total") is None
    assert [line["message"] for line in lines(written)] == ["hook executed"]


def test_runs_are_counted_with_their_operations_and_failures_are_logged(
    written: io.StringIO,
) -> None:
    shown = output()
    shown.ran(report())
    shown.ran(report(failure="MergePatch ConfigMap shop/a: not found"))
    shown.ran(report(binding="x", failure="exit 3: no such secret", allowed=True))
    assert value(shown, "hook_run_success_total") == 1
    assert value(shown, "hook_run_errors_total") == 1
    assert value(shown, "hook_run_errors_total", binding="x") is None
    assert value(shown, "hook_run_allowed_errors_total", binding="x") == 1
    logged = {"level": "error", "logger": "hooks", "hook": "a.sh", "queue": "main"}
    logged |= {"message": "hook failed", "task": "HookRun"}
    assert lines(written) == [
        {**logged, "binding": "pods", "reason": "MergePatch ConfigMap shop/a: not found"},
        {**logged, "binding": "x", "reason": "exit 3: no such secret", "allowed": True},
    ]


def test_answers_to_the_api_server_have_no_operations_and_are_counted_at_once(
    written: io.StringIO,
) -> None:
    shown, run = output(), replace(RUN, queue="")
    failure = RunFailure(reason="no such secret", exit_code=3)
    shown.ended(run, Answer(ended=ENDED), 1.5, None)
    shown.ended(run, Answer(ended=ENDED, failure=failure), 0.5, failure)
    assert value(shown, "hook_run_success_total", queue="") == 1
    assert value(shown, "hook_run_errors_total", queue="") == 1
    said = [(line["message"], line.get("reason")) for line in lines(written)]
    assert said == [("hook executed", None), ("hook failed", "exit 3: no such secret")]


def test_every_metric_is_documented() -> None:
    section = (
        (ROOT / "docs/reference/metrics.md").read_text().partition("\n## retrofit-hooks\n")[2]
    )
    for family in HookProgramMetrics("shell_operator_").registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert f"| `{name}` |" in section


@pytest.mark.parametrize(
    "line", ['{"id":99999999999999999999}', r'{"a":"\ud83d"}'], ids=["long", "half"]
)
def test_a_json_line_with_any_value_is_proxied(line: str) -> None:
    stream = io.StringIO()
    output(stream).said(RUN, line, "stdout")
    (written,) = stream.getvalue().splitlines()
    # Neither may the stream fail to encode it.
    assert json.loads(written.encode()).items() >= {**json.loads(line), "hook": "a.sh"}.items()


def test_a_line_with_what_json_cannot_hold_is_logged(written: io.StringIO) -> None:
    stream = io.StringIO()
    output(stream).said(RUN, '{"a":NaN}', "stdout")
    assert stream.getvalue() == ""
    assert [line["message"] for line in lines(written)] == ['{"a":NaN}']
