"""A request that crashes its controller is found, whatever else was in work."""

import asyncio
import contextlib
from dataclasses import replace

import pytest

from reconciler.api.updaterequest import State
from reconciler.requests.lifecycle import MOST_INTERRUPTIONS
from tests.unit.services.conftest import Make, World, until

NAMES = ("ur-1", "ur-2", "ur-3")
POISON = "ur-2"


class Stuck:
    """A loader that shows which requests are in work, and blocks until a test releases them."""

    def __init__(self):
        self.inside = set()
        self.free = set()
        self.changed = asyncio.Event()

    async def load(self, load):
        self.inside.add(load.name)
        while load.name not in self.free:
            self.changed.clear()
            await self.changed.wait()
        self.inside.discard(load.name)
        return {"data": {"k": "v"}}

    def release(self, *names):
        self.free.update(names)
        self.changed.set()


@pytest.fixture
def stuck() -> Stuck:
    return Stuck()


@pytest.fixture
async def asked(world: World, make: type[Make]) -> None:
    """Three requests for three triggers, of a rule that reads a ConfigMap of the same name."""
    world.cluster.add(make.object("Secret", "s"))
    context = [
        {"name": "x", "configMap": {"name": "{{ request.object.data.n }}", "namespace": "a"}}
    ]
    patch = {"metadata": {"labels": {"{{ request.object.data.n }}": "{{ x.data.k }}"}}}
    condition = {"key": "{{ x.data.k }}", "operator": "Equals", "value": "v"}
    made = make.policy(patch=patch, context=context, preconditions={"all": [condition]})
    policy = world.install(made)
    for name in NAMES:
        trigger = world.cluster.add(make.object(name=f"trigger-{name}", data={"n": name}))
        await world.ask(policy, trigger, name=name)


@contextlib.asynccontextmanager
async def leader(world, stuck, *, after_a_crash):
    """Run a controller that is cancelled during its work, so that it stores no results."""
    world.restart()
    stuck.inside.clear()
    world.dispatcher.processor = replace(world.processor, loader=stuck)
    if after_a_crash:
        world.dispatcher.suspects.expect()
    async with world.working():
        await world.dispatcher.resync()
        yield
    # A cancelled controller leaves as little behind as a killed one.


async def interruptions(world):
    return {name: (await world.status(name)).interruptions for name in NAMES}


async def test_nothing_is_recorded_if_the_previous_leader_ended_cleanly(world, stuck, asked):
    async def versions():
        return [(await world.requests.get(name)).resource_version for name in NAMES]

    before = await versions()
    async with leader(world, stuck, after_a_crash=False):
        await until(lambda: stuck.inside == set(NAMES))
        assert await versions() == before


async def test_only_the_request_that_terminates_its_controller_is_given_up(world, stuck, asked):
    async with leader(world, stuck, after_a_crash=False):
        await until(lambda: stuck.inside == set(NAMES))
    # All waiting requests are noted before they are processed, side by side.
    async with leader(world, stuck, after_a_crash=True):
        await until(lambda: stuck.inside == set(NAMES))
    assert await interruptions(world) == dict.fromkeys(NAMES, 1)
    # Requests that had begun are processed one at a time.
    async with leader(world, stuck, after_a_crash=True):
        await until(lambda: stuck.inside == {"ur-1"})
        stuck.release("ur-1")
        await until(lambda: stuck.inside == {POISON})
    assert await interruptions(world) == {"ur-1": 0, POISON: 2, "ur-3": 1}
    stuck.release("ur-3")
    # The most suspect request comes first.
    async with leader(world, stuck, after_a_crash=True):
        await until(lambda: stuck.inside == {POISON})
    assert (await interruptions(world))[POISON] == MOST_INTERRUPTIONS
    async with leader(world, stuck, after_a_crash=True):
        await until(lambda: not world.dispatcher.waiting)
    ended = {name: await world.status(name) for name in NAMES}
    assert ended.pop(POISON).state is State.FAILED
    assert {status.state for status in ended.values()} == {State.COMPLETED}
    poison = await world.status(POISON)
    assert poison.reason == "Interrupted"
    assert "the controller was terminated 3 times in a row" in poison.message


async def test_a_completed_request_has_no_interruptions(world, stuck, asked):
    stuck.release(*NAMES)
    async with leader(world, stuck, after_a_crash=True):
        await until(lambda: not world.dispatcher.waiting)
    assert await interruptions(world) == dict.fromkeys(NAMES, 0)


async def test_a_suspect_that_is_not_due_does_not_hold_up_others(world, stuck, asked):
    async with leader(world, stuck, after_a_crash=True):
        await until(lambda: stuck.inside == set(NAMES))
    stored = await world.requests.get("ur-1")
    later = replace(stored.status, next_attempt=world.clock.now().replace(year=2027))
    await world.requests.write_status(stored, later)
    stuck.release("ur-2", "ur-3")
    async with leader(world, stuck, after_a_crash=True):
        await until(lambda: world.dispatcher.waiting == 1)
    assert (await world.status("ur-3")).state is State.COMPLETED


async def test_an_unconfirmed_request_has_no_interruptions(world, make, stuck):
    policy = world.install(make.policy())
    trigger = make.object(name="not-stored")
    trigger["metadata"]["uid"] = "u"
    await world.ask(policy, trigger, name="ur-1")
    async with leader(world, stuck, after_a_crash=True):
        await until(lambda: world.dispatcher.queue.depth == 1)
        await until(lambda: not world.dispatcher.queue.working)
        assert (await world.status("ur-1")).interruptions == 0
