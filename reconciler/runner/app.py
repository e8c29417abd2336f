"""Composition of the hooks program, and its life from start to drain."""

import asyncio
import contextlib
import os
import sys
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from reconciler.api.kinds import kinds_of
from reconciler.api.meta import Object
from reconciler.clock import Clock, SystemClock
from reconciler.errors import Forbidden, InvalidSetting, NoKindMatch, RetrofitError
from reconciler.execution.environment import clean_environment
from reconciler.execution.executables import Executables
from reconciler.execution.limits import HookLimits
from reconciler.execution.runs import ExecutableRuns
from reconciler.execution.workspace import clear
from reconciler.hooks.declared import HOOKS
from reconciler.hooks.metrics import HookMetrics
from reconciler.installation import REPLACING
from reconciler.isolation.jq import JqWorkers
from reconciler.kube.client import Client, connect
from reconciler.kube.events import KubeEvents
from reconciler.kube.hookregistry import KubeHookRegistry
from reconciler.kube.lease import LEASE_NAME, Election, new_identity
from reconciler.kube.leases import KubeLeases
from reconciler.kube.retrying import until_done
from reconciler.kube.tokenreviews import TokenReviews
from reconciler.kube.watch import Watch
from reconciler.observe.health import HealthServer, Readiness
from reconciler.observe.hookmetrics import HookProgramMetrics
from reconciler.observe.listening import bind, bind_optional
from reconciler.observe.logs import Logger, configure, logger
from reconciler.observe.loops import run_loops, until_signal
from reconciler.observe.memory import relax_collector
from reconciler.requests.adoption import read_hook_request
from reconciler.runner.finding import FoundHooks, find_hooks
from reconciler.runner.output import RunOutput
from reconciler.runner.settings import RunnerSettings
from reconciler.runner.webhooks import Servers, WebhookDeps
from reconciler.services.hooks.registration import HookRegistrar
from reconciler.serving.scraping import scraped
from reconciler.wiring.answering import AnsweringHooks
from reconciler.wiring.executables import ExecutableHooks
from reconciler.wiring.webhooks import CalledHooks

_LEASE: Final = "kube-retrofit-hooks"
_TICK: Final = 10.0
_GRACE: Final = 2.0
_AT_ONCE: Final = 0.1
"""Seconds from SIGTERM to SIGKILL; `_AT_ONCE` applies while the API server waits."""
_FORMATS: Final = {"json": "json", "text": "console", "color": "console"}
_OWN_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


async def run(settings: RunnerSettings, notes: tuple[str, ...]) -> None:
    """Log the notes on settings without effect, and run until a signal ends it.

    Raises:
        RetrofitError: The program cannot start or has lost its Lease; the text says why.
    """
    configure(
        _FORMATS[settings.log_type],
        settings.log_level,
        colours=settings.log_type == "color",
        timed=settings.log_time,
    )
    log = logger("hooks")
    for note in notes:
        log.warning(note)
    metrics, readiness = HookProgramMetrics(settings.prefix), Readiness()
    reported = HookMetrics()
    clear(settings.tmp_dir)
    more = {"/metrics/hooks": reported.exposition}
    address, secure_port = settings.listen_address, settings.secure_metrics_port
    listener = bind(address, settings.listen_port, flag="--listen-port")
    secure = bind_optional(address, secure_port, flag="--secure-metrics-port")
    jq = JqWorkers()
    connected = partial(
        connect, settings.kube_config, settings.kube_context, on_call=metrics.on_call
    )
    server = HealthServer(None if secure else metrics.registry, readiness, more)
    async with server.serving(listener):
        try:
            async with (
                await connected() as client,
                # A client of its own: load must never delay the renewal of the Lease.
                await connected() as lease_client,
                # The Lease's client may write without holding the Lease, and a review is a create.
                scraped(secure, metrics.registry, TokenReviews(lease_client), SystemClock(), more),
            ):
                client.tell_left_out(logger("hooks.client").warning)
                program = Program(
                    settings=settings,
                    client=client,
                    lease_client=lease_client,
                    clock=SystemClock(),
                    jq=jq,
                    metrics=metrics,
                    reported=reported,
                    readiness=readiness,
                    log=log,
                )
                await until_signal(program.run())
        finally:
            readiness.stop()
            await jq.close()
            log.info("hooks stopped")


@dataclass(slots=True, kw_only=True)
class Program:
    """One process of the hooks program."""

    settings: RunnerSettings
    client: Client
    lease_client: Client
    clock: Clock
    jq: JqWorkers
    metrics: HookProgramMetrics
    reported: HookMetrics
    readiness: Readiness
    log: Logger
    _started: bool = False
    _won: asyncio.Event = field(default_factory=asyncio.Event)
    _lost: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Start, wait for the Lease, and work until cancelled."""
        self.readiness.add("hooks", lambda: None if self._started else "not loaded yet")
        namespace = self.settings.namespace or own_namespace()
        await self.client.wait_until_served(self.log.warning)
        await until_done(lambda: self._check(namespace), self.log.warning)
        executables = self._executables()
        found = await find_hooks(
            self.settings.hooks_dir,
            executables,
            self.jq,
            namespace=namespace,
            stored=await self._stored(namespace),
            warn=self.log.error,
        )
        self.log.info("hooks found", hooks=[hook.spec["executable"] for hook in found.registered])
        identity = new_identity(self.settings.pod_uid)
        election = Election(
            self.lease_client,
            self.clock,
            namespace=namespace,
            identity=identity,
            name=_LEASE,
            timing=self.settings.lease,
            pod=self.settings.pod_uid,
            warn=lambda text: self.log.warning("cannot hold the Lease", reason=text),
        )
        self.client.allow_writes(lambda: election.leading)
        election.started.subscribe(self._won.set)
        election.lost.subscribe(self._lost.set)
        events = KubeEvents(self.client, self.clock, instance=identity)
        proxied = sys.stdout if self.settings.proxy_json else None
        output = RunOutput(log=self.log, metrics=self.metrics, known=found.known, proxied=proxied)
        runs = self._runs(executables, found, output)
        answering = AnsweringHooks.of(
            self.client,
            self.clock,
            namespace=namespace,
            hooks=found.answering,
            answers=replace(runs, executables=replace(executables, limits=self._limits(_AT_ONCE))),
            parallel=self.settings.hook_parallel,
            jq=self.jq,
            events=events,
        )
        servers = Servers.of(self._webhook_deps(namespace), answering)
        called = CalledHooks.of(
            self.client,
            answering,
            namespace=namespace,
            name=self.settings.configuration,
            endpoints=servers.endpoints,
            complete=not any(hook.refused for hook in found.registered),
            warn=self.log.warning,
        )
        hooks = ExecutableHooks.of(
            self.client,
            self.clock,
            namespace=namespace,
            installation=self.settings.installation,
            specs=found.specs,
            runs=runs,
            called=called,
            jq=self.jq,
            events=events,
            term=lambda: election.term,
            warn=self.log.warning,
        )
        hooks.hooks.dispatcher.ran.subscribe(output.ran)
        relax_collector()
        self._started = True
        await run_loops(
            {
                "election": election.run(),
                "lease": self._end_when_lost(),
                "events": events.run(),
                "snapshots": answering.snapshots.run(),
                **servers.loops,
                "hooks": self._lead(namespace, found, hooks, called),
                "gauges": self._tick(found, hooks),
            }
        )

    async def _stored(self, namespace: str) -> list[Object]:
        """Return the Hooks of earlier processes, once they can be read."""
        found: list[Object] = []

        async def read() -> None:
            found[:] = await KubeHookRegistry(self.client, self.clock, namespace).stored()

        await until_done(read, self.log.warning)
        return found

    def _executables(self) -> Executables:
        settings = self.settings
        return Executables(
            folder=settings.tmp_dir,
            environment=clean_environment(os.environ, settings.hook_env),
            limits=self._limits(_GRACE),
            keep_files=settings.keep_files,
        )

    def _limits(self, grace: float) -> HookLimits:
        return HookLimits(memory=self.settings.hook_memory, grace=grace)

    def _runs(
        self, executables: Executables, found: FoundHooks, output: RunOutput
    ) -> ExecutableRuns:
        return ExecutableRuns(
            executables=executables,
            known=found.known,
            metrics=self.reported,
            observer=output,
            seconds=self.settings.hook_timeout or None,
        )

    def _webhook_deps(self, namespace: str) -> WebhookDeps:
        return WebhookDeps(
            settings=self.settings,
            # Every replica serves the certificate, and the other client writes only as leader.
            client=self.lease_client,
            clock=self.clock,
            metrics=self.metrics,
            readiness=self.readiness,
            namespace=namespace,
        )

    async def _check(self, namespace: str) -> None:
        """Check whether the program can work in a namespace."""
        installation = self.settings.installation
        for kind in (HOOKS, kinds_of(installation).requests):
            try:
                await self.client.resource(kind).get(namespace=namespace, limit=1, serialize=False)
            except NoKindMatch as error:
                folder = "crds" if installation is REPLACING else "crds/beside"
                raise NoKindMatch(
                    f"the cluster does not serve {kind.resource}:"
                    f" kubectl apply -k {folder}, and kubectl apply -k crds/hooks"
                ) from error
            except Forbidden as error:
                folder = "hooks" if installation is REPLACING else "hooks-beside"
                raise Forbidden(
                    f"no right to {error.permission}: apply manifests/{folder} in this namespace",
                    permission=error.permission,
                ) from error
        if await KubeLeases(self.client, namespace).lease(LEASE_NAME) is not None:
            raise InvalidSetting(
                f"namespace {namespace} is used by retrofit-controller, which would process the"
                " requests of executables as its own: run retrofit-hooks in another namespace"
            )

    async def _lead(
        self, namespace: str, found: FoundHooks, hooks: ExecutableHooks, called: CalledHooks
    ) -> None:
        await self._won.wait()
        self.log.info("leading", namespace=namespace)
        registration = HookRegistrar(
            registry=KubeHookRegistry(self.client, self.clock, namespace),
            hooks=found.registered,
            warn=self.log.warning,
        )
        await run_loops(
            {
                "registration": registration.run(),
                **called.loops(self.client, self.clock),
                "queues": self._run(hooks, registration.tried),
                "requests": self._follow(namespace, hooks),
                "finished requests": hooks.collector.run(),
            }
        )

    async def _run(self, hooks: ExecutableHooks, registered: asyncio.Event) -> None:
        """Run the hooks once all are stored, because their runs at the start have an order."""
        await registered.wait()
        await hooks.hooks.run()

    async def _follow(self, namespace: str, hooks: ExecutableHooks) -> None:
        """Pass on changes of requests by others: deletions, and requested attempts."""
        kind = kinds_of(self.settings.installation).requests
        watch = Watch(self.client, kind, self.clock, namespace=namespace)
        async for change, obj in watch.events():
            request = read_hook_request(obj)
            if request is None:
                continue
            if change == "DELETED":
                hooks.hooks.dispatcher.remove(request.name)
                hooks.collector.on_deleted(request)
            else:
                hooks.hooks.dispatcher.on_stored(request)
                hooks.collector.on_stored(request)

    async def _tick(self, found: FoundHooks, hooks: ExecutableHooks) -> None:
        while True:
            self.metrics.live_ticks.inc()
            waiting: dict[str, int] = {}
            for ref in found.known:
                account = hooks.hooks.accounts.of(ref)
                for name, queue in account.queues.items() if account is not None else ():
                    waiting[name] = waiting.get(name, 0) + queue.waiting
            for name, count in waiting.items():
                self.metrics.queue_length.labels(name).set(count)
            await asyncio.sleep(_TICK)

    async def _end_when_lost(self) -> None:
        await self._lost.wait()
        raise RetrofitError("lost the Lease: exiting, so that only the new leader works")


def own_namespace() -> str:
    """Return the namespace of the Pod that this process runs in, or ``default``."""
    with contextlib.suppress(OSError):
        return _OWN_NAMESPACE.read_text(encoding="utf-8").strip()
    return "default"
