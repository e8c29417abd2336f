import asyncio

import pytest

from reconciler.api.updaterequest import State
from reconciler.config import ControllerSettings
from reconciler.services.processing.memory_budget import InFlight, MemoryBudget, Readings
from tests.unit.services.conftest import World, until


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


async def test_a_tenant_with_large_objects_leaves_its_share_to_others():
    budget = MemoryBudget(100, share=75)
    async with budget.hold(60, "a"), budget.hold(15, "a"):
        waits = asyncio.create_task(holding_as(budget, "a", 10))
        await turns()
        assert budget.used == 75
        async with budget.hold(20, "b"), budget.hold(5, "c"):
            assert budget.used == 100
    await waits
    assert budget.used == 0


async def test_waiting_tenants_take_turns_and_none_overtakes_a_large_object():
    budget = MemoryBudget(100, share=75)
    log: list[str] = []
    async with budget.hold(60, "a"):
        tasks = [
            asyncio.create_task(holding_as(budget, name, size, log))
            for name, size in (("a", 40), ("b", 70), ("b", 10), ("c", 10))
        ]
        await turns()
        assert log == []
    await asyncio.gather(*tasks)
    assert log == ["a", "b", "c", "b"]
    assert budget.used == 0


async def test_an_object_larger_than_a_share_is_admitted_as_the_only_one_of_its_tenant():
    budget = MemoryBudget(100, share=75)
    async with budget.hold(10, "b"), budget.hold(90, "a"):
        assert budget.used == 100


async def holding_as(budget, tenant, size, log=None):
    async with budget.hold(size, tenant):
        if log is not None:
            log.append(tenant)
        await turns()


@pytest.fixture
def crowd() -> World:
    """A world in which the writes to namespace a never end, and two large objects fit at once."""
    world = World(flight=InFlight.of(ControllerSettings(max_in_flight=8 * 1024 * 1024)))
    world.wire.page_size = world.flight.page

    def hang(before, _after):
        return asyncio.Event().wait() if before["metadata"]["namespace"] == "a" else None

    world.wire.before_change = hang
    return world


async def test_large_triggers_with_slow_targets_delay_no_other_tenant(crowd, make):
    own = make.target("s", namespace="{{ request.object.metadata.namespace }}")
    policy = crowd.install(make.policy(targets=[own]))

    async def ask(namespace, name):
        data = {"blob": "x" * 700_000}
        trigger = crowd.cluster.add(make.object(name=name, namespace=namespace, data=data))
        crowd.dispatcher.on_stored(await crowd.ask(policy, trigger, name=name))

    for namespace in ("a", "b"):
        crowd.cluster.add(make.object("Secret", "s", namespace=namespace))
    async with crowd.working():
        for n in range(5):
            await ask("a", f"a-{n}")
        await until(lambda: crowd.flight.triggers.crowded)
        await ask("b", "b")
        await completed(crowd, "b")


async def test_sweeps_with_slow_targets_delay_no_sweep_of_another_tenant(crowd, make):
    async def sweep(namespace, name):
        target = make.target("s", namespace=namespace)
        policy = crowd.install(make.policy(name, namespace=namespace, targets=[target]))
        crowd.dispatcher.on_stored(await crowd.ask(policy, policy, name=name, sweep=True))

    for namespace in ("a", "b"):
        crowd.cluster.add(make.object("Secret", "s", namespace=namespace))
        crowd.cluster.add(make.object(name="t", namespace=namespace))
    async with crowd.working():
        for n in range(5):
            await sweep("a", f"a-{n}")
        await until(lambda: crowd.flight.pages.crowded)
        await sweep("b", "b")
        await completed(crowd, "b")


async def completed(world: World, name: str) -> None:
    await until(
        lambda: (
            (name, State.COMPLETED)
            in [(request.name, status.state) for request, status, _ in world.observed]
        )
    )


async def test_what_context_entries_read_is_held_until_the_targets_are_done(crowd, make):
    """The triggers are small, and each reads an object of which two fit at once."""
    read = 0
    load = crowd.loader.load

    async def counted(what):
        nonlocal read
        read += 1
        return await load(what)

    crowd.loader.load = counted
    for namespace in ("a", "b"):
        crowd.cluster.add(make.object("Secret", "s", namespace=namespace))
    crowd.cluster.add(make.object(name="big", data={"blob": "x" * 700_000}))
    own = make.target("s", namespace="{{ request.object.metadata.namespace }}")
    policy = crowd.install(
        make.policy(
            targets=[own],
            context=[{"name": "c", "configMap": {"name": "big", "namespace": "a"}}],
            preconditions={
                "all": [{"key": "{{ c.metadata.name }}", "operator": "Equals", "value": "big"}]
            },
        )
    )

    async def ask(name, namespace):
        trigger = crowd.cluster.add(make.object(name=name, namespace=namespace))
        crowd.dispatcher.on_stored(await crowd.ask(policy, trigger, name=name))

    async with crowd.working():
        await ask("first", "b")
        await completed(crowd, "first")
        for n in range(10):
            await ask(f"t{n}", "a")
        await until(lambda: read > 1)
        for _ in range(500):
            await asyncio.sleep(0)
        assert read <= 1 + 2


async def test_a_rule_that_reads_nothing_takes_no_turn_after_its_first_trigger():
    flight = InFlight.of(ControllerSettings(max_in_flight=1024 * 1024))
    async with flight.loaded.reading("p r", "a") as count:
        assert flight.loaded.budget.used == flight.page // 32
    async with flight.loaded.reading("p r", "a"), flight.loaded.reading("p other", "a") as count:
        count(2_000_001)
        async with flight.loaded.reading("p r", "a"):
            assert flight.loaded.budget.used == flight.used > 2_000_000
    async with flight.loaded.reading("p other", "a"):
        assert flight.used > 2_000_000


async def test_what_ends_first_decides_how_much_the_waiting_ones_of_its_rule_count():
    readings = Readings(budget=MemoryBudget(100), unknown=60)
    first = await readings.begin("p r", "a")
    waiting = [asyncio.create_task(readings.begin("p r", "a")) for _ in range(5)]
    await turns()
    assert not any(task.done() for task in waiting)
    first.count(10)
    first.end()
    for reading in await asyncio.gather(*waiting):
        assert reading.hold.size == 10
        reading.end()
    assert readings.budget.used == 0


async def test_a_tenant_counts_as_much_as_others_only_until_its_own_work_has_ended():
    readings = Readings(budget=MemoryBudget(100), unknown=10)
    large = await readings.begin("p r", "a")
    large.count(60)
    large.end()
    for expected in (60, 5):
        small = await readings.begin("p r", "b")
        assert small.hold.size == expected
        small.count(5)
        small.end()
    again = await readings.begin("p r", "a")
    assert again.hold.size == 60
    again.end()


async def test_a_read_that_ends_after_its_work_keeps_nothing():
    readings = Readings(budget=MemoryBudget(100), unknown=60)
    reading = await readings.begin("p r", "a")
    reading.end()
    reading.count(50)
    assert readings.budget.used == 0
