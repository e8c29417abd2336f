import asyncio

import pytest

from reconciler.api.updaterequest import State
from reconciler.config import ControllerSettings
from reconciler.services.processing.memory_budget import InFlight, MemoryBudget
from tests.unit.services.conftest import World


async def holding(budget, size, log, name, release):
    async with budget.hold(size):
        log.append(name)
        await release.wait()


async def begin(budget, *sizes):
    """Start holders of these sizes in order; return their log, release events and tasks."""
    log, release = [], [asyncio.Event() for _ in sizes]
    tasks = [
        asyncio.create_task(holding(budget, size, log, n, release[n]))
        for n, size in enumerate(sizes)
    ]
    await turns()
    return log, release, tasks


async def turns():
    for _ in range(10):
        await asyncio.sleep(0)


async def test_reservations_that_fit_are_granted_and_others_wait_in_order():
    budget = MemoryBudget(100)
    log, release, tasks = await begin(budget, 60, 30, 50, 10)
    assert (log, budget.used) == ([0, 1], 90)
    release[0].set()
    await turns()
    assert (log, budget.used) == ([0, 1, 2, 3], 90)
    for event in release:
        event.set()
    await asyncio.gather(*tasks)
    assert budget.used == 0


async def test_a_reservation_larger_than_the_budget_is_granted_alone():
    budget = MemoryBudget(100)
    log, release, tasks = await begin(budget, 10, 500, 10)
    assert log == [0]
    release[0].set()
    await turns()
    assert (log, budget.used) == ([0, 1], 500)
    release[1].set()
    await turns()
    assert log == [0, 1, 2]
    release[2].set()
    await asyncio.gather(*tasks)
    assert budget.used == 0


async def test_a_reservation_that_shrinks_makes_room():
    budget = MemoryBudget(100)
    async with budget.hold(100) as hold:
        log, release, tasks = await begin(budget, 70)
        assert log == []
        hold.resize(20)
        await turns()
        assert (log, budget.used) == ([0], 90)
        hold.resize(150)
        assert budget.used == 220
    release[0].set()
    await asyncio.gather(*tasks)
    assert budget.used == 0


async def test_a_cancelled_waiter_keeps_no_reservation():
    budget = MemoryBudget(100)
    _, release, tasks = await begin(budget, 100, 100, 100)
    tasks[1].cancel()
    # The third is admitted, and cancelled before it can run.
    release[0].set()
    await asyncio.wait([tasks[0], tasks[1]])
    tasks[2].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert budget.used == 0
    async with budget.hold(100):
        assert budget.used == 100


async def test_a_byte_allowance_never_waits_and_is_returned():
    budget = MemoryBudget(100)
    with budget.byte_allowance() as byte_allowance:
        assert [byte_allowance.take(60), byte_allowance.take(60), byte_allowance.take(40)] == [
            True,
            False,
            True,
        ]
        assert budget.used == 100
    assert budget.used == 0


async def test_the_expected_size_of_a_kind_is_its_largest_recent_size():
    flight = InFlight.of(ControllerSettings())
    assert flight.expected("secrets") == 1024 * 1024
    assert flight.weigh("secrets", {"a": "x" * 1000}) == 1008
    least = flight.expected("secrets")
    assert flight.triggers.limit // least == flight.targets.limit // least == 64
    assert flight.weigh("secrets", {"a": "x" * 1_000_000}) == flight.expected("secrets")
    for _ in range(500):
        flight.weigh("secrets", {})
    assert flight.expected("secrets") == least
    assert flight.weigh("secrets", {"n": 2**70}) == 1024 * 1024


async def test_without_a_limit_nothing_is_counted():
    flight = InFlight.of(ControllerSettings(max_in_flight=0))
    async with flight.targets.hold(flight.expected("secrets")) as hold:
        hold.resize(flight.weigh("secrets", {"a": "x"}))
        assert flight.used == 0


@pytest.fixture
def narrow() -> InFlight:
    """Limits under which no two objects of the world fit at the same time."""
    limit = ControllerSettings(max_in_flight=1024 * 1024)
    flight = InFlight.of(limit)
    for budget in (flight.pages, flight.triggers, flight.lists, flight.kept, flight.targets):
        budget.limit = 1
    return flight


@pytest.fixture
def world(narrow: InFlight) -> World:
    world = World(flight=narrow)
    world.wire.page_size = 100
    return world


async def test_requests_and_sweeps_do_not_deadlock_in_a_narrow_budget(world, make, narrow):
    labels = {"app": "x"}
    for n in range(20):
        world.cluster.add(make.object("Secret", f"s{n}", labels=labels))
    chosen = {
        "apiVersion": "v1",
        "kind": "Secret",
        "namespace": "a",
        "selector": {"matchLabels": labels},
    }
    policy = world.install(make.policy(targets=[chosen, make.target("s1")]))
    triggers = [world.cluster.add(make.object(name=f"t{n}")) for n in range(20)]
    for n, trigger in enumerate(triggers):
        await world.ask(policy, trigger, name=f"ur-{n}")
    await world.ask(policy, policy, name="sweep", sweep=True)
    await world.dispatcher.resync()
    await world.settle()
    names = ["sweep", *(f"ur-{n}" for n in range(20))]
    assert {(await world.status(name)).state for name in names} == {State.COMPLETED}
    assert narrow.used == 0
    done = [await world.read(make.object("Secret", f"s{n}")) for n in range(20)]
    assert all(item["metadata"]["labels"]["done"] == "yes" for item in done)


async def test_a_listed_target_without_room_is_read_again(world, make, narrow):
    for name in ("one", "two"):
        world.cluster.add(make.object("Secret", name))
    target = {"apiVersion": "v1", "kind": "Secret", "namespace": "a", "name": "*"}
    policy = world.install(make.policy(targets=[target]))
    trigger = world.cluster.add(make.object(name="t"))
    world.dispatcher.on_stored(await world.ask(policy, trigger))
    await world.settle()
    assert (await world.status()).counts.patched == 2
    assert world.wire.calls["get Secret one"] + world.wire.calls["get Secret two"] == 1


async def test_the_memory_of_a_page_is_returned_when_a_sweep_ends_early(world, make, narrow):
    policy = world.install(make.policy())
    for n in range(3):
        world.cluster.add(make.object(name=f"t{n}"))
    world.cluster.add(make.object("Secret", "s"))
    edited = await world.edit(policy, spec=make.policy(patch={"data": {"x": "y"}})["spec"])
    await world.ask(policy, policy, sweep=True)

    def change_policy(*_):
        world.index.apply(edited)

    world.wire.before_change = change_policy
    await world.dispatcher.resync()
    await world.settle()
    assert (await world.status()).reason == "Superseded"
    assert narrow.used == 0
