"""A stand-in for the cluster from which the data of GlobalContextEntries is read."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from reconciler.api.account import ServiceAccount
from reconciler.api.meta import Kind, Object
from reconciler.clock import Clock
from reconciler.engine.loads import Load
from reconciler.errors import Conflict
from reconciler.services.catalog.globalcontext.sources import Pace
from reconciler.services.ports.policies import Change

PODS: Final = {"kubernetesResource": {"version": "v1", "resource": "pods"}}
CALL: Final[Object] = {
    "apiCall": {"urlPath": "/api/v1/nodes", "refreshInterval": "1h", "retryLimit": 3}
}


def entry(name: str = "teams", generation: int = 1, uid: str = "u", **spec: Any) -> Object:
    """Return a GlobalContextEntry."""
    return {
        "apiVersion": "kyverno.io/v2",
        "kind": "GlobalContextEntry",
        "metadata": {"name": name, "uid": uid, "generation": generation, "resourceVersion": "1"},
        "spec": spec,
    }


def pod(name: str, namespace: str = "a", **meta: Any) -> Object:
    """Return a Pod."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **meta},
    }


@dataclass
class Stream:
    """A watch whose events the test provides."""

    clock: Clock
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    problem: str = ""
    progress: float = 0.0
    queue: asyncio.Queue[tuple[Change, Object] | None] = field(default_factory=asyncio.Queue)
    open: bool = False

    def give(self, *objects: Object, change: Change = "ADDED") -> None:
        """Queue events for objects, and then mark the stream as synced."""
        for obj in objects:
            self.queue.put_nowait((change, obj))
        self.queue.put_nowait(None)

    async def events(self) -> AsyncGenerator[tuple[Change, Object]]:
        """Yield the queued events."""
        self.open = True
        try:
            while True:
                item = await self.queue.get()
                if item is None:
                    self.synced.set()
                    self.progress = self.clock.monotonic()
                else:
                    yield item
        finally:
            self.open = False


SHORT: Final = Pace(
    patrol=0.001, grace=0.05, again=0.001, too_much=300.0, first=0.001, longest=0.001, quick=0.001
)


class Cluster:
    """The `Entries` and `Loader` ports, with prepared objects and responses."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.entries = Stream(clock)
        self.objects: list[tuple[Kind, str, Stream]] = []
        self.statuses: list[dict[str, Any]] = []
        self.refuse = False
        self.refused = 0
        self.answers: list[Any] = []
        self.calls = 0

    def acting_as(self, _account: ServiceAccount | None) -> Self:
        """Return this stand-in for every account."""
        return self

    def follow(self) -> Stream:
        """Return the stream of all entries."""
        return self.entries

    def follow_objects(self, kind: Kind, namespace: str) -> Stream:
        """Return a new stream, to which the test adds objects."""
        stream = Stream(self.clock)
        self.objects.append((kind, namespace, stream))
        return stream

    async def write_status(self, entry: Object, status: Mapping[str, Any]) -> Object:
        """Record a status, or raise a conflict."""
        if self.refuse:
            self.refused += 1
            raise Conflict("changed", status=409)
        self.statuses.append(dict(status))
        return {**entry, "status": {**(entry.get("status") or {}), **status}}

    async def load(self, load: Load) -> Any:
        """Return the next prepared answer; the last one is returned repeatedly."""
        del load
        self.calls += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def eventually(condition: Callable[[], object]) -> None:
    """Wait until a condition holds, for at most 10 seconds."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  (conditions are all sorts of things)
            await asyncio.sleep(0.001)
