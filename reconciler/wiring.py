"""Composition root: which adapter stands behind which port, for every entry point."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from reconciler.api.updaterequest import Reason
from reconciler.clock import Clock
from reconciler.config import ControllerSettings
from reconciler.isolation import ChildProcesses
from reconciler.kube.client import Client
from reconciler.kube.cluster import KubeCluster
from reconciler.kube.discovery import KubeKinds
from reconciler.kube.entries import global_context
from reconciler.requests.lifecycle import Retention
from reconciler.requests.schedule import Backoff
from reconciler.services.catalog.exceptions import ExceptionIndex
from reconciler.services.catalog.globalcontext import GlobalContext
from reconciler.services.catalog.policy_store import PolicyStore
from reconciler.services.catalog.settings import SettingsHolder
from reconciler.services.processing.attempt import Processor
from reconciler.services.processing.dispatch import Dispatcher, Observer
from reconciler.services.processing.lanes import Lanes
from reconciler.services.processing.long_evaluation import LongEvaluations
from reconciler.services.processing.pacing import Pacer
from reconciler.services.processing.selection import TargetFinder
from reconciler.services.processing.trigger import TriggerReader
from reconciler.services.rollout.rollout import Rollout, Warn
from reconciler.services.rollout.webhook_writer import WebhookWriter
from reconciler.services.sweeping.sweeper import Each, Sweeper
from reconciler.services.upkeep.retention import FinishedRequestCollector


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The use cases of the controller, joined to one cluster."""

    cluster: KubeCluster
    index: PolicyStore
    kinds: KubeKinds
    dispatcher: Dispatcher
    entries: GlobalContext
    lanes: Lanes
    collector: FinishedRequestCollector
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
    index, chance = PolicyStore(namespace=settings.namespace), random.SystemRandom()
    cluster, isolation = KubeCluster.of(client, settings, clock, say), ChildProcesses()
    kinds, reader, requests = cluster.kinds, cluster.reader, cluster.requests
    triggers = TriggerReader(
        kinds=kinds, reader=reader, requests=requests, clock=clock, below=chance.randrange
    )
    lanes = Lanes.of(settings, clock, reader=reader, writer=cluster.writer, keys=cluster.keys)
    entries = global_context(client, kinds, clock, settings, isolation=isolation, say=say)
    processor = Processor(
        index=index,
        policies=cluster.policies,
        finder=TargetFinder.of(settings, kinds, reader, lanes.flight),
        triggers=triggers,
        lanes=lanes,
        loader=entries,
        backoff=Backoff(base=settings.backoff_base, ceiling=settings.backoff_ceiling),
        exceptions=exceptions,
        pacer=Pacer(index=index, clock=clock),
        long_evaluations=LongEvaluations(isolation, clock),
        is_excluded=live.leaves_target,
        controller_users=settings.controller_users,
    )
    sweeper = Sweeper.of(
        settings,
        clock,
        processor=processor,
        requests=requests,
        each=each,
        is_excluded=live.leaves_trigger,
    )
    dispatcher = Dispatcher(
        requests=requests,
        processor=processor,
        sweep=sweeper.run,
        clock=clock,
        jitter=chance.random,
        retention=Retention.of(settings),
        observe=observe,
        history=reader,
        confirmation=settings.confirmation,
    )
    lanes.unfinished = dispatcher.unfinished
    entries.on_ready = lambda: dispatcher.wake_parked(Reason.ENTRY_NOT_READY)
    return Services(
        cluster=cluster,
        index=index,
        kinds=kinds,
        dispatcher=dispatcher,
        entries=entries,
        lanes=lanes,
        collector=FinishedRequestCollector.of(settings, requests, clock, say),
        rollout=Rollout(
            index=index,
            policies=cluster.policies,
            requests=requests,
            webhook_writer=WebhookWriter.of(cluster, settings, cluster.clock, live),
            say=say,
            warn=warn,
        ),
    )
