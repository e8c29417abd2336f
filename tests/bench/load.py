"""The loads: the calls of a bare client, and triggers that the two programs process."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import perf_counter

import orjson

from tests.bench.figures import Phase, Spread
from tests.bench.wire import MERGE, Refused, Wire
from tests.bench.workload import LABEL, Pair, requests_path

_SETTLE = 60.0


@dataclass(slots=True)
class Times:
    """The times of the events of each pair, by its name."""

    begun: dict[str, float] = field(default_factory=dict)
    accepted: dict[str, float] = field(default_factory=dict)
    patched: dict[str, float] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def phase(self) -> Phase:
        """Return the figures of the run."""
        done = [name for name in self.accepted if name in self.patched]
        last = max((self.patched[name] for name in done), default=0.0)
        span = last - min(self.begun.values(), default=0.0)
        return Phase(
            accepted=len(self.accepted),
            refused=len(self.begun) - len(self.accepted),
            lost=len(self.accepted) - len(done),
            per_second=len(done) / span if done else 0.0,
            create=Spread.of([end - self.begun[name] for name, end in self.accepted.items()]),
            patched=Spread.of([self.patched[name] - self.begun[name] for name in done]),
        )


async def in_parallel(
    work: Iterable[Pair], parallel: int, do: Callable[[Pair], Awaitable[None]]
) -> None:
    """Call ``do`` for each pair, up to ``parallel`` at a time."""
    left = iter(work)

    async def worker() -> None:
        for pair in left:
            await do(pair)

    async with asyncio.TaskGroup() as group:
        for _ in range(parallel):
            group.create_task(worker())


async def make_targets(wire: Wire, pairs: list[Pair], parallel: int) -> None:
    """Create the namespace of the pairs and their Secrets."""
    meta = {"name": pairs[0].namespace}
    body = orjson.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    await wire.send("POST", "/api/v1/namespaces", body)

    async def make(pair: Pair) -> None:
        await wire.send("POST", pair.targets_path, pair.target)

    await in_parallel(pairs, parallel, make)


async def bare(wire: Wire, pairs: list[Pair], parallel: int) -> Phase:
    """Make the calls that no implementation can avoid, from this process."""
    bodies = {pair.name: (pair.trigger, pair.request, pair.status) for pair in pairs}
    times = Times()

    async def handle(pair: Pair) -> None:
        trigger, request, status = bodies[pair.name]
        times.begun[pair.name] = perf_counter()
        await wire.send("POST", pair.triggers_path, trigger)
        times.accepted[pair.name] = perf_counter()
        await wire.send("POST", requests_path(), request)
        target = await wire.read(pair.target_path)
        patch = pair.patch(target["metadata"]["resourceVersion"])
        await wire.send("PATCH", pair.target_path, patch, MERGE)
        await wire.send("PATCH", f"{pair.request_path}/status", status, MERGE)
        times.patched[pair.name] = perf_counter()

    await in_parallel(pairs, parallel, handle)
    await wire.send("DELETE", requests_path())
    return times.phase()


async def burst(wire: Wire, pairs: list[Pair], parallel: int) -> Phase:
    """Create all triggers, up to ``parallel`` at a time, and wait for the targets."""
    bodies = {pair.name: pair.trigger for pair in pairs}
    async with _watching(wire, pairs) as times:

        async def create(pair: Pair) -> None:
            await _create(wire, pair, bodies[pair.name], times)

        await in_parallel(pairs, parallel, create)
        await _all_patched(times)
    return times.phase()


async def steady(wire: Wire, pairs: list[Pair], rate: float) -> Phase:
    """Create ``rate`` triggers per second, without waiting for earlier answers."""
    bodies = {pair.name: pair.trigger for pair in pairs}
    async with _watching(wire, pairs) as times:
        async with asyncio.TaskGroup() as group:
            begin = perf_counter()
            for index, pair in enumerate(pairs):
                await asyncio.sleep(max(0.0, begin + index / rate - perf_counter()))
                group.create_task(_create(wire, pair, bodies[pair.name], times))
        await _all_patched(times)
    return times.phase()


async def all_final(wire: Wire) -> int:
    """Wait up to a minute until every UpdateRequest is final; return how many are not."""
    deadline = perf_counter() + _SETTLE
    path = requests_path("status.state!=Completed,status.state!=Skip,status.state!=Failed")
    while True:
        left = len((await wire.read(path))["items"])
        if not left or perf_counter() > deadline:
            return left
        await asyncio.sleep(0.2)


async def _create(wire: Wire, pair: Pair, body: bytes, times: Times) -> None:
    times.begun[pair.name] = perf_counter()
    # A refusal is an answer: a trigger that was not accepted cannot be lost.
    with contextlib.suppress(Refused):
        await wire.send("POST", pair.triggers_path, body)
        times.accepted[pair.name] = perf_counter()


async def _all_patched(times: Times) -> None:
    """Wait until every accepted trigger has had its effect, or nothing changes for a minute."""
    while not times.accepted.keys() <= times.patched.keys():
        times.changed.clear()
        try:
            await asyncio.wait_for(times.changed.wait(), _SETTLE)
        except TimeoutError:
            return


@asynccontextmanager
async def _watching(wire: Wire, pairs: list[Pair]) -> AsyncIterator[Times]:
    times = Times()
    path = pairs[0].targets_path
    begin = (await wire.read(f"{path}?limit=1"))["metadata"]["resourceVersion"]
    task = asyncio.create_task(
        _note_changes(wire, f"{path}?watch=true&resourceVersion={begin}", times)
    )
    try:
        yield times
        await _look_again(wire, pairs, times)
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _look_again(wire: Wire, pairs: list[Pair], times: Times) -> None:
    """Read targets that seem unchanged once more, because their watch event may be missing."""
    for pair in pairs:
        if pair.name in times.accepted and pair.name not in times.patched:
            meta = (await wire.read(pair.target_path))["metadata"]
            if LABEL in (meta.get("labels") or {}):
                times.patched[pair.name] = perf_counter()


async def _note_changes(wire: Wire, path: str, times: Times) -> None:
    async with wire.watch(path) as response:
        async for line in response.content:
            now = perf_counter()
            meta = orjson.loads(line)["object"]["metadata"]
            if LABEL in (meta.get("labels") or {}):
                times.patched.setdefault(meta["name"], now)
                times.changed.set()
