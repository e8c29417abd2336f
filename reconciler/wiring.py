"""Composition root: which adapter stands behind which port, for every entry point."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from reconciler.clock import Clock
from reconciler.config import ControllerSettings
from reconciler.isolation import ChildProcesses
from reconciler.kube.client import Client
from reconciler.kube.cluster import KubeCluster
from reconciler.kube.discovery import KubeKinds
from reconciler.kube.entries import global_context
from reconciler.requests.lifecycle import Retention
from reconciler.requests.schedule import Backoff
from reconciler.services.collect import Collector
from reconciler.services.dispatch import Dispatcher, Observer
from reconciler.services.elsewhere import Elsewhere
from reconciler.services.exceptions import ExceptionIndex
from reconciler.services.globalcontext import GlobalContext
from reconciler.services.holding import Holding
from reconciler.services.lanes import Lanes
from reconciler.services.policies import PolicyIndex
from reconciler.services.process import Processor
from reconciler.services.registrar import Registrar
from reconciler.services.results import ENTRY_NOT_READY
from reconciler.services.rollout import Rollout, Warn
from reconciler.services.selection import TargetFinder
from reconciler.services.settings import SettingsHolder
from reconciler.services.sweep import Each, Sweeper
from reconciler.services.trigger import TriggerReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The use cases of the controller, joined to one cluster."""

    cluster: KubeCluster
    index: PolicyIndex
    kinds: KubeKinds
    dispatcher: Dispatcher
    entries: GlobalContext
    lanes: Lanes
    collector: Collector
    rollout: Rollout


def controller_services(
    client: Client,
    settings: ControllerSettings,
    clock: Clock,
    *,
    exceptions: ExceptionIndex,
    live: SettingsHolder,
    observe: Observer,
    each: Each,
    say: Callable[[str], None],
    warn: Warn,
) -> Services:
    """Return the services that a controller with these settings runs."""
    index, chance = PolicyIndex(namespace=settings.namespace), random.SystemRandom()
    cluster = KubeCluster.of(client, settings, clock, say)
    kinds, reader, requests = cluster.kinds, cluster.reader, cluster.requests
    triggers = TriggerReader(
        kinds=kinds, reader=reader, requests=requests, clock=clock, below=chance.randrange
    )
    lanes = Lanes.of(settings, clock, reader=reader, writer=cluster.writer, keys=cluster.keys)
    entries = global_context(client, kinds, clock, settings, say)
    processor = Processor(
        index=index,
        policies=cluster.policies,
        finder=TargetFinder.of(settings, kinds, reader, lanes.flight),
        triggers=triggers,
        lanes=lanes,
        loader=entries,
        backoff=Backoff(base=settings.backoff_base, ceiling=settings.backoff_ceiling),
        exceptions=exceptions,
        holding=Holding(index=index, clock=clock),
        elsewhere=Elsewhere(ChildProcesses(), clock),
        left_alone=live.leaves_target,
        own_users=settings.own_users,
    )
    sweeper = Sweeper.of(
        settings,
        clock,
        processor=processor,
        requests=requests,
        each=each,
        left_alone=live.leaves_trigger,
    )
    dispatcher = Dispatcher(
        requests=requests,
        processor=processor,
        sweep=sweeper.run,
        clock=clock,
        chance=chance.random,
        retention=Retention.of(settings),
        observe=observe,
        history=reader,
        confirmation=settings.confirmation,
    )
    lanes.unfinished = dispatcher.unfinished
    entries.on_ready = lambda: dispatcher.wake_parked(ENTRY_NOT_READY)
    return Services(
        cluster=cluster,
        index=index,
        kinds=kinds,
        dispatcher=dispatcher,
        entries=entries,
        lanes=lanes,
        collector=Collector.of(settings, requests, clock, say),
        rollout=Rollout(
            index=index,
            policies=cluster.policies,
            requests=requests,
            registrar=Registrar.of(cluster, settings, cluster.clock, live),
            say=say,
            warn=warn,
        ),
    )
