"""The output of runs as log lines and metrics."""

import io
import json

import pytest

from reconciler.execution.executables import Answer
from reconciler.execution.process import Ended
from reconciler.execution.runs import RunLabels
from reconciler.hooks.ports import RunFailure
from reconciler.observe import logs
from reconciler.observe.hookmetrics import HookProgramMetrics
from reconciler.runner.output import RunOutput
from tests.architecture.conftest import ROOT

RUN = RunLabels(hook="a.sh", binding="pods", queue="main", event="Added", allow_failure=False)
ALLOWED = RunLabels(hook="a.sh", binding="x", queue="main", event="", allow_failure=True)
ENDED = Ended(code=0, late=False, left_behind=False, user=0.5, system=0.25, most_memory=4096)


@pytest.fixture
def written(kept_logs: None) -> io.StringIO:
    stream = io.StringIO()
    logs.configure("json", "info", stream=stream, timed=False)
    return stream


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def output(proxied: io.StringIO | None = None) -> RunOutput:
    metrics = HookProgramMetrics.of("shell_operator_")
    return RunOutput(log=logs.logger("hooks"), metrics=metrics, proxied=proxied)


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


def test_ended_runs_are_counted_and_failures_are_logged(written: io.StringIO) -> None:
    shown = output()
    failure = RunFailure(reason="no such secret", exit_code=3)
    shown.ended(RUN, Answer(ended=ENDED), 1.5, None)
    shown.ended(RUN, Answer(ended=ENDED, failure=failure), 0.5, failure)
    shown.ended(ALLOWED, Answer(failure=failure), 0.5, failure)
    registry = shown.metrics.registry
    labels = {"hook": "a.sh", "binding": "pods", "queue": "main"}

    def value(name: str, **more: str) -> float | None:
        return registry.get_sample_value(f"shell_operator_{name}", {**labels, **more})

    assert value("hook_run_success_total") == 1
    assert value("hook_run_errors_total") == 1
    assert value("hook_run_errors_total", binding="x") is None
    assert value("hook_run_allowed_errors_total", binding="x") == 1
    assert value("hook_run_seconds_sum") == 2
    assert value("hook_run_user_cpu_seconds_sum") == 1
    assert value("hook_run_max_rss_bytes") == 4096
    said = [(line["message"], line.get("reason"), line.get("allowed")) for line in lines(written)]
    assert said == [
        ("hook executed", None, None),
        ("hook failed", "exit 3: no such secret", None),
        ("hook failed", "exit 3: no such secret", True),
    ]


def test_every_metric_is_documented() -> None:
    section = (
        (ROOT / "docs/reference/metrics.md").read_text().partition("\n## retrofit-hooks\n")[2]
    )
    for family in HookProgramMetrics.of("shell_operator_").registry.collect():
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
