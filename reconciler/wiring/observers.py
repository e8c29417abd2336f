"""The observers of a controller, wired to one cluster."""

from reconciler.kube.reports import KubeReports
from reconciler.observe.attempt_log import AttemptLog
from reconciler.observe.observers import Observers
from reconciler.services.ports.reporting import Events
from reconciler.services.reporting.events import EventRecorder
from reconciler.services.reporting.policy_reports import Reports
from reconciler.services.reporting.policy_status import Progress
from reconciler.wiring.base import Base
from reconciler.wiring.shared import success_events


def observers_of(base: Base, events: Events, attempt_log: AttemptLog) -> Observers:
    """Return the observers of a controller."""
    settings, cluster, live = base.settings, base.cluster, base.live

    event_recorder = EventRecorder(
        events=events, clock=base.clock, wants_success=success_events(settings, live)
    )
    return Observers(
        attempt_log=attempt_log,
        event_recorder=event_recorder,
        progress=Progress(
            index=base.index,
            policies=cluster.policies,
            clock=base.clock,
            waiting=base.known.unended,
            filters=lambda: live.current.filters,
            warn=base.warn,
        ),
        reports=Reports(
            store=KubeReports(base.client, settings.installation, page=settings.list_page),
            installation=settings.installation,
            index=base.index,
            policies=cluster.policies,
            kinds=cluster.kinds,
            reader=cluster.reader,
            clock=base.clock,
            warn=base.warn,
            enabled=settings.reports,
        ),
    )
