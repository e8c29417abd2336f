"""A stand-in for the cluster of which GlobalContextEntries are kept."""

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
    """A feed that a test fills."""

    clock: Clock
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    problem: str = ""
    progress: float = 0.0
    queue: asyncio.Queue[tuple[Change, Object] | None] = field(default_factory=asyncio.Queue)
    open: bool = False

    def give(self, *objects: Object, change: Change = "ADDED") -> None:
        """Have objects come, and then nothing."""
        for obj in objects:
            self.queue.put_nowait((change, obj))
        self.queue.put_nowait(None)

    async def events(self) -> AsyncGenerator[tuple[Change, Object]]:
        """Yield what was given."""
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
    """The `Entries` and the `Loader` port."""

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
        """Return itself."""
        return self

    def follow(self) -> Stream:
        """Return all entries."""
        return self.entries

    def follow_objects(self, kind: Kind, namespace: str) -> Stream:
        """Return a stream that a test fills."""
        stream = Stream(self.clock)
        self.objects.append((kind, namespace, stream))
        return stream

    async def write_status(self, entry: Object, status: Mapping[str, Any]) -> Object:
        """Keep a status, or refuse it."""
        if self.refuse:
            self.refused += 1
            raise Conflict("changed", status=409)
        self.statuses.append(dict(status))
        return {**entry, "status": {**(entry.get("status") or {}), **status}}

    async def load(self, load: Load) -> Any:
        """Give the next answer; the last one again and again."""
        del load
        self.calls += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def eventually(condition: Callable[[], object]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  (conditions are all sorts of things)
            await asyncio.sleep(0.001)
