"""Hooks on an in-memory cluster, in a process that can end at any of its writes."""

import asyncio
import contextlib
import copy
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from typing_extensions import override

from reconciler.api.meta import (
    CONFIG_MAPS,
    NAMESPACES,
    Kind,
    Object,
    PolicyRef,
    policy_ref,
    resource_version,
)
from reconciler.api.updaterequest import RequestSpec, RequestStatus, State, UpdateRequest
from reconciler.errors import EvaluationError, Gone, Interrupted, NotFound, Unavailable
from reconciler.hooks.declared import HOOK_KINDS, HOOKS, DeclaredHook, compile_hook
from reconciler.memory.cluster import MemoryCluster
from reconciler.memory.operations import MemoryOperations
from reconciler.requests.lifecycle import Retention
from reconciler.services.hooks.accounts import HookAccounts
from reconciler.services.hooks.declarative import DeclaredRuns
from reconciler.services.hooks.dispatch import HookDispatcher
from reconciler.services.hooks.following import InformerDeps, SnapshotBudget
from reconciler.services.hooks.operations import OperationRunner
from reconciler.services.hooks.recorder import RecorderDeps
from reconciler.services.hooks.requests import HookRequests
from reconciler.services.hooks.service import HookDeps, Hooks, Orders
from reconciler.services.ports.watching import WatchEvent, WatchScope
from tests.stored import MemoryEvents, MemoryRequests

PLACE = "shop"
LABELS = ".metadata.labels"
_CALL = 0.01
"""Seconds before a write, and again before its answer."""


class LoopClock:
    """A clock on the time of the event loop, which skips idle waits."""

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


class Trouble(Protocol):
    """A disturbance of a process, before each of its writes and before each answer."""

    async def step(self) -> None:
        """Pass the point before a write, or before its answer."""


@dataclass(slots=True)
class Outage:
    """An outage of the API server, which begins before a write or before its answer.

    Attributes:
        at: The step at which it begins, counted from 0; each write has two.
        seconds: Its duration.
    """

    at: int
    seconds: float = 3.0
    seen: int = 0
    over: float = 0.0

    async def step(self) -> None:
        """Pass a step, or raise while the API server is unavailable."""
        now = asyncio.get_running_loop().time()
        if self.seen == self.at:
            self.over = now + self.seconds
        self.seen += 1
        await asyncio.sleep(_CALL)
        if now < self.over:
            raise Unavailable("no answer")


@dataclass(slots=True)
class Refusals:
    """Writes that are answered with 503, some of them after they took effect.

    Attributes:
        at: The first step that is refused, counted from 0; each write has two.
        every: The distance in steps to the next refusal; 0 refuses only the first.
        seconds: The time within which further steps are refused.
    """

    at: int
    every: int = 0
    seconds: float = 15.0
    seen: int = 0
    over: float = 0.0

    async def step(self) -> None:
        """Pass a step, or raise where it is refused."""
        now = asyncio.get_running_loop().time()
        after = self.seen - self.at
        self.seen += 1
        await asyncio.sleep(_CALL)
        if after == 0:
            self.over = now + self.seconds
        elif after < 0 or not self.every or after % self.every or now > self.over:
            return
        raise Unavailable("the API server answered 503", status=503)


@dataclass(slots=True)
class Ending:
    """The end of a process, before one of its writes or before the answer to it.

    Attributes:
        at: The step at which it ends, counted from 0; each write has two; negative is never.
        came: Set when the process has ended.
    """

    at: int = -1
    seen: int = 0
    came: asyncio.Event = field(default_factory=asyncio.Event)

    async def step(self) -> None:
        """Pass a step; a process that has ended blocks here for ever."""
        if self.seen == self.at:
            self.came.set()
        self.seen += 1
        # Without a delay no other task would ever be waiting.
        await asyncio.sleep(_CALL)
        if self.came.is_set():
            await asyncio.Event().wait()


def has_ended(trouble: Trouble) -> bool:
    """Return whether the process has ended."""
    return isinstance(trouble, Ending) and trouble.came.is_set()


async def until(
    holds: Callable[[], Awaitable[bool]], trouble: Trouble, seconds: float = 4000.0
) -> None:
    """Wait until a condition holds, the process has ended, or the time is over."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                if has_ended(trouble) or await holds():
                    return
                await asyncio.sleep(0.5)


class TroubledRequests(MemoryRequests):
    """Requests whose writes pass the steps of a `Trouble`."""

    def __init__(self, cluster: MemoryCluster, trouble: Trouble) -> None:
        super().__init__(cluster, "kyverno")
        self._trouble = trouble

    @override
    async def create(self, name: str, labels: Mapping[str, str], spec: RequestSpec) -> str:
        await self._trouble.step()
        version = await super().create(name, labels, spec)
        await self._trouble.step()
        return version

    @override
    async def write_status(self, request: UpdateRequest, status: RequestStatus) -> UpdateRequest:
        await self._trouble.step()
        stored = await super().write_status(request, status)
        await self._trouble.step()
        return stored

    @override
    async def create_recorded(self, request: str, labels: Mapping[str, str], data: bytes) -> None:
        await self._trouble.step()
        await super().create_recorded(request, labels, data)
        await self._trouble.step()

    @override
    async def delete_recorded(self, request: str, *, former: bool = False) -> None:
        await self._trouble.step()
        await super().delete_recorded(request, former=former)
        await self._trouble.step()


class TroubledOperations(MemoryOperations):
    """Operations that pass the steps of a `Trouble`."""

    def __init__(self, cluster: MemoryCluster, trouble: Trouble) -> None:
        super().__init__(cluster)
        self._trouble = trouble

    @override
    async def create(self, kind: Kind, obj: Object) -> Object:
        await self._trouble.step()
        made = await super().create(kind, obj)
        await self._trouble.step()
        return made


@dataclass(slots=True)
class LabelsByJq:
    """Evaluates only the jq program for the labels, and is killed at one of its inputs.

    Attributes:
        ends: The input at which it is killed, counted from 0; negative is never.
    """

    ends: int = -1
    seen: int = 0

    async def compile(self, program: str, *, location: str) -> None:
        assert program == LABELS, location

    async def evaluate(
        self, program: str, inputs: Sequence[Any]
    ) -> list[list[Any] | EvaluationError]:
        assert program == LABELS
        if self.ends in range(self.seen, self.seen + len(inputs)):
            self.ends = -1
            raise Interrupted("the process for jq programs was ended by SIGKILL")
        self.seen += len(inputs)
        return [[item["metadata"].get("labels")] for item in inputs]


class World:
    """A cluster that outlives its processes, and keeps the past watch events.

    Attributes:
        hooks: The kind of the hooks that it stores.
    """

    def __init__(self, hooks: Kind = HOOKS) -> None:
        self.hooks = hooks
        self.cluster = MemoryCluster()
        self.cluster.serve(CONFIG_MAPS, NAMESPACES)
        for kind in HOOK_KINDS:
            self.cluster.serve(kind, replace(kind, subresource="status"))
        self.events = MemoryEvents()
        self._past: list[WatchEvent] = []
        self._forgotten = self._watched_from = 0
        self._news = asyncio.Event()

    def create(
        self,
        name: str,
        namespace: str = PLACE,
        *,
        data: Mapping[str, str] | None = None,
        **labels: str,
    ) -> None:
        """Create a ConfigMap that hooks may be bound to."""
        meta = {"namespace": namespace, "name": name, "labels": labels}
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": dict(data or {})}
        made = self.cluster.create(CONFIG_MAPS, obj)
        self._happened("ADDED", made, resource_version(made))

    async def delete(self, name: str, namespace: str = PLACE) -> None:
        """Delete such a ConfigMap."""
        gone = await self.cluster.get(CONFIG_MAPS, namespace, name)
        self.cluster.delete(CONFIG_MAPS, namespace, name)
        page = await self.cluster.list_page(CONFIG_MAPS)
        self._happened("DELETED", gone, page.resource_version)

    async def label(self, namespace: str, **labels: str) -> None:
        """Give a namespace exactly these labels; create it if it does not exist."""
        meta = {"name": namespace, "labels": labels}
        wanted = {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
        try:
            before = await self.cluster.get(NAMESPACES, "", namespace)
        except NotFound:
            made = self.cluster.create(NAMESPACES, wanted)
        else:
            old = before["metadata"]
            made = {**before, "metadata": {**old, "labels": labels}}
            made = await self.cluster.change(NAMESPACES, before, made)
        # As a watch with a selector for the label reports it.
        event = "ADDED" if "seed" in labels else "DELETED"
        self._happened(event, made, resource_version(made))

    async def forget(self) -> None:
        """End all watches, and drop the past events, so that older versions are gone."""
        page = await self.cluster.list_page(CONFIG_MAPS)
        self._forgotten = int(page.resource_version)
        self._past.clear()
        self._news.set()

    def restart(self) -> None:
        """Restart the API server, which keeps the stored objects, but no earlier watch events."""
        self._watched_from = int(self._past[-1].version)

    def _happened(self, event: str, obj: Object, version: str) -> None:
        self._past.append(WatchEvent(type=event, version=version, object=copy.deepcopy(obj)))
        self._news.set()

    async def follow(self, scope: WatchScope, since: str) -> AsyncGenerator[WatchEvent]:
        """Yield the watch events after a resourceVersion for objects with the label seed."""
        place, forgotten = 0, self._forgotten
        if int(since) < max(forgotten, self._watched_from):
            raise Gone("too old resource version", status=410)
        while forgotten == self._forgotten:
            self._news.clear()
            for event in self._past[place:]:
                if int(event.version) > int(since) and _is_of(scope, event):
                    yield event
            place = len(self._past)
            if not await self._has_news():
                page = await self.cluster.list_page(CONFIG_MAPS)
                yield WatchEvent(type="BOOKMARK", version=page.resource_version, object={})

    async def _has_news(self) -> bool:
        """Return whether an event comes within the minute after which a bookmark is due."""
        try:
            async with asyncio.timeout(60):
                return await self._news.wait()
        except TimeoutError:
            return False

    async def stored_at(self, scope: WatchScope, version: str) -> AsyncIterator[Object]:
        """Yield the objects with the label seed as they were at a version."""
        if int(version) < self._forgotten:
            raise Gone("too old resource version", status=410)
        found: dict[str, Object] = {}
        for event in self._past:
            if int(event.version) <= int(version) and _is_of(scope, event):
                found.pop(event.object["metadata"]["name"], None)
                if event.type != "DELETED":
                    found[event.object["metadata"]["name"]] = event.object
        for obj in found.values():
            yield obj

    def has(self, name: str) -> bool:
        """Return whether the past events include one of an object of this name."""
        return any(event.object["metadata"]["name"] == name for event in self._past)

    async def made(self) -> Counter[str]:
        """Return how often hooks created an object, by the value of its label ``made``."""
        page = await self.cluster.list_page(CONFIG_MAPS, labels="made")
        return Counter(item["metadata"]["labels"]["made"] for item in page.items)

    async def made_in_order(self) -> list[str]:
        """Return the labels ``made`` of the objects that hooks created, oldest first."""
        page = await self.cluster.list_page(CONFIG_MAPS, labels="made")
        made = sorted(page.items, key=lambda item: int(resource_version(item)))
        return [item["metadata"]["labels"]["made"] for item in made]

    @property
    def missed(self) -> bool:
        """Return whether an Event reports that watch events were missed."""
        return any(event.reason == "EventsMissed" for event in self.events.emitted)

    async def ready(self) -> bool:
        """Return whether the status of each hook reports that it is ready."""
        page = await self.cluster.list_page(self.hooks)
        said = [(item.get("status") or {}).get("conditions") or () for item in page.items]
        return all([item["status"] for item in items] == ["True"] for items in said)

    async def states(self) -> list[State]:
        """Return the states of all requests."""
        requests = MemoryRequests(self.cluster, "kyverno")
        waiting = [item.status.state async for item in requests.waiting()]
        return waiting + [item.status.state async for item in requests.finished()]


class Quiet(World):
    """A cluster whose API server sends no bookmarks, as for the kind Event."""

    @override
    async def follow(self, scope: WatchScope, since: str) -> AsyncGenerator[WatchEvent]:
        async for event in super().follow(scope, since):
            if event.type == "BOOKMARK":
                return
            yield event

    def compact(self, version: str) -> None:
        """Drop the history before a version."""
        self._forgotten = int(version)


def _is_of(scope: WatchScope, event: WatchEvent) -> bool:
    meta = event.object["metadata"]
    if (event.object["kind"], meta.get("namespace", "")) == ("Namespace", ""):
        return scope.kind == NAMESPACES
    placed = scope.namespace in {"", meta.get("namespace")}
    return scope.kind == CONFIG_MAPS and placed and "seed" in (meta.get("labels") or {})


class Objects:
    """The hooks of a `World`, which do not change while a process runs."""

    def __init__(self, cluster: MemoryCluster, kind: Kind, trouble: Trouble) -> None:
        self._cluster = cluster
        self._kind = kind
        self._trouble = trouble

    def look(self) -> None:
        """Do nothing: the kind is always served."""

    async def stored(self) -> list[Object]:
        return list((await self._cluster.list_page(self._kind)).items)

    async def find(self, ref: PolicyRef) -> Object | None:
        found = (item for item in await self.stored() if policy_ref(item) == ref)
        return next(found, None)

    async def events(self) -> AsyncIterator[tuple[str, Object]]:
        await asyncio.Event().wait()
        yield "", {}

    async def write_status(self, hook: Object, status: Mapping[str, Any]) -> Object:
        ref = policy_ref(hook)
        stored = await self._cluster.get(self._kind, ref.namespace, ref.name)
        kind = replace(self._kind, subresource="status")
        await self._trouble.step()
        written = await self._cluster.change(kind, stored, {**stored, "status": dict(status)})
        await self._trouble.step()
        return written


def process(
    world: World, trouble: Trouble, term: int, most: int, jq: LabelsByJq | None = None
) -> Hooks:
    """Return the hooks of a process that works on a world.

    Args:
        world: The cluster.
        trouble: The disturbance of its writes.
        term: The leadership term.
        most: The most bytes of one request.
        jq: The evaluator of jq programs.
    """
    clock, cluster = LoopClock(), world.cluster
    stored = TroubledRequests(cluster, trouble)
    requests = HookRequests(
        requests=stored,
        clock=clock,
        retention=Retention(seconds=dict.fromkeys(State, 600.0)),
        ended=lambda _: None,
    )
    active: dict[Any, Any] = {}
    objects = Objects(cluster, world.hooks, trouble)
    dispatcher = HookDispatcher(
        requests=requests, hooks=active, clock=clock, find=objects.find, jitter=lambda: 0.0
    )
    orders, jq = Orders(term=lambda: term), jq or LabelsByJq()
    runner = OperationRunner(
        kinds=cluster,
        reader=cluster,
        writer=cluster,
        operations=TroubledOperations(cluster, trouble),
        jq=jq,
    )
    deps = HookDeps(
        objects=objects,
        requests=requests,
        recorder=RecorderDeps(
            requests=stored,
            clock=clock,
            namespace="kyverno",
            order=orders.next,
            stored=dispatcher.add,
            warn=print,
            most=most,
        ),
        informer=InformerDeps(
            kinds=cluster,
            reader=cluster,
            watching=world,
            jq=jq,
            clock=clock,
            budget=SnapshotBudget(most=0),
            events=world.events,
        ),
        operations=lambda namespace: replace(runner, confined_to=namespace),
        runs_here=lambda _: True,
        runs_of=lambda hook: DeclaredRuns(hook=hook, jq=jq, isolation=NoIsolation()),
        uncalled=lambda _hook, _key: "",
        orders=orders,
        clock=clock,
        warn=print,
        compile=at_once,
    )
    accounts = HookAccounts(hooks=objects, clock=clock, warn=print)
    return Hooks(deps=deps, accounts=accounts, dispatcher=dispatcher, active=active)


async def at_once(hook: Object) -> DeclaredHook:
    """Compile a hook without a thread, for which idle time cannot be skipped."""
    return compile_hook(hook)


class NoIsolation:
    """An `Isolation` that must not be used: no evaluation here takes long."""

    async def evaluate(self, work: Any, tenant: str) -> Any:
        raise AssertionError(work, tenant)
