"""`retrofit-admission`: the composition root of the webhook server, and its life cycle."""

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import click

from admission.composing import RuleWebhooks, backlog_estimate, policy_webhook
from admission.digests import Digests
from admission.exceptions import ExceptionFeed, ExceptionWebhook
from admission.facts import Facts
from admission.global_entries import NamedEntries
from admission.heartbeat import Heartbeat
from admission.informers import Informer, NamespaceLabels, OnEvent, PolicyFeed
from admission.lookup import RuleLookup
from admission.roles import CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS, RoleIndex
from admission.server import WebhookServer
from reconciler.api.meta import NAMESPACES
from reconciler.clock import Clock, SystemClock
from reconciler.config import AdmissionSettings, build, options
from reconciler.dialects.registry import policy_kinds, required_kinds
from reconciler.errors import RetrofitError
from reconciler.isolation.cue import why_no_cue
from reconciler.kube.authority import CA_SECRET, TLS_SECRET, authority_watch
from reconciler.kube.backlog import backlog_handler, backlog_watch
from reconciler.kube.client import Client, connect
from reconciler.kube.discovery import KubeKinds
from reconciler.kube.events import KubeEvents
from reconciler.kube.lease import new_identity
from reconciler.kube.policies import follow_optional, policies_of
from reconciler.kube.preflight import exception_kinds, wait_for_kinds
from reconciler.kube.reader import KubeReader
from reconciler.kube.secrets import NamedSecrets
from reconciler.kube.settings import settings_watch
from reconciler.kube.tokenreviews import TokenReviews
from reconciler.kube.watch import BEAT, Watch
from reconciler.observe import logs
from reconciler.observe.audit import AuditLog
from reconciler.observe.health import HealthServer, Readiness
from reconciler.observe.listening import bind, bind_optional
from reconciler.observe.loops import forever, new_event_loop, until_signal
from reconciler.observe.memory import give_back_large_blocks, relax_collector
from reconciler.observe.metrics import Metrics, call_counter
from reconciler.observe.settings import SettingsReport
from reconciler.services.catalog.exceptions import ExceptionIndex
from reconciler.services.catalog.policy_store import PolicyStore
from reconciler.services.catalog.settings import SettingsHolder
from reconciler.services.processing.memory_budget import Readings
from reconciler.services.upkeep.coexistence import KyvernoDetector
from reconciler.serving.bodies import Bodies
from reconciler.serving.callers import Callers
from reconciler.serving.certificates import Certificates, server_names
from reconciler.serving.connections import ConnectionLimits
from reconciler.serving.http import Transport
from reconciler.serving.scraping import scraped
from reconciler.wiring.shared import exception_settings, kyverno_detector

_log = logs.logger("admission.main")

_PATIENCE = 5.0
"""Seconds to wait at the start for data that is useful but not required."""
_NEEDED = (NAMESPACES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS)


@click.command(name="retrofit-admission", context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kube-retrofit")
@options(AdmissionSettings)
def main(**values: Any) -> None:
    """Answer the API server's webhooks: record triggers as UpdateRequests, check policies.

    Every option can be given as environment variable too; durations are written as 30s or 10m.
    """
    try:
        settings = build(AdmissionSettings, values, os.environ)
        logs.configure(settings.log_format, settings.log_level)
        give_back_large_blocks()
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(run(settings))
    except RetrofitError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)


async def run(settings: AdmissionSettings) -> None:
    """Run until a signal ends it.

    Raises:
        RetrofitError: The server cannot start; the text states the reason and the remedy.
    """
    names = server_names(settings.service, settings.namespace, settings.webhook_url)
    metrics, readiness, clock = Metrics(), Readiness(), SystemClock()
    with contextlib.ExitStack() as sockets:
        # Bind ports first, so that a busy one is reported before anything else happens.
        listener = sockets.enter_context(bind(settings.bind_address, settings.port, flag="--port"))
        probes = sockets.enter_context(
            bind(settings.bind_address, settings.metrics_port, flag="--metrics-port")
        )
        secure = bind_optional(
            settings.bind_address, settings.secure_metrics_port, flag="--secure-metrics-port"
        )
        audit = sockets.enter_context(AuditLog.to(settings.audit_log, clock.now, _log.error))
        async with (
            await connect(
                settings.kubeconfig, settings.context, on_call=call_counter(metrics)
            ) as client,
            HealthServer(None if secure else metrics.registry, readiness).serving(probes),
            scraped(secure, metrics.registry, TokenReviews(client), clock),
        ):
            client.tell_left_out(_log.warning)
            callers = Callers.of(settings)
            certificates = Certificates(
                NamedSecrets(client, settings.namespace),
                names,
                clock,
                lambda pair: metrics.certificate_expiry.set(pair.until.timestamp()),
                callers,
            )
            program = Admission(
                settings=settings,
                client=client,
                clock=clock,
                metrics=metrics,
                readiness=readiness,
                certificates=certificates,
                callers=callers,
                listener=listener,
                audit=audit,
            )
            await until_signal(program.run())
    _log.info("admission stopped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """One process of the webhook server."""

    settings: AdmissionSettings
    client: Client
    clock: Clock
    metrics: Metrics
    readiness: Readiness
    certificates: Certificates
    callers: Callers
    listener: socket.socket
    audit: AuditLog

    async def run(self) -> None:
        """Start, serve until cancelled, then drain."""
        kinds = KubeKinds(self.client, self.clock)
        index = PolicyStore(
            namespace=self.settings.namespace, why_no_cue=why_no_cue(self.settings.cue)
        )
        policies = PolicyFeed(index=index, metrics=self.metrics)
        honoured = exception_settings(self.settings)
        exceptions = ExceptionFeed(ExceptionIndex(exception_settings=honoured))
        own, installation = self.settings.namespace, self.settings.installation
        holder = SettingsHolder.of(own)
        holder.changed.subscribe(
            SettingsReport(name=installation.settings, log=_log, metrics=self.metrics)
        )
        watches = {
            kind: Watch(self.client, kind, self.clock) for kind in required_kinds(installation)
        }
        optional = follow_optional(self.client, kinds, self.clock)
        of_policies = policies.informers({**watches, **optional}, self.clock)
        facts, of_facts = self._facts(exceptions)
        of_settings = settings_watch(self.client, self.clock, self.settings)
        informers = (
            *of_policies,
            *of_facts,
            self._informer("settings", of_settings, holder.on_event),
        )
        for item in informers:
            self.readiness.add(item.name, item.unready)
        estimate = backlog_estimate(self.settings, holder, self.metrics)
        backlog_lease = backlog_watch(self.client, self.clock, own)
        backlog = self._informer("backlog", backlog_lease, backlog_handler(estimate.update))
        entries = NamedEntries.of(
            self.client, self.settings, clock=self.clock, kinds=kinds, index=index
        )
        events = KubeEvents(self.client, self.clock, instance=new_identity())
        kyverno = self._kyverno(events)
        self.readiness.note("kyverno", lambda: kyverno.description)
        self.readiness.add("certificate", lambda: self.certificates.problem or None)
        await self._wait()
        heartbeat = Heartbeat(self.client, self.clock, own)
        webhooks = RuleWebhooks(
            settings=self.settings,
            client=self.client,
            clock=self.clock,
            metrics=self.metrics,
            lookup=self._lookup(facts, holder, of_policies, feed=policies, kinds=kinds),
            entries=entries.context,
            readings=Readings.before_storing(self.settings.max_reads),
            authenticated=self.callers.authenticated,
            standing_by=lambda: kyverno.standing_by,
            events=events,
            audit=self.audit,
        )
        server = WebhookServer(
            self._transport(),
            webhooks.judging(webhooks.recording(estimate, heartbeat.missed)),
            webhooks.mutating(heartbeat.missed),
            policy_webhook(
                self.client,
                self.settings,
                kinds,
                holder,
                entries=entries,
                authenticated=self.callers.authenticated,
            ).review,
            ExceptionWebhook(honoured).review,
            metrics=self.metrics,
            # The other half is for the network and for the answers of other webhooks.
            budget=self.settings.webhook_timeout / 2,
            lost=heartbeat.missed,
        )
        async with asyncio.TaskGroup() as tasks:
            _follow(tasks, *informers, backlog)
            tasks.create_task(forever("GlobalContextEntries", entries.run(self.metrics)))
            await self._known(informers, backlog_lease, entries)
            self._keep_certificates(tasks)
            tasks.create_task(forever("live Kyverno", kyverno.run()))
            tasks.create_task(forever("events", events.run()))
            async with self._serving(server):
                tasks.create_task(forever("heartbeat", heartbeat.run()))
                relax_collector()
                await asyncio.Event().wait()

    async def _known(
        self, informers: Sequence[Informer], backlog_lease: Watch, entries: NamedEntries
    ) -> None:
        """Return when there is enough data to answer requests."""
        for item in informers:
            await item.watch.synced.wait()
        # Without the backlog, the estimate counts only its own requests. A rule without its
        # entries fails by itself. Neither makes the server unready.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await asyncio.gather(backlog_lease.synced.wait(), entries.context.begun())

    @contextlib.asynccontextmanager
    async def _serving(self, server: WebhookServer) -> AsyncIterator[None]:
        """Answer requests; must end before the watches do, because answers depend on them."""
        await server.start(self.listener, lambda: self.certificates.context)
        _log.info("serving", port=self.listener.getsockname()[1], server=self.client.address)
        try:
            yield
        finally:
            self.readiness.stop()
            await server.close()

    def _transport(self) -> Transport:
        settings = self.settings
        bodies = Bodies(
            largest=settings.max_body,
            together=settings.max_bodies,
            timeout=settings.body_timeout,
        )
        self.metrics.bodies_held.set_function(lambda: bodies.held)
        return Transport(
            bodies=bodies,
            drain_timeout=settings.drain_timeout,
            clock=self.clock,
            metrics=self.metrics,
            callers=self.callers,
            limits=ConnectionLimits(
                connections=settings.max_connections, header_timeout=settings.header_timeout
            ),
        )

    async def _wait(self) -> None:
        """Return when the cluster serves what the program requires."""
        await self.client.wait_until_served(_warn, limit=self.settings.startup_timeout)
        kinds = (*required_kinds(self.settings.installation), *_NEEDED)
        await wait_for_kinds(self.client, _warn, (*kinds, *exception_kinds(self.settings)))
        await self.certificates.obtain(_warn)

    def _informer(self, name: str, watch: Watch, on_event: OnEvent) -> Informer:
        return Informer(name=name, watch=watch, on_event=on_event, clock=self.clock)

    def _facts(self, exceptions: ExceptionFeed) -> tuple[Facts, tuple[Informer, ...]]:
        """Return the data besides policies that decisions depend on, and its informers."""
        namespaces, roles = NamespaceLabels(), RoleIndex()
        watch = partial(Watch, self.client, clock=self.clock, beat=BEAT)
        of_namespaces = self._informer(
            "namespaces", watch(NAMESPACES, metadata_only=True), namespaces.on_event
        )
        of_roles = tuple(
            self._informer(kind.plural, watch(kind), roles.on_event)
            for kind in (ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS)
        )
        of_exceptions = tuple(
            exceptions.informer(watch(kind), self.clock) for kind in exception_kinds(self.settings)
        )
        facts = Facts(
            namespaces=namespaces.by_name,
            roles=roles,
            reader=KubeReader(self.client),
            clock=self.clock,
            exceptions=exceptions.index,
            of_namespaces=of_namespaces.watch,
            of_roles=tuple(item.watch for item in of_roles),
            of_exceptions=tuple(item.watch for item in of_exceptions),
        )
        return facts, (of_namespaces, *of_roles, *of_exceptions)

    def _kyverno(self, events: KubeEvents) -> KyvernoDetector:
        kyverno = kyverno_detector(self.client, self.settings, self.clock, _log.warning)

        def honour() -> None:
            self.metrics.kyverno_live.set(1 if kyverno.found else 0)
            if kyverno.found:
                events.emit(kyverno.event)

        kyverno.changed.subscribe(honour)
        return kyverno

    def _keep_certificates(self, tasks: asyncio.TaskGroup) -> None:
        tasks.create_task(forever("certificate", self.certificates.run()))
        for secret in (CA_SECRET, TLS_SECRET):
            watch = authority_watch(self.client, self.clock, self.settings.namespace, secret)
            _follow(tasks, self._informer(secret, watch, lambda *_: self.certificates.look()))

    def _lookup(
        self,
        facts: Facts,
        holder: SettingsHolder,
        of_policies: Sequence[Informer],
        *,
        feed: PolicyFeed,
        kinds: KubeKinds,
    ) -> RuleLookup:
        async def caught_up() -> None:
            for item in of_policies:
                await item.watch.caught_up()

        async def read_policies() -> None:
            # The policy may be the first of its kind since the kind was installed.
            if away := [item for item in of_policies if item.watch.absent]:
                kinds.invalidate()
            for item in away:
                item.watch.look()
            served = [
                kind
                for kind in policy_kinds(self.settings.installation)
                if await kinds.find(kind.api_version, kind.kind)
            ]
            async for policy in policies_of(KubeReader(self.client), served):
                await feed.index.prepare(policy)
                feed.on_event("MODIFIED", policy)

        return RuleLookup(
            index=feed.index,
            facts=facts,
            digests=Digests(read_policies=read_policies, clock=self.clock),
            kinds=kinds,
            settings=holder,
            caught_up=caught_up,
            is_caught_up=lambda: all(item.watch.is_caught_up() for item in of_policies),
        )


def _follow(tasks: asyncio.TaskGroup, *informers: Informer) -> None:
    for item in informers:
        tasks.create_task(forever(item.name, item.run()))
        tasks.create_task(forever(f"problems of {item.name}", item.tell()))


def _warn(text: str) -> None:
    _log.warning("waiting", reason=text)


if __name__ == "__main__":
    main()
