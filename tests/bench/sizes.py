"""Measures memory and CPU by numbers of policies, waiting requests, objects and replicas.

CPU and memory hardly depend on other work of the machine. Rates do, so its load is printed too.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

import click
import orjson
from rich.table import Table

from devcluster.install import ProgramSettings
from devcluster.programs import ADMISSION, CONTROLLER, Programs
from tests.bench import load
from tests.bench.figures import aligned
from tests.bench.processes import cpu_seconds, measured, resident
from tests.bench.wire import MERGE, Refused, Wire
from tests.bench.workload import POLICY, Pair, pairs, policy, requests_path

T = TypeVar("T")

POLICIES = (1, 100, 1000)
WAITING = (1000, 4000)
OBJECTS = (1000, 10_000)
REPLICAS = (2, 3)
_BURST = 200
_CLUSTER_POLICIES = "/apis/kyverno.io/v1/clusterpolicies"
_WITHIN = 1200.0
_SETTLED = 3.0
"""Seconds after which a program has processed a change; it writes its figures once a second."""
_NAMESPACE = "bench-sizes"
_WAITING = f"{_NAMESPACE}-waiting"


def namespaces() -> list[str]:
    """Return the namespaces whose triggers the workload's policy has to match."""
    bursts = [f"policies-{count}" for count in POLICIES]
    bursts += [f"replicas-{count}" for count in REPLICAS]
    return [*(f"{_NAMESPACE}-{name}" for name in bursts), _WAITING]


def patient(settings: ProgramSettings) -> ProgramSettings:
    """Return settings with a long Lease, so that a busy machine does not cost the leadership."""
    lease = ("--lease-duration=120s", "--lease-renew=100s")
    return replace(settings, flags=(*settings.flags, *lease))


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Resident bytes at one moment; `admission` is 0 if it was not measured."""

    what: str
    admission: int
    controller: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """A burst of triggers, each of which changes one target.

    Attributes:
        per_second: Triggers per second, which depends on the machine and its other work.
        admission: The admission server's CPU seconds per trigger.
        controller: The controller's CPU seconds per trigger.
    """

    what: str
    per_second: float
    lost: int
    admission: float
    controller: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A new policy that runs on many existing objects; the first one changes their common target.

    Attributes:
        cpu: The controller's CPU seconds per object.
        peak: The peak of the controller's resident bytes.
    """

    objects: int
    seconds: float
    cpu: float
    peak: int


@dataclass(slots=True)
class Sizes:
    """All figures, and the machine's one-minute load average at the start and at the end."""

    sizes: list[Size] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)
    sweeps: list[Sweep] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)


async def measure(
    wire: Wire, programs: Programs, settings: Mapping[str, ProgramSettings], parallel: int
) -> Sizes:
    """Measure with increasing numbers of policies, waiting requests, objects and controllers."""
    bench = _Bench(wire=wire, programs=programs, parallel=parallel)
    bench.found.loads.append(os.getloadavg()[0])
    # The first policy is that of the workload.
    made = 1
    for count in POLICIES:
        await bench.make_policies(range(made, count))
        made = count
        named = f"{count:,} {'policy' if count == 1 else 'policies'}"
        await bench.size(named)
        await bench.burst(f"policies-{count}", named)
    await bench.waiting()
    for count in OBJECTS:
        await bench.sweep(count)
    await bench.size("after that")
    for count in REPLICAS:
        name = f"{CONTROLLER}-{count}"
        start = partial(programs.start, CONTROLLER, settings.get(CONTROLLER), name=name)
        await asyncio.to_thread(start)
        pid = programs.supervision.pids[name]
        await asyncio.sleep(_SETTLED)
        standing_by = Size(what="standing by", admission=0, controller=await resident(pid))
        bench.found.sizes.append(standing_by)
        await bench.burst(f"replicas-{count}", f"{count} controllers")
    bench.found.loads.append(os.getloadavg()[0])
    return bench.found


def tables(found: Sizes) -> list[Table]:
    """Return the tables of memory, triggers and sweeps."""
    memory = Table("with", "admission", "controller", title="Resident memory")
    for item in found.sizes:
        memory.add_row(item.what, _megabytes(item.admission), _megabytes(item.controller))
    begin, end = found.loads
    title = f"Triggers that change one target; load of the machine {begin:.1f} to {end:.1f}"
    costs = Table("with", "triggers/s", "lost", "CPU admission", "CPU controller", title=title)
    for cost in found.costs:
        spent = (_milliseconds(cost.admission), _milliseconds(cost.controller))
        costs.add_row(cost.what, f"{cost.per_second:.0f}", str(cost.lost), *spent)
    title = "Objects at which a new policy runs, with one target"
    sweeps = Table("objects", "seconds", "CPU for one", "peak", title=title)
    for sweep in found.sweeps:
        spent = (_milliseconds(sweep.cpu), _megabytes(sweep.peak))
        sweeps.add_row(f"{sweep.objects:,}", f"{sweep.seconds:.0f}", *spent)
    return [aligned(table) for table in (memory, costs, sweeps)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bench:
    wire: Wire
    programs: Programs
    parallel: int
    found: Sizes = field(default_factory=Sizes)

    @property
    def pids(self) -> dict[str, int]:
        return {name: self.programs.supervision.pids[name] for name in (ADMISSION, CONTROLLER)}

    async def size(self, what: str) -> None:
        await asyncio.sleep(_SETTLED)
        of = {name: await resident(pid) for name, pid in self.pids.items()}
        self._add(
            self.found.sizes, Size(what=what, admission=of[ADMISSION], controller=of[CONTROLLER])
        )

    async def burst(self, place: str, what: str) -> None:
        work = pairs(f"{_NAMESPACE}-{place}", _BURST)
        await load.make_targets(self.wire, work, self.parallel)
        before = self._spent()
        phase = await load.burst(self.wire, work, self.parallel)
        await _all_final(self.wire)
        spent = {name: after - before[name] for name, after in self._spent().items()}
        self._add(
            self.found.costs,
            Cost(
                what=what,
                per_second=phase.per_second,
                lost=phase.lost,
                admission=spent[ADMISSION] / _BURST,
                controller=spent[CONTROLLER] / _BURST,
            ),
        )

    async def waiting(self) -> None:
        await _pause(self.wire, "true")
        work = pairs(_WAITING, WAITING[-1])
        await load.make_targets(self.wire, work, self.parallel)
        sent = 0
        for count in WAITING:
            await load.in_parallel(work[sent:count], self.parallel, _trigger(self.wire))
            sent = count
            await self.size(f"and {count:,} waiting requests")
        await _pause(self.wire, None)
        await _all_final(self.wire)

    async def sweep(self, count: int) -> None:
        namespace = f"{_NAMESPACE}-objects-{count}"
        await load.make_targets(self.wire, pairs(namespace, 1), 1)
        work = [Pair(namespace=namespace, name=f"object-{index:05}") for index in range(count)]
        await load.in_parallel(work, self.parallel, _trigger(self.wire))
        begin, before = perf_counter(), self._spent()
        async with measured(self.pids) as memory:
            policy_of_all = orjson.dumps(_sweeping(namespace))
            await _stored(self.wire, _CLUSTER_POLICIES, policy_of_all)
            await _swept(self.wire, namespace, count)
        spent = self._spent()[CONTROLLER] - before[CONTROLLER]
        self._add(
            self.found.sweeps,
            Sweep(
                objects=count,
                seconds=perf_counter() - begin,
                cpu=spent / count,
                peak=memory[CONTROLLER].peak,
            ),
        )

    async def make_policies(self, numbers: range) -> None:
        """Create policies like the workload's that match no trigger; wait until all are Ready."""
        left = iter(numbers)

        async def worker() -> None:
            for number in left:
                obj = policy([f"bench-size-{number}"])
                obj["metadata"]["name"] = f"size-{number:04}"
                await _stored(self.wire, _CLUSTER_POLICIES, orjson.dumps(obj))

        async with asyncio.TaskGroup() as group:
            for _ in range(self.parallel):
                group.create_task(worker())

        async def in_force() -> bool:
            return all(map(_ready, (await self.wire.read(_CLUSTER_POLICIES))["items"]))

        await _until(in_force, "all policies are Ready")

    def _add(self, where: list[T], figure: T) -> None:
        where.append(figure)
        # Each figure is printed at once, because a run takes many minutes and may end early.
        click.echo(str(figure), err=True)

    def _spent(self) -> dict[str, float]:
        return {name: cpu_seconds(pid) for name, pid in self.pids.items()}


def _sweeping(namespace: str) -> dict[str, Any]:
    """Return the workload's policy, changed to run on existing objects with one common target."""
    found = policy([namespace])
    found["metadata"]["name"] = namespace
    (rule,) = found["spec"]["rules"]
    resources = rule["match"]["any"][0]["resources"]
    resources["names"] = ["object-*"]
    # A filter that lists operations matches admission requests only.
    del resources["operations"]
    rule["mutate"]["targets"][0]["name"] = "pair-00000"
    rule["mutate"]["mutateExistingOnPolicyUpdate"] = True
    return found


async def _stored(wire: Wire, path: str, body: bytes) -> None:
    """Create an object; retry if a webhook asks for it, which may happen on a busy machine."""
    while True:
        try:
            await wire.send("POST", path, body)
        except Refused as refused:
            if "try again" not in str(refused):
                raise
            await asyncio.sleep(1.0)
        else:
            return


def _ready(item: Mapping[str, Any]) -> bool:
    conditions = (item.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _trigger(wire: Wire) -> Callable[[Pair], Awaitable[None]]:
    async def create(pair: Pair) -> None:
        await _stored(wire, pair.triggers_path, pair.trigger)

    return create


async def _pause(wire: Wire, value: str | None) -> None:
    patch = {"metadata": {"annotations": {"kube-retrofit.dev/paused": value}}}
    await wire.send("PATCH", f"{_CLUSTER_POLICIES}/{POLICY}", orjson.dumps(patch), MERGE)
    # Nothing shows that the leader has seen the change; a watch event takes much less than this.
    await asyncio.sleep(_SETTLED)


async def _swept(wire: Wire, name: str, count: int) -> None:
    path = requests_path("spec.policy=" + name)

    async def done() -> bool:
        found: Sequence[Mapping[str, Any]] = (await wire.read(path))["items"]
        statuses = [item.get("status") or {} for item in found]
        looked = sum((status.get("sweep") or {}).get("done", 0) for status in statuses)
        return looked >= count and all(
            status.get("state") in {"Completed", "Failed"} for status in statuses
        )

    await _until(done, f"{count:,} objects are looked at")


async def _all_final(wire: Wire) -> None:
    path = requests_path("status.state!=Completed,status.state!=Skip,status.state!=Failed")

    async def final() -> bool:
        return not (await wire.read(f"{path}&limit=1"))["items"]

    await _until(final, "all requests have ended")


async def _until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    deadline = perf_counter() + _WITHIN
    while not await condition():
        if perf_counter() > deadline:
            raise click.ClickException(f"waited {_WITHIN:g} s in vain until {what}")
        await asyncio.sleep(0.5)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.0f} MB" if size else ""


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"
