"""Output of executables, as log lines and metrics."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TextIO

from reconciler.execution.discovery import Executable
from reconciler.execution.executables import Answer
from reconciler.execution.runs import RunLabels
from reconciler.hooks.ports import HookRef, RunFailure
from reconciler.observe.hookmetrics import HookProgramMetrics
from reconciler.observe.logs import Logger
from reconciler.services.hooks.dispatch import RunReport

_TASK: Final = "HookRun"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutput:
    """Receives the output and the results of runs.

    Attributes:
        proxied: Destination of JSON lines of hooks, with fields of the run added; None to log
            them like any other line.
    """

    log: Logger
    metrics: HookProgramMetrics
    known: Mapping[HookRef, Executable]
    proxied: TextIO | None = None

    def said(self, run: RunLabels, line: str, stream: str) -> None:
        """Log a line that a hook printed."""
        if self.proxied is not None and (text := _with_fields(line, run)):
            self.proxied.write(f"{text}\n")
            self.proxied.flush()
            return
        self.log.info(line, **_fields(run), output=stream)

    def noticed(self, run: RunLabels, problem: str) -> None:
        """Log a problem that does not fail a run."""
        self.log.warning(problem, **_fields(run))

    def ended(
        self, run: RunLabels, answer: Answer, seconds: float, failure: RunFailure | None
    ) -> None:
        """Measure a process; log and count its result, unless operations may follow."""
        labels = run.hook, run.binding, run.queue
        metrics = self.metrics
        metrics.run_seconds.labels(*labels).observe(seconds)
        if answer.ended is not None:
            metrics.run_user_cpu.labels(*labels).observe(answer.ended.user)
            metrics.run_system_cpu.labels(*labels).observe(answer.ended.system)
            metrics.run_memory.labels(*labels).set(answer.ended.most_memory)
        if failure is None:
            self.log.info("hook executed", **_fields(run), seconds=round(seconds, 3))
        if not run.queue:
            self._settle(run, "" if failure is None else str(failure))

    def ran(self, report: RunReport) -> None:
        """Count a run with its operations, and log why it failed."""
        run = RunLabels(
            hook=self.known[report.hook].name,
            binding=report.binding,
            queue=report.queue,
            event="",
            allow_failure=report.allowed,
        )
        self._settle(run, report.failure)

    def _settle(self, run: RunLabels, failure: str) -> None:
        labels, metrics = (run.hook, run.binding, run.queue), self.metrics
        if not failure:
            metrics.run_successes.labels(*labels).inc()
            return
        errors = metrics.run_allowed_errors if run.allow_failure else metrics.run_errors
        errors.labels(*labels).inc()
        allowed = {"allowed": True} if run.allow_failure else {}
        self.log.error("hook failed", **_fields(run), **allowed, reason=failure)


def _fields(run: RunLabels) -> dict[str, Any]:
    shown = {
        "hook": run.hook,
        "binding": run.binding,
        "queue": run.queue,
        "task": _TASK,
    }
    return {name: value for name, value in shown.items() if value}


def _with_fields(line: str, run: RunLabels) -> str:
    """Return a line of JSON with the fields of a run added; empty if it is not an object."""
    event = {"event": run.event} if run.event else {}
    try:
        found = json.loads(line)
        if not isinstance(found, dict):
            return ""
        # Unlike orjson, this writes whatever it parses: long integers, and half a surrogate pair.
        return json.dumps({**found, **_fields(run), **event}, allow_nan=False)
    except (ValueError, RecursionError):
        return ""
