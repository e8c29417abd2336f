"""Composition of the controller process, and its life from start to drain."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from reconciler.clock import SystemClock
from reconciler.config import ControllerSettings
from reconciler.controller.cluster_watches import ClusterWatches, LeaderEvents
from reconciler.controller.exceptions import ExceptionInformer
from reconciler.controller.gauges import Gauges
from reconciler.controller.handlers import build_registry
from reconciler.controller.jobs import sharded, singleton
from reconciler.controller.languages import OptionalLanguage
from reconciler.controller.leader import Leadership
from reconciler.controller.operator import Operator
from reconciler.errors import RetrofitError
from reconciler.kube.client import Client, connect
from reconciler.kube.events import KubeEvents
from reconciler.kube.lease import Election, Timing, new_identity
from reconciler.kube.preflight import controller_kinds, exception_kinds, wait_for_kinds
from reconciler.kube.tokenreviews import TokenReviews
from reconciler.observe.attempt_log import AttemptLog
from reconciler.observe.audit import AuditLog
from reconciler.observe.health import HealthServer, Readiness
from reconciler.observe.hookruns import HookRunCounter
from reconciler.observe.listening import bind, bind_optional
from reconciler.observe.logs import Logger, configure, logger
from reconciler.observe.loops import forever
from reconciler.observe.memory import give_back_large_blocks, relax_collector
from reconciler.observe.metrics import Metrics, call_counter
from reconciler.observe.settings import SettingsReport
from reconciler.serving.scraping import scraped
from reconciler.wiring.base import Base
from reconciler.wiring.catchup import catch_up_passes
from reconciler.wiring.controller import Services
from reconciler.wiring.declared import DeclaredHooks
from reconciler.wiring.observers import observers_of
from reconciler.wiring.shared import kyverno_detector


@dataclass(slots=True, kw_only=True)
class Controller:
    """One controller process."""

    settings: ControllerSettings
    gauges: Gauges
    readiness: Readiness
    election: Election
    leadership: Leadership
    events: KubeEvents
    cluster_watches: ClusterWatches
    operator: Operator
    log: Logger
    stop: asyncio.Event
    exceptions: ExceptionInformer | None
    lost: asyncio.Event = field(default_factory=asyncio.Event)

    def lead(self) -> None:
        """Start to work after the Lease was acquired."""
        self.log.info("leading", identity=self.election.identity)
        if self.election.abandoned:
            self.log.warning(
                "the previous leader ended without releasing the Lease: each pending request is"
                " marked before it is processed, to identify one that crashes the controller"
            )
            self.leadership.dispatcher.suspects.expect()
        self.leadership.start()

    def on_lost(self) -> None:
        """End the process after the Lease was lost."""
        self.log.error("lost the Lease: exiting, so that only the new leader works")
        self._end()

    def on_failed(self, error: BaseException) -> None:
        """End the process after a bug ended the leader's work."""
        self.log.error(
            "the leader's work stopped because of a bug in kube-retrofit: exiting", exc_info=error
        )
        self._end()

    def _end(self) -> None:
        self.lost.set()
        self.stop.set()

    def unready(self) -> str | None:
        """Return why policies or requests are not watched, or None if they are."""
        problem = self.operator.watches.problem()
        if problem is None and self.exceptions is not None:
            problem = self.exceptions.unready()
        return problem

    async def run(self) -> int:
        """Work until stopped, or until the Lease is lost; return the exit code."""
        background = [
            asyncio.create_task(self.operator.run(), name="operator"),
            asyncio.create_task(self._honour_signals(), name="signals"),
            _keep("events", self.events.run()),
            _keep("gauges", self.gauges.run()),
            _keep("cluster watches", self.cluster_watches.run()),
        ]
        if self.exceptions is not None:
            background.append(_keep("exceptions", self.exceptions.run()))
        electing = _keep("election", self.election.run())
        stopping = asyncio.create_task(self.stop.wait(), name="stop")
        try:
            done, _ = await asyncio.wait(
                {*background, electing, stopping}, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                task.result()
            return 1 if self.lost.is_set() else 0
        except RetrofitError as error:
            self.readiness.stop(str(error))
            raise
        finally:
            # Work that began under a lost Lease belongs to the new leader.
            leading = self.election.leading and not self.lost.is_set()
            await self.leadership.stop(self.settings.drain_timeout if leading else 0.0)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.events.flush(), 2.0)
            # Release the Lease only now, when this process does not write any more.
            electing.cancel()
            await asyncio.gather(electing, return_exceptions=True)
            for task in (*background, stopping):
                task.cancel()
            await asyncio.gather(*background, stopping, return_exceptions=True)

    async def _honour_signals(self) -> None:
        # kopf installs its own handlers at its start, and would end before the work here has.
        await self.operator.started.wait()
        stop_on_signals(self.stop)
        await self.stop.wait()


def _keep(name: str, loop: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    return asyncio.create_task(forever(name, loop), name=name)


def stop_on_signals(stop: asyncio.Event) -> None:
    """Set the event on SIGTERM and SIGINT."""
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)


async def run(settings: ControllerSettings) -> int:
    """Run the controller; return its exit code.

    Raises:
        RetrofitError: The controller cannot start; the text states the reason and the remedy.
    """
    configure(settings.log_format, settings.log_level)
    give_back_large_blocks()
    log = logger("controller")
    metrics, readiness, stop = Metrics(), Readiness(), asyncio.Event()
    stop_on_signals(stop)
    started = asyncio.Event()
    readiness.add("api server", lambda: None if started.is_set() else "not reached yet")
    address, secure_port = settings.bind_address, settings.secure_metrics_port
    probes = bind(address, settings.metrics_port, flag="--metrics-port")
    secure = bind_optional(address, secure_port, flag="--secure-metrics-port")
    now = SystemClock().now
    async with HealthServer(None if secure else metrics.registry, readiness).serving(probes):
        try:
            with AuditLog.to(settings.audit_log, now, log.error) as audit:
                attempt_log = AttemptLog(log=log, metrics=metrics, now=now, audit=audit)
                return await _work(settings, attempt_log, readiness, started, stop, secure=secure)
        finally:
            readiness.stop()
            if started.is_set():
                log.info("controller stopped")


async def _work(
    settings: ControllerSettings,
    attempt_log: AttemptLog,
    readiness: Readiness,
    started: asyncio.Event,
    stop: asyncio.Event,
    *,
    secure: socket.socket | None,
) -> int:
    log, metrics = attempt_log.log, attempt_log.metrics
    connected = partial(
        connect, settings.kubeconfig, settings.context, on_call=call_counter(metrics)
    )
    async with (
        await connected() as client,
        # A client of its own: load must never delay the renewal of the Lease.
        await connected() as lease_client,
        # The Lease's client may write without holding the Lease, and a review is a create.
        scraped(secure, metrics.registry, TokenReviews(lease_client), SystemClock()),
    ):
        client.tell_left_out(logger("controller.client").warning)
        waiting = asyncio.create_task(_wait(client, settings, log.warning))
        if not await _unless_stopped(waiting, stop):
            return 0
        started.set()
        controller = _assemble(
            settings, client, lease_client, attempt_log=attempt_log, readiness=readiness, stop=stop
        )
        readiness.add("policies", controller.unready)
        readiness.note("kyverno", lambda: controller.cluster_watches.kyverno.description)
        relax_collector()
        log.info("controller started", server=client.address)
        return await controller.run()


async def _wait(client: Client, settings: ControllerSettings, warn: Callable[[str], None]) -> None:
    await client.wait_until_served(warn, limit=settings.startup_timeout)
    kinds = (*controller_kinds(settings.installation), *exception_kinds(settings))
    await wait_for_kinds(client, warn, kinds)


async def _unless_stopped(work: asyncio.Task[None], stop: asyncio.Event) -> bool:
    stopping = asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if work in done:
        work.result()
        return True
    work.cancel()
    return False


def _assemble(
    settings: ControllerSettings,
    client: Client,
    lease_client: Client,
    *,
    attempt_log: AttemptLog,
    readiness: Readiness,
    stop: asyncio.Event,
) -> Controller:
    clock, identity = SystemClock(), new_identity(settings.pod_uid)
    log, metrics = attempt_log.log, attempt_log.metrics
    election = Election(
        lease_client,
        clock,
        namespace=settings.namespace,
        identity=identity,
        timing=Timing(
            duration=settings.lease_duration,
            renew=settings.lease_renew,
            retry=settings.lease_retry,
        ),
        pod=settings.pod_uid,
        warn=lambda text: log.warning("cannot hold the Lease", reason=text),
    )
    client.allow_writes(lambda: election.leading)
    base = Base.of(client, settings, clock, log.warning)
    events = KubeEvents(client, clock, instance=identity)
    observers = observers_of(base, events, attempt_log)
    services = Services.of(base, observers)
    passes = catch_up_passes(services, observers)
    leader_events = LeaderEvents(events=events, leading=lambda: election.leading)
    cluster_watches = ClusterWatches(
        base=base,
        services=services,
        report=SettingsReport(
            name=settings.installation.settings, log=log, metrics=metrics, events=leader_events
        ),
        kyverno=kyverno_detector(client, settings, clock, log.warning),
        metrics=metrics,
        events=leader_events,
        languages=tuple(OptionalLanguage.all(base)),
    )
    hooks = DeclaredHooks.of(base, leader_events, lambda: election.term)
    leadership = Leadership(
        dispatcher=services.dispatcher,
        observers=observers,
        jobs={
            **sharded(services, observers),
            **singleton(services, observers, passes),
            **hooks.jobs,
        },
        prepared=cluster_watches.known,
    )
    controller = Controller(
        settings=settings,
        gauges=Gauges(
            metrics=metrics,
            services=services,
            observers=observers,
            events=events,
            passes=passes,
            leading=leader_events.leading,
        ),
        readiness=readiness,
        election=election,
        leadership=leadership,
        events=events,
        cluster_watches=cluster_watches,
        operator=Operator(
            client,
            controller_kinds(settings.installation),
            page=settings.list_page,
            identity=identity,
            stop=stop,
            registry=build_registry(services, passes, hooks),
        ),
        log=log,
        stop=stop,
        exceptions=None
        if base.of_exceptions is None
        else ExceptionInformer(
            installation=settings.installation,
            index=base.exceptions,
            watch=base.of_exceptions,
            wake=services.dispatcher.wake,
            log=log,
        ),
    )
    cluster_watches.kinds_changed.subscribe(hooks.hooks.look)
    runs = HookRunCounter(metrics=metrics)
    runs.watch(hooks.hooks.accounts)
    hooks.hooks.dispatcher.ran.subscribe(runs.ran)
    election.started.subscribe(controller.lead)
    election.lost.subscribe(controller.on_lost)
    leadership.failed.subscribe(controller.on_failed)
    return controller
