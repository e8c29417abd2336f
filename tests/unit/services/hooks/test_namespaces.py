"""Bindings to namespaces by label, while labels change and while no process watches."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from reconciler.api.updaterequest import State
from reconciler.hooks.declared import CLUSTER_HOOKS
from tests.skipping import SkippingLoop
from tests.unit.services.hooks.world import Ending, Quiet, World, process, until

BINDING = {
    "name": "seeds",
    "kind": "ConfigMap",
    "labelSelector": {"matchLabels": {"seed": "y"}},
    "namespace": {"labelSelector": {"matchLabels": {"seed": "y"}}},
}
META = "element.object.metadata"
NAME = f"{{{{ {META}.namespace }}}}-{{{{ {META}.name }}}}-{{{{ to_lower(element.watchEvent) }}}}"
FIRST = "first-{{ element.namespace }}-{{ element.name }}"


def made(name: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "out", "labels": {"made": name}}
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}
    return {"operation": "CreateIfNotExists", "object": obj}


def hook(foreach: str = "contexts[?type=='Event']", name: str = NAME) -> dict[str, Any]:
    return {
        "apiVersion": CLUSTER_HOOKS.api_version,
        "kind": "ClusterHook",
        "metadata": {"name": "by-label"},
        "spec": {
            "kubernetes": [BINDING],
            "run": {"foreach": foreach, "operations": [made(name)]},
        },
    }


@asynccontextmanager
async def at_work(world: World, term: int) -> AsyncIterator[None]:
    working = asyncio.create_task(process(world, Ending(), term, 1 << 20).run())
    await until(world.ready, Ending())
    yield
    working.cancel()
    await asyncio.wait({working})


async def settled(world: World, *wanted: str) -> None:
    async def holds() -> bool:
        waits = State.PENDING in await world.states()
        return not waits and set(wanted) <= set(await world.made())

    await until(holds, Ending())
    assert set(await world.made()) == set(wanted)


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=SkippingLoop) as found:
        yield found


def test_the_objects_of_all_namespaces_are_delivered_by_one_synchronization(
    runner: asyncio.Runner,
) -> None:
    async def play() -> None:
        world = World(CLUSTER_HOOKS)
        shown = "contexts[?type=='Synchronization'].objects[].object.metadata"
        world.cluster.create(CLUSTER_HOOKS, hook(shown, FIRST))
        for place, label in (("a", "seed"), ("b", "seed"), ("c", "other")):
            await world.label(place, **{label: "y"})
            world.create("x", place, seed="y")
        async with at_work(world, 1):
            await settled(world, "first-a-x", "first-b-x")
            assert len(await world.states()) == 1

    runner.run(play())


def test_the_objects_of_all_named_namespaces_are_delivered_by_one_synchronization(
    runner: asyncio.Runner,
) -> None:
    async def play() -> None:
        world = World(CLUSTER_HOOKS)
        shown = "contexts[?type=='Synchronization'].objects[].object.metadata"
        found = hook(shown, FIRST)
        named = {"nameSelector": {"matchNames": ["a", "b"]}}
        found["spec"]["kubernetes"] = [{**BINDING, "namespace": named}]
        world.cluster.create(CLUSTER_HOOKS, found)
        for place in ("a", "b"):
            world.create("x", place, seed="y")
        async with at_work(world, 1):
            await settled(world, "first-a-x", "first-b-x")
            assert len(await world.states()) == 1
        async with at_work(world, 2):
            assert len(await world.states()) == 1

    runner.run(play())


def test_a_cluster_scoped_kind_in_a_namespace_is_reported_with_its_cure(
    runner: asyncio.Runner,
) -> None:
    async def play() -> None:
        world = World(CLUSTER_HOOKS)
        found = hook()
        named = {"nameSelector": {"matchNames": ["a"]}}
        found["spec"]["kubernetes"] = [{**BINDING, "kind": "Namespace", "namespace": named}]
        world.cluster.create(CLUSTER_HOOKS, found)
        working = asyncio.create_task(process(world, Ending(), 1, 1 << 20).run())
        await asyncio.sleep(5)
        (stored,) = (await world.cluster.list_page(CLUSTER_HOOKS)).items
        (condition,) = stored["status"]["conditions"]
        assert condition["message"] == (
            "seeds: Namespace is cluster-scoped: omit namespace, in a ClusterHook or an executable"
        )
        working.cancel()
        await asyncio.wait({working})

    runner.run(play())


def test_objects_are_added_and_deleted_with_the_labels_of_their_namespace(
    runner: asyncio.Runner,
) -> None:
    async def play() -> None:
        world = World(CLUSTER_HOOKS)
        world.cluster.create(CLUSTER_HOOKS, hook())
        await world.label("a")
        world.create("x", "a", seed="y")
        world.create("y", "a", seed="y")
        async with at_work(world, 1):
            await world.label("a", seed="y")
            await settled(world, "a-x-added", "a-y-added")
            world.create("z", "a", seed="y")
            await settled(world, "a-x-added", "a-y-added", "a-z-added")
            await world.delete("y", "a")
            gone = ["a-y-deleted"]
            await settled(world, "a-x-added", "a-y-added", "a-z-added", *gone)
            await world.label("a")
            gone += ["a-x-deleted", "a-z-deleted"]
            await settled(world, "a-x-added", "a-y-added", "a-z-added", *gone)

    runner.run(play())


def test_changes_in_namespaces_while_no_process_watches_are_found(runner: asyncio.Runner) -> None:
    async def play() -> None:
        world = World(CLUSTER_HOOKS)
        world.cluster.create(CLUSTER_HOOKS, hook())
        for place in ("leaves", "stays"):
            await world.label(place, seed="y")
        await world.label("comes")
        async with at_work(world, 1):
            world.create("x", "leaves", seed="y")
            world.create("y", "leaves", seed="y")
            await settled(world, "leaves-x-added", "leaves-y-added")
        done = ["leaves-x-added", "leaves-y-added"]
        await world.delete("x", "leaves")
        await world.label("leaves")
        await world.label("comes", seed="y")
        world.create("x", "stays", seed="y")
        world.create("x", "comes", seed="y")
        done += ["leaves-x-deleted", "leaves-y-deleted", "stays-x-added", "comes-x-added"]
        async with at_work(world, 2):
            await settled(world, *done)
        requests = len(await world.states())
        async with at_work(world, 3):
            world.create("y", "stays", seed="y")
            await settled(world, *done, "stays-y-added")
        assert len(await world.states()) == requests + 1, "nothing is given again"

    runner.run(play())


def test_objects_of_a_namespace_that_was_left_are_deleted_without_bookmarks(
    runner: asyncio.Runner,
) -> None:
    async def play() -> None:
        world = Quiet(CLUSTER_HOOKS)
        world.cluster.create(CLUSTER_HOOKS, hook())
        await world.label("a", seed="y")
        async with at_work(world, 1):
            world.create("x", "a", seed="y")
            await settled(world, "a-x-added")
        await world.label("a")
        async with at_work(world, 2):
            await settled(world, "a-x-added", "a-x-deleted")

    runner.run(play())


def test_objects_of_a_namespace_that_matches_again_are_delivered_again(
    runner: asyncio.Runner,
) -> None:
    async def play() -> None:
        world = World(CLUSTER_HOOKS)
        world.cluster.create(CLUSTER_HOOKS, hook())
        await world.label("a", seed="y")
        world.create("x", "a", seed="y")
        async with at_work(world, 1):
            await world.label("a")
            await settled(world, "a-x-deleted")
            await world.label("a", seed="y")
            await settled(world, "a-x-deleted", "a-x-added")

    runner.run(play())


async def life(at: int) -> bool:
    """Return whether a process ended at this write while a namespace came and went."""
    world, ending = World(CLUSTER_HOOKS), Ending(at=at)
    world.cluster.create(CLUSTER_HOOKS, hook())
    await world.label("a")
    for name in ("x", "y"):
        world.create(name, "a", seed="y")
    wanted = {"a-x-added", "a-y-added"}

    async def done() -> bool:
        waits = State.PENDING in await world.states()
        return not waits and wanted <= set(await world.made())

    working = asyncio.create_task(process(world, ending, 1, 1).run())
    await until(world.ready, ending)
    began = not ending.came.is_set()
    await world.label("a", seed="y")
    await until(done, ending)
    if not ending.came.is_set():
        wanted |= {"a-x-deleted", "a-y-deleted"}
        await world.label("a")
        await until(done, ending)
    working.cancel()
    await asyncio.wait({working})
    if began:
        async with at_work(world, 2):
            await settled(world, *wanted)
    return ending.came.is_set()


def test_all_additions_and_deletions_are_delivered_wherever_a_process_ends(
    runner: asyncio.Runner,
) -> None:
    for at in range(120):
        if not runner.run(life(at)):
            break
    else:
        pytest.fail("it writes more often than there are events")
