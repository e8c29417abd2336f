"""Kubernetes events on failed runs of hooks."""

from typing import Final

from reconciler.services.hooks.dispatch import RunReport
from reconciler.services.ports.reporting import Event, Events

FAILED: Final = "HookFailed"


def tell_failure(events: Events, report: RunReport) -> None:
    """Emit an event if a run failed."""
    if not report.failure:
        return
    then = "its binding allows failures" if report.allowed else f"queue {report.queue} waits"
    event = Event(
        regarding=report.hook.as_object(report.uid).reference,
        severity="Warning",
        reason=FAILED,
        action="Run",
        note=f"{report.binding}: {report.failure}; {then}",
        group=FAILED,
    )
    events.emit(event)
