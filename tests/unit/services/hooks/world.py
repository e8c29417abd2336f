"""Hooks at work on an in-memory cluster, in a process that can end at any of its writes."""

import asyncio
import copy
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from typing_extensions import override

from reconciler.api.meta import CONFIG_MAPS, Kind, Object, policy_ref, resource_version
from reconciler.api.updaterequest import RequestSpec, RequestStatus, State, UpdateRequest
from reconciler.errors import EvaluationError
from reconciler.hooks.declared import HOOK_KINDS, HOOKS
from reconciler.memory.cluster import MemoryCluster
from reconciler.memory.operations import MemoryOperations
from reconciler.memory.requests import MemoryEvents, MemoryRequests
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

PLACE = "shop"
_CALL = 0.01
"""Seconds to a write, and from there to its answer."""


class LoopClock:
    """Time as the event loop has it, which skips what is only waited for."""

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


@dataclass(slots=True)
class Ending:
    """The end of a process, at one of its writes; half of them have an effect before.

    Attributes:
        at: At which, counted from 0; negative: never.
        came: Set when it has come.
    """

    at: int = -1
    seen: int = 0
    came: asyncio.Event = field(default_factory=asyncio.Event)

    async def step(self) -> None:
        """Come to a write, or to its answer; whoever does so at the end gets no further."""
        if self.seen == self.at:
            self.came.set()
        self.seen += 1
        # What takes no time would never find something else waiting.
        await asyncio.sleep(_CALL)
        if self.came.is_set():
            await asyncio.Event().wait()


class EndingRequests(MemoryRequests):
    """Requests of a process that ends."""

    def __init__(self, cluster: MemoryCluster, ending: Ending) -> None:
        super().__init__(cluster, "kyverno")
        self._ending = ending

    @override
    async def create(self, name: str, labels: Mapping[str, str], spec: RequestSpec) -> str:
        await self._ending.step()
        version = await super().create(name, labels, spec)
        await self._ending.step()
        return version

    @override
    async def write_status(self, request: UpdateRequest, status: RequestStatus) -> UpdateRequest:
        await self._ending.step()
        stored = await super().write_status(request, status)
        await self._ending.step()
        return stored


class EndingOperations(MemoryOperations):
    """Operations of a process that ends."""

    def __init__(self, cluster: MemoryCluster, ending: Ending) -> None:
        super().__init__(cluster)
        self._ending = ending

    @override
    async def create(self, kind: Kind, obj: Object) -> Object:
        await self._ending.step()
        made = await super().create(kind, obj)
        await self._ending.step()
        return made


class NoJq:
    """No hook here has a program."""

    async def compile(self, program: str, *, location: str) -> None:
        raise AssertionError(program, location)

    async def evaluate(self, program: str, inputs: Any) -> list[list[Any] | EvaluationError]:
        raise AssertionError(program, inputs)


class World:
    """A cluster that outlives its processes, and remembers what has happened."""

    def __init__(self) -> None:
        self.cluster = MemoryCluster()
        self.cluster.serve(CONFIG_MAPS)
        for kind in HOOK_KINDS:
            self.cluster.serve(kind, replace(kind, subresource="status"))
        self.events = MemoryEvents()
        self._past: list[WatchEvent] = []
        self._news = asyncio.Event()

    def create(self, name: str, **labels: str) -> None:
        """Create a ConfigMap that hooks may be bound to."""
        meta = {"namespace": PLACE, "name": name, "labels": labels}
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}
        made = self.cluster.create(CONFIG_MAPS, obj)
        self._happened("ADDED", made, resource_version(made))

    async def delete(self, name: str) -> None:
        """Delete one."""
        gone = await self.cluster.get(CONFIG_MAPS, PLACE, name)
        self.cluster.delete(CONFIG_MAPS, PLACE, name)
        page = await self.cluster.list_page(CONFIG_MAPS)
        self._happened("DELETED", gone, page.resource_version)

    def forget(self) -> None:
        """Let the API server know nothing any more of what has happened."""
        self._past.clear()

    def _happened(self, event: str, obj: Object, version: str) -> None:
        self._past.append(WatchEvent(type=event, version=version, object=copy.deepcopy(obj)))
        self._news.set()

    async def follow(self, scope: WatchScope, since: str) -> AsyncGenerator[WatchEvent]:
        """Yield what has happened since a resourceVersion to objects with the label seed."""
        del scope
        place = 0
        while True:
            self._news.clear()
            for event in self._past[place:]:
                labels = event.object["metadata"].get("labels") or {}
                if int(event.version) > int(since) and "seed" in labels:
                    yield event
            place = len(self._past)
            await self._news.wait()

    async def made(self) -> set[str]:
        """Return the names of what hooks have created."""
        page = await self.cluster.list_page(CONFIG_MAPS, labels="made")
        return {item["metadata"]["name"] for item in page.items}

    async def ready(self) -> bool:
        """Tell whether all hooks say that they are."""
        page = await self.cluster.list_page(HOOKS)
        said = [(item.get("status") or {}).get("conditions") or () for item in page.items]
        return all([item["status"] for item in items] == ["True"] for items in said)

    async def states(self) -> list[State]:
        """Return the states of all requests."""
        requests = MemoryRequests(self.cluster, "kyverno")
        waiting = [item.status.state async for item in requests.waiting()]
        return waiting + [item.status.state async for item in requests.finished()]


class Objects:
    """The hooks of a `World`; none comes or goes while a process runs."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster

    def look(self) -> None:
        """They are served all the time."""

    async def stored(self) -> list[Object]:
        return list((await self._cluster.list_page(HOOKS)).items)

    async def events(self) -> AsyncIterator[tuple[str, Object]]:
        await asyncio.Event().wait()
        yield "", {}

    async def write_status(self, hook: Object, status: Mapping[str, Any]) -> Object:
        ref = policy_ref(hook)
        stored = await self._cluster.get(HOOKS, ref.namespace, ref.name)
        kind = replace(HOOKS, subresource="status")
        return await self._cluster.change(kind, stored, {**stored, "status": dict(status)})


def process(world: World, ending: Ending, term: int, most: int) -> Hooks:
    """Return the hooks of a process that works on a world.

    Args:
        world: Which.
        ending: Of the process.
        term: Of who leads.
        most: Bytes of one request.
    """
    clock, cluster = LoopClock(), world.cluster
    stored = EndingRequests(cluster, ending)
    requests = HookRequests(
        requests=stored,
        clock=clock,
        retention=Retention(seconds=dict.fromkeys(State, 600.0)),
        ended=lambda _: None,
    )
    active: dict[Any, Any] = {}
    dispatcher = HookDispatcher(requests=requests, hooks=active, clock=clock, jitter=lambda: 0.0)
    orders, jq, objects = Orders(term=lambda: term), NoJq(), Objects(cluster)
    runner = OperationRunner(
        kinds=cluster,
        reader=cluster,
        writer=cluster,
        operations=EndingOperations(cluster, ending),
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
            say=print,
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
        orders=orders,
        clock=clock,
        say=print,
    )
    accounts = HookAccounts(hooks=objects, clock=clock, say=print)
    return Hooks(deps=deps, accounts=accounts, dispatcher=dispatcher, active=active)


class NoIsolation:
    """Nothing here takes long."""

    async def evaluate(self, work: Any, tenant: str) -> Any:
        raise AssertionError(work, tenant)
