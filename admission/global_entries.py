"""The GlobalContextEntries that rules read before an object is stored, kept by this process.

Each replica keeps the entries that some policy names, and no others. It writes no status: that is
of the leading controller, and the log of this process reports problems of this replica.
"""

from dataclasses import dataclass, field
from typing import Final, Self

from reconciler.api.kinds import kinds_of
from reconciler.api.meta import PolicyRef
from reconciler.clock import Clock
from reconciler.config import AdmissionSettings
from reconciler.engine.program import EntryNames, Phase, joined
from reconciler.isolation import ChildProcesses
from reconciler.kube.client import Client
from reconciler.kube.entries import KubeEntries
from reconciler.kube.loader import KubeLoader
from reconciler.kube.retrying import jittered
from reconciler.observe.logs import logger
from reconciler.observe.metrics import Metrics
from reconciler.services.catalog.globalcontext import Dependencies, GlobalContext, Pace, ProblemLog
from reconciler.services.catalog.policy_store import PolicyStore, StoredPolicy
from reconciler.services.catalog.protection import Protection
from reconciler.services.ports.objects import Kinds

_log = logger("admission.global_entries")

ENTRY_PATIENCE: Final = 1.0
"""Seconds for each value that a rule reads before an object is stored."""

_PACE: Final = Pace(grace=ENTRY_PATIENCE, missing=ENTRY_PATIENCE, patience=ENTRY_PATIENCE)

_NONE: Final[frozenset[str]] = frozenset()


@dataclass(slots=True, kw_only=True)
class NamedEntries:
    """Keeps the entries that are named by rules of the admission phase."""

    context: GlobalContext
    _by_policy: dict[PolicyRef, EntryNames] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        client: Client,
        settings: AdmissionSettings,
        *,
        clock: Clock,
        kinds: Kinds,
        index: PolicyStore,
    ) -> Self:
        """Return entries for the policies of an index, read with the rights of a client."""
        protection = Protection.of(settings)
        context = GlobalContext(
            Dependencies(
                entries=KubeEntries(
                    client, client, clock, kinds_of(settings.installation).entries
                ),
                kinds=kinds,
                loader=KubeLoader(
                    client, settings.callable_hosts, protection=protection, kinds=kinds
                ),
                clock=clock,
                spread=jittered,
                warn=_log.warning,
                isolation=ChildProcesses(),
                most_bytes=settings.max_entry,
                protection=protection,
                pace=_PACE,
            ),
            verdicts=ProblemLog(warn=_log.warning),
            wanted=_NONE,
        )
        found = cls(context=context)
        index.subscribe(found.on_policy)
        return found

    def on_policy(self, before: StoredPolicy | None, after: StoredPolicy | None) -> None:
        """Update the needed entries after a change of a policy."""
        stored = after or before
        if stored is None:
            return
        policy = None if after is None else after.compiled
        names = _NONE if policy is None else policy.global_entries(Phase.ADMISSION)
        if names == _NONE:
            self._by_policy.pop(stored.ref, None)
        else:
            self._by_policy[stored.ref] = names
        self.context.want(joined(self._by_policy.values()))

    def show(self, metrics: Metrics) -> None:
        """Set metrics of the readable entries and of their failures."""
        readable = self.context.readable
        metrics.entries.labels("ready").set_function(lambda: readable()[0])
        metrics.entries.labels("not_ready").set_function(lambda: readable()[1])

        self.context.verdicts.judged.subscribe(
            lambda _entry, problem: metrics.entry_failures.inc(bool(problem))
        )

    async def run(self, metrics: Metrics) -> None:
        """Keep the entries until cancelled."""
        self.show(metrics)
        await self.context.run()
