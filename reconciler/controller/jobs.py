"""The recurring jobs of a leader, in two lists.

SINGLETON jobs are limited to one process, because they write what has one writer or decide for all
policies. SHARDED jobs process requests, each of which could be assigned to another process.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from reconciler.api.updaterequest import Reason
from reconciler.kube.backlog import KubeBacklogStore
from reconciler.kube.leases import KubeLeases
from reconciler.observe.observers import Observers
from reconciler.services.catchup.passes import CatchUpPasses
from reconciler.services.jobs import WarnsOnce, repeat
from reconciler.services.processing.backlog_publisher import BacklogPublisher
from reconciler.services.recording.backlog import thresholds_of
from reconciler.services.upkeep.permission_watch import PermissionWatch
from reconciler.wiring.controller import Services

Jobs = Mapping[str, Callable[[], Awaitable[None]]]
"""Jobs by name; each runs until it is cancelled."""


def singleton(services: Services, observers: Observers, passes: CatchUpPasses) -> Jobs:
    """Return the jobs that only one process may run."""
    base = services.base
    rights = PermissionWatch(
        waiting=services.dispatcher, access=base.cluster.access, clock=base.clock
    )
    backlog = BacklogPublisher(
        store=KubeBacklogStore(KubeLeases(base.client, base.settings.namespace), base.clock),
        dispatcher=services.dispatcher,
        thresholds=thresholds_of(base.settings, base.live),
        warn=base.warn,
    )
    jobs: dict[str, Callable[[], Awaitable[None]]] = {
        "global context": services.entries.run,
        "collector": services.collector.run,
        "retries": services.collector.retries.run,
        "rollout": services.rollout.run,
        "missing rights": rights.run,
        "backlog": backlog.run,
        "catch-up": passes.run,
        "policy status": observers.progress.run,
    }
    if observers.reports.enabled:
        jobs["reports"] = observers.reports.run
    return jobs


def sharded(services: Services, observers: Observers) -> Jobs:
    """Return the jobs that process requests; sweeps are requests too."""
    lists = RequestLists(services, observers)
    return {"list of requests": lists.run, "dispatcher": services.dispatcher.run}


@dataclass(slots=True)
class RequestLists:
    """Reconciles the known requests with lists, because watches may miss events."""

    services: Services
    observers: Observers
    _collected: bool = False

    async def run(self) -> None:
        """List requests at an interval until cancelled."""
        await repeat(
            self._list,
            every=self.services.base.settings.resync,
            pauses=(0.5, 15.0),
            tell=WarnsOnce(warn=self.services.base.warn).tell,
            failing="the waiting requests cannot be listed: ",
        )

    async def _list(self) -> None:
        services = self.services
        await services.dispatcher.resync()
        if not self._collected:
            # Entries that requests wait for may have become ready before the requests were known.
            services.dispatcher.wake_parked(Reason.ENTRY_NOT_READY)
            await services.collector.resync(self.observers.on_recovered)
            self._collected = True
