"""Measures how an attack affects other tenants and the programs while it lasts."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from typing_extensions import override

from devcluster.install import NAMESPACE
from devcluster.programs import ADMISSION, CONTROLLER
from tests.attacks.roles import Neighbour
from tests.faults.rig import Rig, config_map

ALLOWED = {ADMISSION: 384 * 1024, CONTROLLER: 512 * 1024}
"""The memory limits of the programs in the manifests, in KiB."""
WRITTEN = 1.0
"""Seconds within which 99 of 100 writes of another tenant have to be done."""
WORKED = 2.0
"""Seconds within which 9 of 10 triggers of another tenant must have changed their target."""
_LEASE = "kube-retrofit-controller"
_LEASE_DURATION = 5.0
_OFTEN = 0.1
_TRIES = 3


@dataclass(slots=True, kw_only=True)
class Vitals:
    """Measurements taken from outside the programs.

    Attributes:
        gaps: Seconds since the last renewal of the Lease, one value per sample.
        transitions: All values of the Lease's leaseTransitions that were seen.
        memory: KiB of each program with its children, one value per sample.
        works: Seconds from each trigger of the neighbour to the change of its target.
    """

    rig: Rig
    neighbour: Neighbour
    gaps: list[float] = field(default_factory=list)
    transitions: set[int] = field(default_factory=set)
    memory: dict[str, list[int]] = field(default_factory=dict)
    works: list[float] = field(default_factory=list)

    async def look(self) -> None:
        """Sample the Lease and the memory of the processes until cancelled."""
        renewed, since = "", time.monotonic()
        while True:
            spec = (await self.rig.get("Lease", _LEASE, NAMESPACE))["spec"]
            self.transitions.add(spec["leaseTransitions"])
            now = time.monotonic()
            self.gaps.append(now - since)
            if spec["renewTime"] != renewed:
                renewed, since = spec["renewTime"], now
            for program, pid in self.rig.programs.supervision.pids.items():
                held = sum(map(_memory, [pid, *_children(pid)]))
                self.memory.setdefault(program, []).append(held)
            await asyncio.sleep(_OFTEN)

    async def work(self, mark: str) -> None:
        """Create triggers of the neighbour until cancelled, each after the last one is applied."""
        other, number = self.neighbour.rig, 0
        while True:
            name = f"trigger-{mark}-{number}"
            number += 1
            begun = time.monotonic()
            await other.create(config_map(other.namespace, name, n="0"))
            await other.applied({"target-0": {"got": name}}, within=20.0)
            self.works.append(time.monotonic() - begun)

    async def unworked(self) -> str:
        """Return a message until a trigger of the neighbour has been applied."""
        return "" if self.works else "a trigger of the neighbour"

    @property
    def written(self) -> Sequence[float]:
        """Return the seconds that writes of the neighbour took."""
        return self.neighbour.seconds

    def calm(self) -> bool:
        """Return whether the neighbour was served as fast as without an attack."""
        return share(self.written, 0.99) < WRITTEN and share(self.works, 0.9) < WORKED

    def check(self) -> None:
        """Assert what a busy machine must not affect: no refusal, one leader, memory in limits."""
        assert self.neighbour.refused == []
        assert len(self.transitions) == 1, "the Lease was lost"
        assert max(self.gaps) < _LEASE_DURATION, "the Lease was not renewed in time"
        for program, seen in self.memory.items():
            allowed = ALLOWED[ADMISSION if program.startswith(ADMISSION) else CONTROLLER]
            assert max(seen) < allowed, (program, max(seen))

    @override
    def __str__(self) -> str:
        peaks = ", ".join(f"{name} {max(seen) // 1024}" for name, seen in self.memory.items())
        return (
            f"writes p50 {share(self.written, 0.5) * 1000:.0f} p99"
            f" {share(self.written, 0.99) * 1000:.0f} max {max(self.written) * 1000:.0f} ms of"
            f" {len(self.written)}; trigger to target p50 {share(self.works, 0.5):.2f} p90"
            f" {share(self.works, 0.9):.2f} max {max(self.works):.2f} s of {len(self.works)};"
            f" Lease after {max(self.gaps):.1f} s; MiB at most {peaks}"
        )


def share(seconds: Iterable[float], part: float) -> float:
    """Return the quantile of some durations, such as the median for a part of 0.5."""
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


@contextlib.asynccontextmanager
async def measured(rig: Rig, neighbour: Neighbour, mark: str) -> AsyncIterator[Vitals]:
    """Measure until the context ends; the neighbour has the rule of `Rig.one_to_one`."""
    # Use a new list, so that earlier measurements stay unchanged for the report.
    neighbour = replace(neighbour, seconds=[])
    vitals = Vitals(rig=rig, neighbour=neighbour)
    jobs = [vitals.look(), neighbour.work(mark), vitals.work(mark)]
    tasks = [asyncio.create_task(job) for job in jobs]
    try:
        yield vitals
    finally:
        ended = [task for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert not ended, [task.exception() for task in ended]


async def endure(
    title: str,
    rig: Rig,
    neighbour: Neighbour,
    attack: Callable[[str], Awaitable[None]],
    *,
    served: Callable[[], bool] = lambda: True,
) -> Vitals:
    """Attack up to three times, until one attack does not affect others; print the figures.

    A machine that runs other tests at the same time may be slow once. If the attack is the cause,
    others are slowed down each time.

    Args:
        title: The title of the printed figures.
        rig: Access to the attacked namespace.
        neighbour: The tenant who must not be affected.
        attack: Attacks once; it is called with a mark for the names of its objects.
        served: Returns whether the users that only ``attack`` measures were served as well.
    """
    await neighbour.rig.one_to_one(1)
    seen: list[Vitals] = []
    for number in range(_TRIES):
        mark = f"{number}"
        async with measured(rig, neighbour, mark) as vitals:
            await attack(mark)
            await rig.settle(vitals.unworked, within=20.0)
        print(f"{title}: {vitals}")  # noqa: T201 - the figures are what is asked for
        vitals.check()
        if vitals.calm() and served():
            return vitals
        seen.append(vitals)
    raise AssertionError("; ".join(map(str, seen)))


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(item) for item in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _memory(pid: int) -> int:
    # Pss counts memory that a child shares with its parent once.
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0
