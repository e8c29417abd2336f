"""Watches of the controller beside its own kinds, on every replica, so that a new leader is ready.

They cover the settings, the kinds that the cluster serves, the webhook configurations, the
namespace of the programs, and a live Kyverno. Only the leader acts on the findings.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from reconciler.api.meta import NAMESPACES, Object, ref_of
from reconciler.controller.languages import OptionalLanguage, tell_watch
from reconciler.kube.authority import CA_SECRET, TLS_SECRET, authority_watch
from reconciler.kube.definitions import DEFINITIONS
from reconciler.kube.settings import settings_watch
from reconciler.kube.watch import Watch
from reconciler.kube.webhooks import WEBHOOK_KINDS
from reconciler.observe.loops import run_loops
from reconciler.observe.metrics import Metrics
from reconciler.observe.settings import SettingsReport
from reconciler.services.jobs import WarnsOnce, repeat
from reconciler.services.ports.policies import Change
from reconciler.services.ports.reporting import Event, Events
from reconciler.services.ports.webhooks import MANAGED_BY, ConfigurationRef
from reconciler.services.upkeep.coexistence import KyvernoDetector
from reconciler.signals import Signal
from reconciler.wiring.base import Base
from reconciler.wiring.controller import Services

# A definition is served some time after its last event: read discovery soon, and twice more.
_LOOKS = (0.3, 1.0, 3.0)
_PATROL = 2.0
_PATIENCE = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderEvents:
    """Emits events as the leader; other replicas see the same and stay silent."""

    events: Events
    leading: Callable[[], bool]

    def emit(self, event: Event) -> None:
        """Queue one event if this process leads."""
        if self.leading():
            self.events.emit(event)


@dataclass(slots=True, kw_only=True)
class ClusterWatches:
    """Runs the watches from start to end of the process.

    Attributes:
        languages: Policy languages that the cluster need not have.
        kinds_changed: Emitted when the served kinds may have changed.
    """

    base: Base
    services: Services
    report: SettingsReport
    kyverno: KyvernoDetector
    metrics: Metrics
    events: LeaderEvents
    languages: Sequence[OptionalLanguage]
    kinds_changed: Signal[[]] = field(default_factory=Signal)
    _kinds_changed: asyncio.Event = field(default_factory=asyncio.Event)
    _secret_gone: asyncio.Event = field(default_factory=asyncio.Event)
    _settings: Watch = field(init=False)

    def __post_init__(self) -> None:
        base = self.base
        self._settings = settings_watch(base.client, base.clock, base.settings)
        base.live.changed.subscribe(self.report)
        base.live.changed.subscribe(lambda _: self.services.rollout.wake())
        self.kyverno.changed.subscribe(self._honour_kyverno)
        self.services.rollout.webhook_writer.restored.subscribe(self._tell_restored)
        self.services.entries.verdicts.judged.subscribe(self._tell_entry)

    async def run(self) -> None:
        """Watch until cancelled."""
        base, warn = self.base, self.base.warn
        namespace, client, clock = base.live.namespace, base.client, base.clock
        marked = f"{MANAGED_BY}={base.settings.installation.prefix}"
        watches = {
            "settings": (self._settings, base.live.on_event),
            **{
                kind.plural: (Watch(client, kind, clock, labels=marked), self._take_configuration)
                for kind in WEBHOOK_KINDS
            },
            "certificate authority": (
                authority_watch(client, clock, namespace, CA_SECRET),
                self._take_authority,
            ),
            "certificate": (
                authority_watch(client, clock, namespace, TLS_SECRET),
                self._take_certificate,
            ),
            "namespace": (
                Watch(client, NAMESPACES, clock, name=namespace, metadata_only=True),
                self._take_namespace,
            ),
        }
        definitions = Watch(client, DEFINITIONS, clock, metadata_only=True)
        loops: dict[str, Awaitable[None]] = {
            "live Kyverno": self.kyverno.run(),
            "kinds": self._honour_kinds(),
            "certificates": self._restore_secrets(),
            "definitions": self._follow_definitions(definitions),
            "problems of definitions": tell_watch("customresourcedefinitions", definitions, warn),
        }
        for language in self.languages:
            loops |= language.loops()
        for name, (watch, on_event) in watches.items():
            loops[name] = _follow(watch, on_event)
            loops[f"problems of {name}"] = tell_watch(name, watch, warn)
        await run_loops(loops)

    async def known(self) -> None:
        """Return when the settings and the Kyverno detector are ready, or a time limit passed."""
        try:
            async with asyncio.timeout(_PATIENCE):
                await self.kyverno.looked.wait()
                await self._settings.synced.wait()
        except TimeoutError:
            self.base.warn(
                "leading before the settings were read and a live Kyverno was looked for: the"
                f" API server did not answer within {_PATIENCE:g}s"
            )
        self.report.again(self.base.live)
        self._warn_of_kyverno()
        self._secret_gone.set()

    def _take_authority(self, change: Change, secret: Object) -> None:
        self._take_certificate(change, secret)
        self.services.rollout.wake()

    def _take_certificate(self, change: Change, _secret: Object) -> None:
        if change == "DELETED":
            self._secret_gone.set()

    async def _restore_secrets(self) -> None:
        await repeat(
            self._restore,
            woken=self._secret_gone,
            at_once=False,
            pauses=(_PATROL, _PATROL),
            tell=WarnsOnce(warn=self.base.warn).tell,
            failing="cannot create the Secrets of the certificates: ",
        )

    async def _restore(self) -> None:
        self._secret_gone.clear()
        if self.events.leading():
            await self.base.cluster.authority.restore()

    def _take_configuration(self, change: Change, configuration: Object) -> None:
        rollout = self.services.rollout
        if change == "DELETED" or not rollout.webhook_writer.is_own(configuration):
            rollout.wake()

    def _take_namespace(self, change: Change, namespace: Object) -> None:
        meta = namespace["metadata"]
        ending = change == "DELETED" or bool(meta.get("deletionTimestamp"))
        if ending != self.services.rollout.ending:
            self.services.rollout.end(ending=ending)

    async def _follow_definitions(self, watch: Watch) -> None:
        async for _ in watch.events():
            # The definitions of the first list are found by discovery anyway.
            if watch.synced.is_set():
                self._kinds_changed.set()

    async def _honour_kinds(self) -> None:
        await repeat(self._look_for_kinds, woken=self._kinds_changed, at_once=False)

    async def _look_for_kinds(self) -> None:
        self._kinds_changed.clear()
        for pause in _LOOKS:
            await asyncio.sleep(pause)
            self.base.cluster.kinds.invalidate()
            for watch in self.base.cluster.policies.optional.values():
                watch.look()
            self.kinds_changed.emit()
            self.services.rollout.wake()

    def _honour_kyverno(self) -> None:
        reason = self.kyverno.standing_by
        self.metrics.kyverno_live.set(1 if self.kyverno.found else 0)
        self.services.dispatcher.hold(held=bool(reason))
        self.services.rollout.hold(reason)
        self._warn_of_kyverno()

    def _warn_of_kyverno(self) -> None:
        if self.kyverno.found:
            self.events.emit(self.kyverno.event)

    def _tell_restored(self, ref: ConfigurationRef, text: str) -> None:
        self.metrics.webhooks_restored.labels(kind=ref.kind, configuration=ref.name).inc()
        self.base.warn(f"restored {ref}: {text}")
        self.events.emit(
            Event(
                regarding={
                    "apiVersion": WEBHOOK_KINDS[0].api_version,
                    "kind": ref.kind,
                    "name": ref.name,
                },
                severity="Warning",
                reason="WebhookRestored",
                action="Restore",
                note=text,
            )
        )

    def _tell_entry(self, entry: Object, problem: str) -> None:
        self.metrics.entry_failures.inc(bool(problem))
        known = (entry.get("status") or {}).get("conditions")
        if not problem and not known:
            return  # A new entry that is readable needs no event.
        self.events.emit(
            Event(
                regarding=ref_of(entry).reference,
                severity="Warning" if problem else "Normal",
                reason="EntryNotReady" if problem else "EntryReady",
                action="None",
                note=problem or "rules can read it again",
            )
        )


async def _follow(watch: Watch, on_event: Callable[[Change, Object], None]) -> None:
    async for change, obj in watch.events():
        on_event(change, obj)
