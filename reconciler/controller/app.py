"""Composition of the controller process and its life from start to drain."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from reconciler.api.updaterequest import RequestSpec, RequestStatus, UpdateRequest
from reconciler.clock import Clock, SystemClock
from reconciler.config import ControllerSettings
from reconciler.controller.attempt_log import AttemptLog
from reconciler.controller.catchup import rounds_of
from reconciler.controller.cluster_watches import ClusterWatches, LeaderEvents
from reconciler.controller.exceptions import ExceptionFollower
from reconciler.controller.gauges import Gauges
from reconciler.controller.handlers import build_registry
from reconciler.controller.leader import Leadership
from reconciler.controller.observers import Observers
from reconciler.controller.operator import Operator
from reconciler.errors import RetrofitError
from reconciler.kube.backlog import KubeBoard
from reconciler.kube.client import Client, connect
from reconciler.kube.events import KubeEvents
from reconciler.kube.lease import Election, Timing, new_identity
from reconciler.kube.leases import KubeLeases
from reconciler.kube.policies import EXCEPTIONS
from reconciler.kube.preflight import CONTROLLER_KINDS, wait_for_kinds
from reconciler.kube.reports import KubeReports
from reconciler.kube.watch import BEAT, Watch
from reconciler.observe.calls import call_counter
from reconciler.observe.health import HealthServer, Readiness
from reconciler.observe.listening import bind
from reconciler.observe.logs import Logger, configure, logger
from reconciler.observe.loops import forever
from reconciler.observe.memory import relax_collector
from reconciler.observe.metrics import Metrics, create_metrics
from reconciler.observe.settings import SettingsReport
from reconciler.services.catalog.exceptions import ExceptionIndex, ExceptionSettings
from reconciler.services.catalog.settings import SettingsHolder
from reconciler.services.catchup.passes import Rounds
from reconciler.services.processing.attempt import Attempt
from reconciler.services.processing.backlog_publisher import BacklogPublisher
from reconciler.services.recording.backlog import marks_of
from reconciler.services.reporting.events import EventRecorder
from reconciler.services.reporting.policy_reports import Reports
from reconciler.services.reporting.policy_status import Progress
from reconciler.services.upkeep.coexistence import KyvernoDetector
from reconciler.services.upkeep.permission_watch import PermissionWatch
from reconciler.wiring import Services, controller_services


@dataclass(slots=True, kw_only=True)
class Controller:
    """One controller process."""

    settings: ControllerSettings
    client: Client
    services: Services
    accounts: Observers
    rounds: Rounds
    metrics: Metrics
    readiness: Readiness
    election: Election
    leadership: Leadership
    events: KubeEvents
    surroundings: ClusterWatches
    operator: Operator
    stop: asyncio.Event
    lost: asyncio.Event
    exceptions: ExceptionFollower | None = None

    def _gauges(self) -> Gauges:
        return Gauges(
            metrics=self.metrics,
            services=self.services,
            accounts=self.accounts,
            events=self.events,
            rounds=self.rounds,
            leading=lambda: self.election.leading,
        )

    def unready(self) -> str | None:
        """Return why the policies and requests are not watched, None when they are."""
        problem = self.operator.watches.problem()
        if problem is None and self.exceptions is not None:
            problem = self.exceptions.unready()
        return problem

    async def run(self) -> int:
        """Work until told to stop, or until the Lease is lost; return the exit code."""
        background = [
            asyncio.create_task(self.operator.run(), name="operator"),
            asyncio.create_task(self._honour_signals(), name="signals"),
            _keep("events", self.events.run()),
            _keep("gauges", self._gauges().run()),
            _keep("surroundings", self.surroundings.run()),
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
            # What began under a Lease that is lost belongs to somebody else now.
            drain = 0.0 if self.lost.is_set() else self.settings.drain_timeout
            await self.leadership.stop(drain)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.events.flush(), 2.0)
            # Only now, when nothing of ours writes any more, may another process lead.
            electing.cancel()
            await asyncio.gather(electing, return_exceptions=True)
            for task in (*background, stopping):
                task.cancel()
            await asyncio.gather(*background, stopping, return_exceptions=True)

    async def _honour_signals(self) -> None:
        # kopf takes the signals for itself when it starts, and would end before our work has.
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
        RetrofitError: It cannot start; the text says why and what to do.
    """
    configure(settings.log_format, settings.log_level)
    log = logger("controller")
    metrics, readiness, stop = create_metrics(), Readiness(), asyncio.Event()
    stop_on_signals(stop)
    started = asyncio.Event()
    readiness.add("api server", lambda: None if started.is_set() else "not reached yet")
    health = HealthServer(metrics.registry, readiness)
    await health.start(bind(settings.bind_address, settings.metrics_port, flag="--metrics-port"))
    try:
        async with _clients(settings, metrics) as (client, lease_client):
            waiting = asyncio.create_task(_wait(client, settings, log.warning))
            if not await _unless_stopped(waiting, stop):
                return 0
            started.set()
            controller = _assemble(
                settings,
                client,
                lease_client,
                metrics=metrics,
                readiness=readiness,
                log=log,
                stop=stop,
            )
            readiness.add("policies", controller.unready)
            readiness.note("kyverno", lambda: controller.surroundings.neighbour.description)
            relax_collector()
            log.info("controller started", server=client.address)
            return await controller.run()
    finally:
        readiness.stop()
        await health.close()
        if started.is_set():
            log.info("controller stopped")


@contextlib.asynccontextmanager
async def _clients(
    settings: ControllerSettings, metrics: Metrics
) -> AsyncIterator[tuple[Client, Client]]:
    count = call_counter(metrics)
    client = await connect(settings.kubeconfig, settings.context, on_call=count)
    client.tell_left_out(logger("controller.client").warning)
    # Load must never starve the renewal of the Lease.
    lease_client = await connect(settings.kubeconfig, settings.context, on_call=count)
    try:
        yield client, lease_client
    finally:
        await client.close()
        await lease_client.close()


async def _wait(client: Client, settings: ControllerSettings, say: Callable[[str], None]) -> None:
    await client.wait_until_served(say, limit=settings.startup_timeout)
    kinds = (EXCEPTIONS,) if settings.enable_policy_exception else ()
    await wait_for_kinds(client, say, (*CONTROLLER_KINDS, *kinds))


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
    metrics: Metrics,
    readiness: Readiness,
    log: Logger,
    stop: asyncio.Event,
) -> Controller:
    clock, identity = SystemClock(), new_identity()
    events = KubeEvents(client, clock, instance=identity)
    reporter = AttemptLog(log=log, metrics=metrics, now=clock.now)
    event_recorder = EventRecorder(
        events=events, clock=clock, success=settings.generate_success_events
    )

    def observed(request: UpdateRequest, status: RequestStatus, attempt: Attempt) -> None:
        accounts.observe(request, status, attempt)

    def swept(spec: RequestSpec, attempt: Attempt) -> None:
        accounts.swept(spec, attempt)

    exception_settings = ExceptionSettings(
        enabled=settings.enable_policy_exception, namespaces=settings.exception_namespace
    )
    index = ExceptionIndex(exception_settings=exception_settings)
    holder = SettingsHolder.of(settings.namespace, filter_targets=settings.filter_targets)
    holder.listeners.append(
        _honour_success(event_recorder, otherwise=settings.generate_success_events)
    )
    services = controller_services(
        client,
        settings,
        clock,
        exceptions=index,
        live=holder,
        observe=observed,
        each=swept,
        say=log.warning,
        warn=event_recorder.caution,
    )
    accounts = _accounts(
        settings, client, clock, services, reporter=reporter, event_recorder=event_recorder
    )
    services.collector.before = accounts.progress.flush
    rounds = rounds_of(
        client, settings, services, holder=holder, reporter=reporter, event_recorder=event_recorder
    )
    told = LeaderEvents(events=events, leading=lambda: election.leading)
    surroundings = _surroundings(
        settings, client, clock, services, holder=holder, reporter=reporter, told=told
    )
    exceptions = None
    if exception_settings.enabled:
        exceptions = ExceptionFollower(
            index=index,
            watch=Watch(client, EXCEPTIONS, clock, beat=BEAT),
            wake=services.dispatcher.wake,
            log=log,
        )
        index.caught_up = exceptions.caught_up
    lost = asyncio.Event()

    def on_failed(error: BaseException) -> None:
        log.error("the work ended by a fault of our own: the process ends", exc_info=error)
        lost.set()
        stop.set()

    leadership = Leadership(
        services=services,
        accounts=accounts,
        permission_watch=PermissionWatch(
            waiting=services.dispatcher,
            access=services.cluster.access,
            clock=clock,
        ),
        backlog_publisher=BacklogPublisher(
            board=KubeBoard(KubeLeases(client, settings.namespace), clock),
            dispatcher=services.dispatcher,
            marks=marks_of(settings, holder),
            say=log.warning,
        ),
        rounds=rounds,
        resync=settings.resync,
        say=log.warning,
        on_failed=on_failed,
        prepared=surroundings.known,
    )

    def on_lost() -> None:
        log.error("the Lease is lost: the process ends, so that only one works")
        lost.set()
        stop.set()

    def on_started() -> None:
        log.info("leading", identity=identity)
        if election.abandoned:
            log.warning(
                "the leader before ended without giving the Lease back: what waits now is noted"
                " before it is worked on, so that a request which ends the controller is found"
            )
            services.dispatcher.suspects.expect()
        leadership.start()

    election = Election(
        lease_client,
        clock,
        namespace=settings.namespace,
        identity=identity,
        on_started=on_started,
        on_lost=on_lost,
        timing=Timing(
            duration=settings.lease_duration,
            renew=settings.lease_renew,
            retry=settings.lease_retry,
        ),
    )
    client.allow_writes(lambda: election.leading)
    return Controller(
        settings=settings,
        client=client,
        services=services,
        accounts=accounts,
        rounds=rounds,
        metrics=metrics,
        readiness=readiness,
        election=election,
        leadership=leadership,
        events=events,
        surroundings=surroundings,
        operator=Operator(
            client,
            CONTROLLER_KINDS,
            page=settings.list_page,
            identity=identity,
            stop=stop,
            registry=build_registry(
                services,
                rounds,
                namespace=settings.namespace,
                adopt=settings.take_over,
            ),
        ),
        stop=stop,
        lost=lost,
        exceptions=exceptions,
    )


def _honour_success(
    event_recorder: EventRecorder, *, otherwise: bool
) -> Callable[[SettingsHolder], None]:
    """Return what switches events for successes as the ConfigMap says, or else the flag."""

    def honour(holder: SettingsHolder) -> None:
        wanted = holder.current.success_events
        event_recorder.success = otherwise if wanted is None else wanted

    return honour


def _surroundings(
    settings: ControllerSettings,
    client: Client,
    clock: Clock,
    services: Services,
    *,
    holder: SettingsHolder,
    reporter: AttemptLog,
    told: LeaderEvents,
) -> ClusterWatches:
    log, metrics = reporter.log, reporter.metrics
    neighbour = KyvernoDetector(
        leases=KubeLeases(client, settings.namespace),
        clock=clock,
        namespace=settings.namespace,
        take_over=settings.take_over,
        say=log.warning,
    )
    return ClusterWatches(
        client=client,
        clock=clock,
        services=services,
        holder=holder,
        report=SettingsReport(log=log, metrics=metrics, events=told),
        neighbour=neighbour,
        metrics=metrics,
        events=told,
        leading=told.leading,
        say=log.warning,
    )


def _accounts(
    settings: ControllerSettings,
    client: Client,
    clock: Clock,
    services: Services,
    *,
    reporter: AttemptLog,
    event_recorder: EventRecorder,
) -> Observers:
    cluster, say = services.cluster, reporter.log.warning
    services.index.subscribe(event_recorder.on_policy)
    progress = Progress(
        index=services.index,
        policies=cluster.policies,
        clock=clock,
        waiting=services.dispatcher.unended,
        filters=lambda: services.rollout.webhook_writer.live.current.filters,
        say=say,
    )
    reports = Reports(
        store=KubeReports(client, page=settings.list_page),
        index=services.index,
        policies=cluster.policies,
        kinds=services.kinds,
        reader=cluster.reader,
        clock=clock,
        say=say,
        enabled=settings.reports,
    )
    return Observers(
        reporter=reporter, event_recorder=event_recorder, progress=progress, reports=reports
    )
