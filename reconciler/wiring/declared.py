"""The hooks that the controller runs: those declared as objects."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Self

from reconciler.hooks.declared import is_executable
from reconciler.isolation.jq import JqWorkers
from reconciler.kube.requests import KubeRequests
from reconciler.requests.lifecycle import Retention
from reconciler.services.catalog.protection import Protection
from reconciler.services.hooks.declarative import DeclaredRuns
from reconciler.services.hooks.service import Hooks
from reconciler.services.ports.reporting import Events
from reconciler.services.upkeep.retention import FinishedRequestCollector
from reconciler.wiring.base import Base
from reconciler.wiring.hooks import hooks_of


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredHooks:
    """Hooks of the whole cluster, and the collector of their finished requests."""

    hooks: Hooks
    collector: FinishedRequestCollector
    jq: JqWorkers

    @classmethod
    def of(cls, base: Base, events: Events, term: Callable[[], int]) -> Self:
        """Return the declared hooks of a controller."""
        settings, cluster, jq = base.settings, base.cluster, JqWorkers()
        worker = base.client.speaking_for(settings.background_user)
        requests = KubeRequests(
            base.client,
            settings.namespace,
            page=settings.list_page,
            for_hooks=True,
            installation=settings.installation,
        )
        collector = FinishedRequestCollector.of(settings, requests, base.clock, base.warn)
        hooks = hooks_of(
            client=base.client,
            worker=worker,
            clock=base.clock,
            namespace=settings.namespace,
            hooks_in="",
            max_snapshots=settings.max_snapshots,
            requests=requests,
            collector=collector,
            kinds=cluster.kinds,
            reader=cluster.reader,
            writer=cluster.writer,
            jq=jq,
            retention=Retention.of(settings),
            events=events,
            protection=Protection.of(settings),
            runs_here=lambda obj: None if is_executable(obj) else True,
            runs_of=lambda hook: DeclaredRuns(hook=hook, jq=jq, isolation=base.isolation),
            # Declared hooks have no bindings that the API server calls.
            uncalled=lambda _hook, _binding: "",
            term=term,
            warn=base.warn,
        )
        return cls(hooks=hooks, collector=collector, jq=jq)

    @property
    def jobs(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """Return the leader's jobs for declared hooks."""
        return {"hooks": self._run, "finished requests of hooks": self.collector.run}

    async def _run(self) -> None:
        try:
            await self.hooks.run()
        finally:
            await self.jq.close()
