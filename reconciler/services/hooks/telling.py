"""What people see of runs that failed, as events of their hook."""

from dataclasses import dataclass
from typing import Final

from reconciler.services.hooks.dispatch import RunReport
from reconciler.services.ports.reporting import Event, Events

FAILED: Final = "HookFailed"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookEvents:
    """Tells of runs that failed."""

    events: Events

    def ran(self, report: RunReport) -> None:
        """Take in a run that has ended."""
        if not report.failure:
            return
        then = "which its binding allows" if report.allowed else f"queue {report.queue} waits"
        event = Event(
            regarding=report.hook.as_object(report.uid).reference,
            severity="Warning",
            reason=FAILED,
            action="Run",
            note=f"{report.binding}: {report.failure}; {then}",
            group=FAILED,
        )
        self.events.emit(event)
