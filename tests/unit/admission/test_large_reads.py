"""What the context entries of many reviews read at the same time."""

import asyncio
import gc
import weakref
from typing import Any

import pytest

from admission.lookup import Address
from reconciler.api.meta import Object
from reconciler.clock import Deadline, SystemClock
from reconciler.engine.loads import ConfigMapLoad, GlobalLoad, Load
from reconciler.engine.program import FAIL
from reconciler.errors import Unavailable
from reconciler.observe.loops import new_event_loop
from reconciler.services.processing.memory_budget import Readings
from reconciler.serving.review import parse_review
from tests.unit.admission.conftest import Make
from tests.unit.admission.serving import World

MIB = 1024 * 1024
SETTINGS = {
    "name": "settings",
    "configMap": {"name": "settings", "namespace": "{{ request.namespace }}"},
}
READS: dict[str, Any] = {
    "context": [SETTINGS],
    "mutate": {"patchStrategicMerge": {"data": {"mode": "{{ settings.data.mode }}"}}},
}


class Shelf:
    """A loader whose values are large, and that answers when its gate opens.

    Attributes:
        blocked: A namespace whose values never arrive.
        open: Reads that are not answered.
        most: The most of them at the same time.
    """

    def __init__(self, size: int, blocked: str = "") -> None:
        self.size = size
        self.blocked = blocked
        self.gate = asyncio.Event()
        self.open = self.most = self.read = 0

    async def load(self, load: Load) -> Any:
        if isinstance(load, GlobalLoad):
            return {"mode": "kept"}
        assert isinstance(load, ConfigMapLoad)
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            if load.namespace == self.blocked:
                await asyncio.Event().wait()
            await self.gate.wait()
        finally:
            self.open -= 1
        self.read += 1
        return {"data": {"mode": "fast"}, "blob": "x" * self.size}


async def ask(world: World, obj: Object, path: str = "/mutate/fail") -> Object:
    status, answer = await world.post(path, Make.review(obj=obj))
    assert status == 200, answer
    response: Object = answer["response"]
    return response


def asked(world: World, count: int, namespace: str = "a") -> list[asyncio.Task[Object]]:
    objects = (Make.thing(name=f"o{n}", namespace=namespace) for n in range(count))
    return [asyncio.create_task(ask(world, obj)) for obj in objects]


async def turned(condition: Any) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_few_reviews_read_large_entries_at_the_same_time_and_all_are_answered():
    shelf, readings = Shelf(MIB), Readings.before_storing(8 * MIB)
    async with World(
        Make.index(Make.mutating(**READS)), loader=shelf, readings=readings, budget=10.0
    ) as world:
        reviews = asked(world, 40)
        await turned(lambda: shelf.open == 6)
        shelf.gate.set()
        answers = await asyncio.gather(*reviews)
    assert all(item["allowed"] for item in answers)
    assert (shelf.read, shelf.most) == (40, 6), "three quarters of the limit, a MiB each"
    assert readings.budget.used == 0


async def test_small_entries_are_read_together_once_it_is_known_that_they_are_small():
    shelf, readings = Shelf(100), Readings.before_storing(8 * MIB)
    async with World(
        Make.index(Make.mutating(**READS)), loader=shelf, readings=readings, budget=10.0
    ) as world:
        shelf.gate.set()
        await ask(world, Make.thing())
        shelf.gate.clear()
        reviews = asked(world, 40)
        await turned(lambda: shelf.open == 40)
        shelf.gate.set()
        await asyncio.gather(*reviews)


async def test_a_tenant_with_large_entries_that_do_not_arrive_leaves_room_for_others():
    shelf, readings = Shelf(MIB, blocked="a"), Readings.before_storing(8 * MIB)
    shelf.gate.set()
    async with World(
        Make.index(Make.mutating(**READS)), loader=shelf, readings=readings, budget=10.0
    ) as world:
        stuck = asked(world, 30)
        await turned(lambda: shelf.open == 6)
        answers = await asyncio.gather(*asked(world, 5, namespace="b"))
        assert [item["allowed"] for item in answers] == [True] * 5
        for task in stuck:
            task.cancel()


async def test_a_review_that_waited_for_others_until_its_deadline_names_them():
    shelf, readings = Shelf(MIB, blocked="a"), Readings.before_storing(2 * MIB)
    async with World(
        Make.index(Make.mutating(**READS)), loader=shelf, readings=readings, budget=0.5
    ) as world:
        first, second = (
            item["status"]["message"] for item in await asyncio.gather(*asked(world, 2))
        )
    waited = "within 0.5 s, of which 0.5 s passed while the context entries of other requests took"
    assert "there was no answer within 0.5 s;" in first
    assert f"there was no answer {waited} up the 2097152 bytes of --max-reads" in second
    assert readings.budget.used == 0


async def test_reviews_that_read_nothing_and_global_entries_wait_for_no_room():
    teams = {"name": "teams", "globalReference": {"name": "teams"}}
    policies = (
        Make.mutating("plain", resources={"kinds": ["Secret"]}),
        Make.mutating(
            "kept",
            resources={"kinds": ["Secret"]},
            context=[teams],
            mutate={"patchStrategicMerge": {"data": {"mode": "{{ teams.mode }}"}}},
        ),
        Make.mutating("reads", **READS),
    )
    shelf, readings = Shelf(MIB, blocked="a"), Readings.before_storing(MIB)
    async with World(Make.index(*policies), loader=shelf, readings=readings, budget=5.0) as world:
        stuck = asked(world, 3)
        await turned(lambda: shelf.open == 1)
        assert (await ask(world, Make.thing("Secret", "s")))["allowed"]
        assert readings.budget.used == MIB
        for task in stuck:
            task.cancel()


class Value(dict[str, Any]):
    """A value whose end can be observed."""

    __hash__ = object.__hash__  # type: ignore[assignment]


class Traced:
    """A loader that keeps no value alive.

    Attributes:
        values: The values of its answers that are in memory.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.values = weakref.WeakSet[Value]()

    async def load(self, load: Load) -> Any:
        assert isinstance(load, ConfigMapLoad)
        if load.name == "never":
            await asyncio.Event().wait()
        value = Value(data={"mode": "never"}, blob="x" * self.size)
        self.values.add(value)
        return value


NEXT = {"name": "next", "configMap": {"name": "{{ settings.data.mode }}", "namespace": "a"}}


@pytest.mark.parametrize(
    ("size", "rule", "fault"),
    [
        (9 * MIB, READS, "read more than 8 MiB"),
        (
            MIB,
            {
                "context": [SETTINGS, NEXT],
                "mutate": {"patchStrategicMerge": {"data": {"mode": "{{ next.data.mode }}"}}},
            },
            "there was no answer within 0.2 s",
        ),
    ],
)
async def test_what_was_read_leaves_memory_with_a_refusal_without_the_garbage_collector(
    size, rule, fault
):
    traced = Traced(size)
    async with World(Make.index(Make.mutating(**rule)), loader=traced, budget=0.2) as world:
        gc.collect()
        gc.disable()
        try:
            response = await ask(world, Make.thing())
            assert fault in response["status"]["message"]
            await turned(lambda: not traced.values)
        finally:
            gc.enable()


class TimesOut:
    """A loader that fails as the client of a service does."""

    async def load(self, load: Load) -> Any:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError as error:
            raise Unavailable("no answer in time") from error


async def test_an_object_leaves_memory_when_it_is_refused_because_a_read_took_too_long():
    async with World(Make.index(Make.mutating(**READS)), loader=TimesOut(), budget=5.0) as world:
        gc.collect()
        gc.disable()
        try:
            response = await ask(world, Make.thing(mark=["of this object"]))
            assert "no answer in time" in response["status"]["message"]
            # The values of one review are no objects that can be observed.
            lists = (item for item in gc.get_objects() if type(item) is list)
            assert not any(item == ["of this object"] for item in lists)
        finally:
            gc.enable()


async def test_a_changed_object_leaves_memory_before_other_reviews_of_the_same_turn_are_parsed():
    async with World(Make.index(Make.mutating())) as world:
        body = Make.review(obj=Make.thing(mark=["of this object"]))
        address, deadline = Address(failure_policy=FAIL), Deadline(SystemClock(), 5.0)
        response = await world.mutations.review(parse_review(body), address, deadline)
        assert response.patch
        lists = (item for item in gc.get_objects() if type(item) is list)
        assert not any(item == ["of this object"] for item in lists)


def test_a_read_that_the_deadline_ends_is_no_unhandled_error():
    unhandled: list[Any] = []

    async def late() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, item: unhandled.append(item))
        shelf = Shelf(MIB, blocked="a")
        async with World(Make.index(Make.mutating(**READS)), loader=shelf, budget=0.2) as world:
            # Which of two timers ends first is chance, so several reviews try.
            for response in await asyncio.gather(*asked(world, 8)):
                assert "there was no answer within 0.2 s" in response["status"]["message"]
            await turned(lambda: not shelf.open)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(late())
    gc.collect()
    assert not unhandled
