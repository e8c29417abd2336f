"""Whole objects that a search reads count towards the memory budget of requests in work."""

import asyncio

import pytest

from reconciler.config import ControllerSettings
from reconciler.services.processing.memory_budget import InFlight
from tests.unit.services.catchup.conftest import Chase
from tests.unit.services.conftest import World


@pytest.fixture
def world() -> World:
    flight = InFlight.of(ControllerSettings(max_in_flight=1024 * 1024))
    flight.triggers.limit = 1
    return World(flight=flight)


async def test_no_more_objects_are_read_at_a_time_than_the_memory_allows(
    world: World, chase: Chase, make
):
    condition = [{"key": "{{ request.object.data.wanted }}", "operator": "Equals", "value": "yes"}]
    policy = make.policy(preconditions={"all": condition}, spec={"failurePolicy": "Fail"})
    await chase.install(policy)
    world.clock.tick(60)
    await chase.passes.begin()
    reading = most = 0

    async def read(*_: str) -> None:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        await asyncio.sleep(0)
        reading -= 1

    for n in range(5):
        chase.add(make.object(name=f"t{n}", data={"wanted": "yes"}))
    chase.outage(3, make.object(name="t", data={"wanted": "yes"}))
    world.wire.before_read = read
    await chase.pass_time(10)
    assert len(await chase.names()) >= 6
    assert most == 1
    assert world.flight.used == 0
