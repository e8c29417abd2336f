"""The caches of the webhooks, kept in sync with the cluster by watches."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

from reconciler.api.meta import Kind, Object, PolicyRef, policy_ref
from reconciler.clock import Clock
from reconciler.errors import InvalidPolicy
from reconciler.kube.watch import Watch
from reconciler.observe.logs import logger
from reconciler.observe.metrics import Metrics
from reconciler.observe.problems import tell_problems
from reconciler.services.catalog.policy_store import PolicyStore
from reconciler.services.ports.objects import Reader
from reconciler.services.ports.policies import Change

_log = logger("admission.informers")

# A watch receives a bookmark about every minute and is reopened after some more.
_SILENCE = 150.0
_PATROL = 1.0

OnEvent = Callable[[Change, Object], None]
Prepare = Callable[[Object], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFeed:
    """Updates the policy index."""

    index: PolicyStore
    metrics: Metrics

    def informers(self, watches: Mapping[Kind, Watch], clock: Clock) -> tuple["Informer", ...]:
        """Return an informer for the policies of each kind."""
        return tuple(
            Informer(
                name=kind.plural,
                watch=watch,
                on_event=self.on_event,
                clock=clock,
                prepare=self.index.prepare,
            )
            for kind, watch in watches.items()
        )

    def on_event(self, change: Change, policy: Object) -> None:
        """Apply one change."""
        ref = policy_ref(policy)
        if change == "DELETED":
            self.index.on_deleted(policy)
            _log.info("policy removed", policy=ref.key)
        else:
            self._apply(ref, policy)
        self.metrics.policies.labels(state="ready").set(len(self.index.policies()))
        self.metrics.policies.labels(state="invalid").set(len(self.index.invalid()))

    def _apply(self, ref: PolicyRef, policy: Object) -> None:
        known = self.index.get(ref)
        compiled = self.index.apply(policy)
        if isinstance(compiled, InvalidPolicy):
            _log.warning("policy cannot be used", policy=ref.key, reason=str(compiled))
        elif self.index.get(ref) is not known:
            _log.info("policy in use", policy=ref.key, generation=compiled.generation)


@dataclass(frozen=True, slots=True)
class NamespaceLabels:
    """Labels by namespace."""

    by_name: dict[str, Mapping[str, str]] = field(default_factory=dict)

    def on_event(self, change: Change, namespace: Object) -> None:
        """Apply one change."""
        meta = namespace["metadata"]
        if change == "DELETED":
            self.by_name.pop(meta["name"], None)
        else:
            self.by_name[meta["name"]] = meta.get("labels") or {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Informer:
    """A watch and the callback that is called with its changes.

    Attributes:
        prepare: Does the slow part of processing an object before `on_event` is called.
    """

    name: str
    watch: Watch
    on_event: OnEvent
    clock: Clock
    prepare: Prepare | None = None

    async def run(self) -> None:
        """Watch until cancelled."""
        async for change, obj in self.watch.events():
            if self.prepare is not None and change != "DELETED":
                await self.prepare(obj)
            self.on_event(change, obj)
            # A first list arrives in a burst; requests and probes must not wait for all of it.
            await asyncio.sleep(0)

    async def tell(self) -> None:
        """Log problems of the watch until cancelled, once per reason."""
        await tell_problems(
            lambda: self.watch.problem,
            lambda text: _log.warning("watch interrupted", watch=self.name, reason=text),
            every=_PATROL,
            over=lambda: _log.info("watch resumed", watch=self.name),
        )

    def unready(self) -> str | None:
        """Return why its objects are not reliable, or None if they are."""
        if not self.watch.synced.is_set():
            return self.watch.problem or "not listed yet"
        silent = self.clock.monotonic() - self.watch.progress
        if silent < _SILENCE or self.watch.absent:
            return None
        reason = self.watch.problem or "the API server is silent"
        return f"no news for {silent:.0f}s: {reason}"


async def replay_all(reader: Reader, kinds: Iterable[Kind], on_event: OnEvent) -> None:
    """Call back with every stored object of the kinds, as if each had just changed."""
    for kind in kinds:
        token = ""
        while True:
            page = await reader.list_page(kind, token=token)
            for obj in page.items:
                on_event("MODIFIED", obj)
            token = page.token
            if not token:
                break
