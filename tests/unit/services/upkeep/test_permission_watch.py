"""Requests that wait for a right resume soon after the grant, with one review per right."""

import asyncio
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from typing_extensions import override

from reconciler.api.account import MissingRight
from reconciler.api.meta import Object
from reconciler.api.updaterequest import State
from reconciler.errors import Forbidden, Unavailable
from reconciler.services.upkeep.permission_watch import PermissionWatch
from tests.unit.rights import Account
from tests.unit.services.conftest import Make, StandingClock, World, until


@pytest.fixture
def target(world: World, make: type[Make]) -> Object:
    return world.cluster.add(make.object("Secret", "s", spec={"list": []}))


@pytest.fixture
def trigger(world: World, make: type[Make]) -> Object:
    return world.cluster.add(make.object(data={"v": "1"}))


@pytest.fixture
def policy(world: World, make: type[Make]) -> Object:
    return world.install(make.policy())


def watcher(world, account, **options) -> PermissionWatch:
    return PermissionWatch(waiting=world.dispatcher, access=account, clock=world.clock, **options)


@dataclass
class Shelf:
    """Waiting requests that never resume."""

    missing: frozenset[str]
    woken: list[str] = field(default_factory=list)

    names: frozenset[str] = frozenset()

    def objects_out_of_reach(self) -> dict[MissingRight, frozenset[str]]:
        return {MissingRight(text): self.names for text in self.missing}

    def wake_lacking(self, missing: MissingRight, name: str = "") -> None:
        text = missing.permission
        self.woken.append(f"{text} named {name}" if name else text)


async def parked(world, policy, trigger, *names: str) -> None:
    """Store requests for a target that they may not patch, and process each."""

    def refuse(_before, _after):
        raise Forbidden("no", permission="patch secrets in namespace a")

    world.wire.before_change = refuse
    for name in names:
        world.dispatcher.on_stored(await world.ask(policy, trigger, name=name))
        await world.settle()
        assert (await world.status(name)).missing_permission == "patch secrets in namespace a"


async def test_a_granted_right_wakes_the_requests_that_wait_for_it(world, policy, trigger, target):
    await parked(world, policy, trigger, "ur-1", "ur-2")
    account = Account(lacks={"patch secrets", "update secrets"})
    watch = watcher(world, account)
    await watch.look()
    await world.settle()
    assert (await world.status("ur-1")).attempts == 1
    # Both ways of writing, for all objects and for one, however many requests wait.
    rights = ["patch secrets in namespace a", "update secrets in namespace a"]
    assert account.asked == [*rights, *(f"{right} named s" for right in rights)]
    account.lacks.clear()
    world.wire.before_change = lambda *_: None
    await watch.look()
    await world.settle()
    assert [(await world.status(name)).state for name in ("ur-1", "ur-2")] == [State.COMPLETED] * 2
    assert world.dispatcher.objects_out_of_reach() == {}
    account.asked.clear()
    await watch.look()
    assert account.asked == []


async def test_the_right_to_update_is_enough_where_patch_is_missing(
    world, policy, trigger, target
):
    await parked(world, policy, trigger, "ur-1")
    await watcher(world, Account(lacks={"patch secrets"})).look()
    world.wire.before_change = lambda *_: None
    await world.settle()
    assert (await world.status("ur-1")).state is State.COMPLETED


async def test_a_right_on_the_single_object_is_enough(world, policy, trigger, target):
    class OneObject(Account):
        @override
        async def may(self, right):
            return right.verb == "patch" and right.name == "s"

    await parked(world, policy, trigger, "ur-1")
    world.wire.before_change = lambda *_: None
    await watcher(world, OneObject()).look()
    await world.settle()
    assert (await world.status("ur-1")).state is State.COMPLETED


async def test_requests_for_other_objects_are_not_woken(world, policy, trigger, target):
    await parked(world, policy, trigger, "ur-1")
    world.wire.before_change = lambda *_: None
    world.dispatcher.wake_lacking(MissingRight("patch secrets in namespace a"), "other")
    await world.settle()
    assert (await world.status("ur-1")).attempts == 1


async def test_rights_on_single_objects_are_checked_in_turns():
    names = frozenset(f"s{n}" for n in range(5))
    shelf = Shelf(frozenset({"get secrets", "list secrets"}), names=names)
    account = Account(lacks={"get secrets", "list secrets"})
    watch = PermissionWatch(waiting=shelf, access=account, clock=StandingClock(), most_named=2)
    for _ in range(3):
        await watch.look()
    named = [text for text in account.asked if "named" in text]
    assert set(named[:5]) == {f"get secrets named {name}" for name in names}
    assert len(named) == 6


async def test_missing_rights_are_listed_with_their_objects(world, policy, trigger, target):
    await parked(world, policy, trigger, "ur-1", "ur-2")
    missing = {MissingRight("patch secrets in namespace a"): frozenset({"s"})}
    assert world.dispatcher.objects_out_of_reach() == missing


async def test_a_right_that_only_seems_granted_is_tried_less_and_less_often():
    clock, shelf = StandingClock(), Shelf(frozenset({"get secrets"}))
    watch = PermissionWatch(waiting=shelf, access=Account(), clock=clock)
    moments = []
    for _ in range(62):
        before = len(shelf.woken)
        await watch.look()
        if len(shelf.woken) > before:
            moments.append(clock.now())
        clock.tick(5.0)
    pauses = [(b - a).total_seconds() for a, b in pairwise(moments)]
    assert pauses == [5, 10, 20, 40, 80]
    # Once the right was seen to be missing, its return wakes the requests at once.
    watch.access.lacks.add("get secrets")
    await watch.look()
    watch.access.lacks.clear()
    before = len(shelf.woken)
    await watch.look()
    assert len(shelf.woken) == before + 1


async def test_a_round_checks_a_bounded_number_of_rights_and_the_next_the_others():
    account = Account(lacks={f"get things{n}" for n in range(5)})
    shelf = Shelf(frozenset({"get /healthz", *account.lacks}))
    watch = PermissionWatch(waiting=shelf, access=account, clock=StandingClock(), most=2)
    for _ in range(3):
        before = len(account.asked)
        await watch.look()
        assert len(account.asked) - before <= 2
    assert sorted(account.asked) == [f"get things{n}" for n in range(5)]
    assert not shelf.woken


async def test_a_failed_access_review_is_repeated(world, policy, trigger, target):
    await parked(world, policy, trigger, "ur-1")
    account = Account(broken=Unavailable("no answer"))
    watch = watcher(world, account, pause=0.001)
    world.wire.before_change = lambda *_: None
    task = asyncio.create_task(watch.run())
    try:
        await until(lambda: account.asked)
        account.asked, account.broken = [], None
        await until(lambda: account.asked)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await world.settle()
    assert (await world.status("ur-1")).state is State.COMPLETED
