"""The foundation of a controller program: adapters and state, before any loop runs."""

from dataclasses import dataclass
from functools import partial
from typing import Self

from reconciler.api.kinds import kinds_of
from reconciler.clock import Clock
from reconciler.config import ControllerSettings
from reconciler.isolation import ChildProcesses
from reconciler.isolation.cue import WithCue, cue_at, why_no_cue
from reconciler.kube.client import Client
from reconciler.kube.cluster import KubeCluster
from reconciler.kube.entries import KubeEntries
from reconciler.kube.loader import KubeLoader
from reconciler.kube.retrying import jittered
from reconciler.kube.watch import BEAT, Watch
from reconciler.services.catalog.exceptions import ExceptionIndex, at_once
from reconciler.services.catalog.globalcontext import Dependencies, GlobalContext, StatusWriter
from reconciler.services.catalog.languages import Languages
from reconciler.services.catalog.policy_store import PolicyStore
from reconciler.services.catalog.protection import Protection
from reconciler.services.catalog.settings import SettingsHolder
from reconciler.services.ports.isolation import Isolation
from reconciler.services.processing.known_requests import KnownRequests
from reconciler.wiring.shared import Warn, caught_up, exception_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The adapters of a controller, and its view of the cluster.

    Attributes:
        clock: Clock of this machine; the cluster's is that of the API server.
        live: Current settings of the ConfigMap.
        of_exceptions: Watch on exceptions, or None if they are disabled.
    """

    client: Client
    settings: ControllerSettings
    clock: Clock
    cluster: KubeCluster
    index: PolicyStore
    known: KnownRequests
    live: SettingsHolder
    exceptions: ExceptionIndex
    of_exceptions: Watch | None
    isolation: Isolation
    warn: Warn

    @classmethod
    def of(cls, client: Client, settings: ControllerSettings, clock: Clock, warn: Warn) -> Self:
        """Return the base of a controller with these settings."""
        honoured = exception_settings(settings)
        watch = Watch(client, kinds_of(settings.installation).exceptions, clock, beat=BEAT)
        refreshed = partial(caught_up, watch) if honoured.enabled else at_once
        return cls(
            client=client,
            settings=settings,
            clock=clock,
            cluster=KubeCluster(client, settings, clock, warn),
            index=PolicyStore(
                languages=Languages(settings.installation),
                namespace=settings.namespace,
                forces_ignore=settings.force_failure_policy_ignore,
                why_no_cue=why_no_cue(settings.cue),
            ),
            known=KnownRequests(),
            live=SettingsHolder.of(settings.namespace, filter_targets=settings.filter_targets),
            exceptions=ExceptionIndex(exception_settings=honoured, caught_up=refreshed),
            of_exceptions=watch if honoured.enabled else None,
            isolation=ChildProcesses(),
            warn=warn,
        )

    def global_context(self) -> GlobalContext:
        """Return the `Loader` of rules, which caches global entries and reads the rest."""
        settings, worker = self.settings, self.client.speaking_for(self.settings.background_user)
        protection = Protection.of(settings)
        of_entries = kinds_of(settings.installation).entries
        entries = KubeEntries(self.client, worker, self.clock, of_entries)
        return GlobalContext(
            Dependencies(
                entries=entries,
                kinds=self.cluster.kinds,
                loader=WithCue(
                    KubeLoader(
                        worker,
                        settings.callable_hosts,
                        protection=protection,
                        kinds=self.cluster.kinds,
                    ),
                    cue_at(settings.cue),
                ),
                clock=self.clock,
                spread=jittered,
                warn=self.warn,
                isolation=self.isolation,
                most_bytes=settings.max_entry,
                protection=protection,
            ),
            verdicts=StatusWriter(entries=entries, clock=self.clock, warn=self.warn),
        )
