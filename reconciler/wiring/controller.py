"""The use cases of a controller, wired in the order of their dependencies."""

import random
from dataclasses import dataclass
from typing import Self

from reconciler.api.updaterequest import Reason
from reconciler.observe.observers import Observers
from reconciler.requests.lifecycle import Retention
from reconciler.requests.schedule import Backoff
from reconciler.services.catalog.globalcontext import GlobalContext
from reconciler.services.processing.attempt import Processor
from reconciler.services.processing.dispatch import Dispatcher
from reconciler.services.processing.lanes import Lanes
from reconciler.services.processing.loading import LongEvaluations
from reconciler.services.processing.pacing import Pacer
from reconciler.services.processing.selection import TargetFinder
from reconciler.services.processing.trigger import TriggerReader
from reconciler.services.rollout.rollout import Rollout
from reconciler.services.rollout.webhook_writer import WebhookWriter
from reconciler.services.sweeping.sweeper import Sweeper
from reconciler.services.upkeep.retention import FinishedRequestCollector
from reconciler.wiring.base import Base


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The use cases of the controller, wired to one cluster."""

    base: Base
    dispatcher: Dispatcher
    entries: GlobalContext
    collector: FinishedRequestCollector
    rollout: Rollout

    @classmethod
    def of(cls, base: Base, observers: Observers) -> Self:
        """Return the services of a controller, which notify the given observers."""
        settings, clock, cluster = base.settings, base.clock, base.cluster
        entries = base.global_context()
        lanes = Lanes.of(
            settings,
            clock,
            reader=cluster.reader,
            writer=cluster.writer,
            keys=cluster.keys,
            unfinished=base.known.unfinished,
        )
        dispatcher = _dispatcher(base, observers, _processor(base, entries, lanes))
        entries.ready.subscribe(lambda: dispatcher.wake_parked(Reason.ENTRY_NOT_READY))
        return cls(
            base=base,
            dispatcher=dispatcher,
            entries=entries,
            collector=FinishedRequestCollector.of(
                settings, cluster.requests, clock, base.warn, before=observers.progress.flush
            ),
            rollout=Rollout(
                index=base.index,
                policies=cluster.policies,
                requests=cluster.requests,
                webhook_writer=WebhookWriter.of(cluster, settings, base.live, lanes.lone_rules),
                warn=base.warn,
                on_caveat=observers.event_recorder.caution,
                ready_if_stored=settings.ready_if_stored,
            ),
        )


def _processor(base: Base, entries: GlobalContext, lanes: Lanes) -> Processor:
    settings, cluster = base.settings, base.cluster
    return Processor(
        index=base.index,
        policies=cluster.policies,
        finder=TargetFinder(
            kinds=cluster.kinds,
            reader=cluster.reader,
            page=settings.list_page,
            flight=lanes.flight,
        ),
        triggers=TriggerReader(
            kinds=cluster.kinds,
            reader=cluster.reader,
            requests=cluster.requests,
            clock=base.clock,
            randbelow=random.SystemRandom().randrange,
        ),
        lanes=lanes,
        loader=entries,
        backoff=Backoff(base=settings.backoff_base, ceiling=settings.backoff_ceiling),
        exceptions=base.exceptions,
        pacer=Pacer(index=base.index, clock=base.clock),
        long_evaluations=LongEvaluations(base.isolation, base.clock),
        is_excluded=base.live.leaves_target,
        controller_users=settings.controller_users,
    )


def _dispatcher(base: Base, observers: Observers, processor: Processor) -> Dispatcher:
    sweeper = Sweeper(
        processor=processor,
        each=observers.swept,
        page=base.settings.list_page,
        parallel=base.settings.lanes,
        is_excluded=base.live.leaves_trigger,
        settle=base.settings.request_timeout,
    )
    return Dispatcher(
        requests=base.cluster.requests,
        processor=processor,
        sweep=sweeper.run,
        clock=base.clock,
        jitter=random.SystemRandom().random,
        retention=Retention.of(base.settings),
        observe=observers.observe,
        warn=base.warn,
        history=base.cluster.reader,
        confirmation=base.settings.confirmation,
        known=base.known,
    )
