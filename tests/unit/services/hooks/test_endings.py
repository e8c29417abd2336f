"""Processes that end at any of their writes: the successor neither loses nor repeats work."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from typing_extensions import override

from reconciler.api.meta import CONFIG_MAPS, Kind
from reconciler.api.updaterequest import State
from reconciler.errors import Unavailable
from reconciler.hooks.declared import HOOKS
from reconciler.memory.cluster import MemoryCluster
from reconciler.services.ports.objects import Page
from tests.skipping import SkippingLoop
from tests.unit.services.hooks.world import (
    LABELS,
    PLACE,
    Ending,
    LabelsByJq,
    LoopClock,
    Outage,
    Quiet,
    Refusals,
    Trouble,
    World,
    has_ended,
    process,
    until,
)

NAME = "{{ element.object.metadata.name }}-{{ to_lower(element.watchEvent) }}"
SEEDS = {
    "name": "seeds",
    "kind": "ConfigMap",
    "labelSelector": {"matchLabels": {"seed": "y"}},
    "executeHookOnEvent": ["Added", "Deleted"],
    "executeHookOnSynchronization": False,
}
ADDED = [f"seed-{number}-added" for number in range(3)]
MOST_WRITES = 150


def create(label: str) -> dict[str, Any]:
    """Return an operation that generates the name, so that repetitions create more objects."""
    meta = {"generateName": "made-", "labels": {"made": label}}
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}
    return {"operation": "Create", "object": obj}


def hook(**spec: Any) -> dict[str, Any]:
    run = {"foreach": "contexts[?type=='Event']", "operations": [create(NAME)]}
    return {
        "apiVersion": HOOKS.api_version,
        "kind": "Hook",
        "metadata": {"name": "once", "namespace": PLACE},
        "spec": {"kubernetes": [SEEDS], "run": run, **spec},
    }


def timed(**binding: Any) -> dict[str, Any]:
    """Return a hook with this binding instead of one to objects."""
    # A second run finds the name taken, and reports that.
    operation = create("{{ to_lower(element.binding) }}")
    meta = operation["object"]["metadata"]
    meta["name"] = f"{meta.pop('generateName')}1"
    found = hook(run={"operations": [operation]}, **binding)
    del found["spec"]["kubernetes"]
    return found


async def never() -> bool:
    return False


async def lives(
    world: World,
    term: int,
    trouble: Trouble,
    wanted: Collection[str],
    most: int = 1,
    jq: LabelsByJq | None = None,
) -> str:
    """Run a process until all is made, or it ends; return the failures that its hooks report.

    The objects that its hook is bound to are created once the hook is Ready.

    Args:
        world: The cluster.
        term: The leadership term of the process.
        trouble: The disturbance of its writes.
        wanted: The labels of the objects to be made at least.
        most: The most bytes of a request.
        jq: The evaluator of jq programs.
    """
    hooks = process(world, trouble, term, most, jq)
    working = asyncio.create_task(hooks.run())

    async def done() -> bool:
        states = await world.states()
        return (
            bool(states) and State.PENDING not in states and set(wanted) <= set(await world.made())
        )

    if ADDED[0] in wanted and not world.has("seed-0"):
        await until(world.ready, trouble)
        if not has_ended(trouble):
            for number in range(3):
                world.create(f"seed-{number}", seed="y")
    await until(done, trouble)
    # By now a repeated run has reported its failure.
    await until(never, trouble, 3.0)
    said = "".join(item.account.failure for item in hooks.active.values())
    working.cancel()
    await asyncio.wait({working})
    return said


async def life(at: int, most: int) -> tuple[bool, str, World, list[str]]:
    """Run a process that ends at a write, change objects, and run its successor."""
    world = World()
    world.cluster.create(HOOKS, hook())
    ending = Ending(at=at)
    wanted = [*ADDED]
    said = await lives(world, 1, ending, wanted, most)
    if (await world.made())["seed-1-added"]:
        await world.delete("seed-1")
        wanted.append("seed-1-deleted")
    if world.has("seed-0"):
        world.create("seed-9", seed="y")
        wanted.append("seed-9-added")
    said += await lives(world, 2, Ending(), wanted, most)
    return has_ended(ending), said, world, wanted


@pytest.mark.parametrize("most", [1, 1 << 20], ids=["one by one", "together"])
def test_each_event_makes_its_object_once_wherever_a_process_ends(most: int) -> None:
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        for at in range(MOST_WRITES):
            ended, said, world, wanted = runner.run(life(at, most))
            assert not said, f"ended at write {at}"
            assert runner.run(world.made()) == Counter(wanted), f"ended at write {at}"
            states = set(runner.run(world.states()))
            assert states == {State.COMPLETED}, f"ended at write {at}"
            if not ended:
                break
        else:
            pytest.fail("it writes more often than there are events")


def at_start() -> dict[str, Any]:
    return {"onStartup": 1}


def once_a_day() -> dict[str, Any]:
    """Return a daily schedule that is due in five seconds."""
    due = LoopClock().now() + timedelta(seconds=5)
    crontab = f"{due.second} {due.minute} {due.hour} * * *"
    return {"schedule": [{"name": "daily", "crontab": crontab}]}


@pytest.mark.parametrize(("binding", "made"), [(at_start, "onstartup"), (once_a_day, "daily")])
def test_startup_and_schedule_bindings_run_once_wherever_a_process_ends(
    binding: Callable[[], dict[str, Any]], made: str
) -> None:
    async def lifes(at: int) -> tuple[bool, str, World]:
        world = World()
        world.cluster.create(HOOKS, timed(**binding()))
        ending = Ending(at=at)
        said = await lives(world, 1, ending, [made])
        for term in (2, 3):
            said += await lives(world, term, Ending(), [made])
        return has_ended(ending), said, world

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        for at in range(MOST_WRITES):
            ended, said, world = runner.run(lifes(at))
            assert not said, f"ended at write {at}"
            assert runner.run(world.made()) == Counter([made]), f"ended at write {at}"
            assert set(runner.run(world.states())) == {State.COMPLETED}, f"ended at write {at}"
            if not ended:
                break
        else:
            pytest.fail("it writes more often than it has to")


@pytest.mark.parametrize("allowed", [False, True], ids=["must not fail", "may fail"])
@pytest.mark.parametrize("most", [1, 1 << 20], ids=["one by one", "together"])
def test_each_event_makes_its_object_once_whenever_the_api_server_is_unavailable(
    most: int, *, allowed: bool
) -> None:
    async def one(at: int) -> tuple[bool, str, World]:
        world, outage = World(), Outage(at=at)
        world.cluster.create(HOOKS, hook(kubernetes=[{**SEEDS, "allowFailure": allowed}]))
        said = await lives(world, 1, outage, ADDED, most)
        return outage.seen > at, said, world

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        for at in range(MOST_WRITES):
            came, said, world = runner.run(one(at))
            assert not said, f"away from write {at} on"
            made = runner.run(world.made())
            # With allowFailure a run has failed where an operation got no answer.
            assert made == Counter(ADDED) or (allowed and made <= Counter(ADDED)), f"write {at}"
            assert set(runner.run(world.states())) == {State.COMPLETED}, f"write {at}"
            if not came:
                break
        else:
            pytest.fail("it writes more often than there are events")


@pytest.mark.parametrize("every", [0, 1, 3], ids=["once", "all for a while", "each third"])
@pytest.mark.parametrize("most", [1, 1 << 20], ids=["one by one", "together"])
def test_the_order_is_kept_whichever_calls_are_answered_503(most: int, every: int) -> None:
    async def one(at: int) -> tuple[bool, str, World]:
        world, refusals = World(), Refusals(at=at, every=every)
        world.cluster.create(HOOKS, hook())
        said = await lives(world, 1, refusals, ADDED, most)
        return refusals.seen > at, said, world

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        for at in range(MOST_WRITES):
            came, said, world = runner.run(one(at))
            assert not said, f"refused from write {at} on"
            assert runner.run(world.made_in_order()) == ADDED, f"refused from write {at} on"
            assert set(runner.run(world.states())) == {State.COMPLETED}, f"write {at}"
            if not came:
                break
        else:
            pytest.fail("it writes more often than there are events")


def test_the_end_of_a_jq_process_loses_no_events() -> None:
    async def one(ends: int) -> tuple[int, Counter[str]]:
        world, jq = World(), LabelsByJq(ends=ends)
        world.create("seed-before", seed="y")
        world.cluster.create(HOOKS, hook(kubernetes=[{**SEEDS, "jqFilter": LABELS}]))
        await lives(world, 1, Ending(), ADDED, 1, jq)
        return jq.seen, await world.made()

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        for ends in range(MOST_WRITES):
            seen, made = runner.run(one(ends))
            assert made == Counter(ADDED), f"ended at {ends}"
            if seen <= ends:
                break
        else:
            pytest.fail("more is filtered than there is")


@pytest.mark.parametrize("most", [1, 1 << 20], ids=["one by one", "together"])
def test_events_from_before_a_restart_of_the_api_server_are_delivered(most: int) -> None:
    async def three(at: int) -> tuple[bool, str, World]:
        world, ending = World(), Ending(at=at)
        world.cluster.create(HOOKS, hook())
        said = await lives(world, 1, Ending(), ADDED, most)
        await world.delete("seed-1")
        world.create("seed-8", seed="y")
        world.create("seed-9", seed="y")
        world.restart()
        wanted = [*ADDED, "seed-1-deleted", "seed-8-added", "seed-9-added"]
        said += await lives(world, 2, ending, wanted, most)
        said += await lives(world, 3, Ending(), wanted, most)
        assert await world.made() == Counter(wanted), f"ended at write {at}"
        assert not [event.reason for event in world.events.emitted]
        return has_ended(ending), said, world

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        for at in range(MOST_WRITES):
            ended, said, world = runner.run(three(at))
            assert not said, f"ended at write {at}"
            assert set(runner.run(world.states())) == {State.COMPLETED}, f"ended at write {at}"
            if not ended:
                break
        else:
            pytest.fail("it writes more often than there are events")


def test_events_that_the_api_server_has_dropped_are_reported_as_missed() -> None:
    async def two() -> list[str]:
        world = World()
        world.cluster.create(HOOKS, hook())
        await lives(world, 1, Ending(), ADDED)
        world.create("seed-8", seed="y")
        await world.forget()
        await lives(world, 2, Ending(), [])
        assert await world.made() == Counter(ADDED)
        return [f"{event.reason}: {event.note}" for event in world.events.emitted]

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        (said,) = runner.run(two())
    assert said.startswith("EventsMissed: seeds:")
    assert said.endswith("because executeHookOnSynchronization is false")


async def _repeated(events: int) -> tuple[Counter[str], set[State]]:
    """Let runs fail while events come, and succeed afterwards; return the objects and states."""
    world = World()
    patch = {"kind": "ConfigMap", "name": "late", "mergePatch": {"data": {"a": "b"}}}
    operations = [create(NAME), {"operation": "MergePatch", **patch}]
    run = {"foreach": "contexts[?type=='Event']", "operations": operations}
    world.cluster.create(HOOKS, hook(run=run))
    hooks = process(world, Ending(), 1, 1)
    working = asyncio.create_task(hooks.run())
    await until(world.ready, Ending())
    for number in range(events):
        # Some events come while the failure of a run is being stored.
        world.create(f"seed-{number}", seed="y")
        await asyncio.sleep(0.007)

    async def failed() -> bool:
        return any(item.account.failed > 1 for item in hooks.active.values())

    async def done() -> bool:
        return set(await world.states()) == {State.COMPLETED}

    await until(failed, Ending())
    world.create("late")
    await until(done, Ending(), 100.0)
    working.cancel()
    await asyncio.wait({working})
    return await world.made(), set(await world.states())


@pytest.mark.parametrize("events", [1, 40])
def test_a_run_that_is_repeated_for_one_operation_creates_each_object_once(events: int) -> None:
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        made, states = runner.run(_repeated(events))
    assert made == Counter(f"seed-{number}-added" for number in range(events))
    assert states == {State.COMPLETED}


async def _missed() -> tuple[Counter[str], list[str]]:
    world = World()
    world.cluster.create(HOOKS, hook(run={"operations": [create(NAME)]}))
    await lives(world, 1, Ending(), ADDED)
    return await world.made(), [event.reason for event in world.events.emitted]


def test_no_missed_events_are_reported_if_none_were_missed() -> None:
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        made, said = runner.run(_missed())
    assert len(made) == 3
    assert said == []


class Lists(MemoryCluster):
    """The lists of another cluster, of which some are not answered."""

    def __init__(self, cluster: MemoryCluster) -> None:
        super().__init__()
        self._cluster = cluster
        self.unanswered = 0

    @override
    async def list_page(self, kind: Kind, **options: Any) -> Page:
        if self.unanswered:
            self.unanswered -= 1
            raise Unavailable("no answer")
        return await self._cluster.list_page(kind, **options)


@pytest.mark.parametrize("unanswered", [0, 1])
def test_no_missed_events_are_reported_after_a_quiet_time_without_bookmarks(
    unanswered: int,
) -> None:
    async def two() -> Counter[str]:
        world = Quiet()
        world.cluster.create(HOOKS, hook())
        for term in (1, 2, 3):
            hooks, lists = process(world, Ending(), term, 1), Lists(world.cluster)
            hooks.deps = replace(hooks.deps, informer=replace(hooks.deps.informer, reader=lists))
            working = asyncio.create_task(hooks.run())
            await until(world.ready, Ending())
            lists.unanswered = unanswered
            if term == 1:
                world.create("seed-0", seed="y")
            await asyncio.sleep(30)
            page = await world.cluster.list_page(CONFIG_MAPS)
            await asyncio.sleep(270)
            working.cancel()
            await asyncio.wait({working})
            world.compact(page.resource_version)
            world.create(f"other-{term}")
        assert not world.missed
        return await world.made()

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        assert runner.run(two()) == Counter({"seed-0-added": 1})


async def _blind(at: int) -> tuple[bool, set[str], bool]:
    """Run a process that finds changes by a list and ends at a write, then its successors.

    Returns whether it ended, what was not made, and whether missed events were reported.
    """
    world, ending = World(), Ending(at=at)
    world.cluster.create(HOOKS, hook())

    async def done() -> bool:
        states, made = await world.states(), set(await world.made())
        return State.PENDING not in states and (world.missed or set(ADDED) <= made)

    working = asyncio.create_task(process(world, ending, 1, 1).run())
    await until(world.ready, ending)
    for number in range(3):
        world.create(f"seed-{number}", seed="y")
    await world.forget()
    began = not has_ended(ending)
    await until(done, ending)
    for term in (2, 3):
        working.cancel()
        await asyncio.wait({working})
        working = asyncio.create_task(process(world, Ending(), term, 1).run())
        await until(done, Ending(), 100.0)
    working.cancel()
    await asyncio.wait({working})
    left = set(ADDED) - set(await world.made()) if began else set()
    return has_ended(ending), left, world.missed


def test_changes_found_by_a_list_are_all_recorded_or_reported_as_missed() -> None:
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        for at in range(MOST_WRITES):
            ended, left, missed = runner.run(_blind(at))
            assert not left or missed, f"ended at write {at}"
            if not ended:
                assert not left
                break
        else:
            pytest.fail("it writes more often than there are events")
