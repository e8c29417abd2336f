"""An evaluation that is ended from outside is retried a limited number of times."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from reconciler.api.updaterequest import State, UpdateRequest
from reconciler.errors import Interrupted
from reconciler.isolation import ChildProcesses
from reconciler.services.processing.loading import LongEvaluations
from tests.unit.services.conftest import Make, World

LONG = "{{ length(join('', map(&to_upper(@), request.object.data.*))) }}"
DATA = {f"k{number}": "x" * 1_000 for number in range(500)}
PASSES = {"all": [{"key": LONG, "operator": "GreaterThan", "value": 1}]}
PLACES = {
    "trigger": {"preconditions": PASSES},
    "selection": {
        "targets": [{"apiVersion": "v1", "kind": "Secret", "namespace": "a", "uid": LONG}]
    },
    "target": {"patch": {"metadata": {"labels": {"done": LONG}}}},
}


class Killed:
    """The `Isolation` port, whose next `left` evaluations are killed."""

    isolate: Callable[[], None]

    def __init__(self) -> None:
        self.left = 1_000
        self.children = ChildProcesses()

    async def evaluate(self, work, tenant):
        if self.left:
            self.left -= 1
            raise Interrupted("the process that evaluated the rule was ended by SIGKILL")
        return await self.children.evaluate(work, tenant)


@pytest.fixture
def killed(world: World) -> Killed:
    port = Killed()

    def isolate() -> None:
        world.dispatcher.processor = replace(
            world.processor, long_evaluations=LongEvaluations(port, world.clock)
        )

    port.isolate = isolate
    isolate()
    return port


@pytest.fixture
async def ask(world: World, make: type[Make]) -> Callable[..., Awaitable[UpdateRequest]]:
    world.cluster.add(make.object("Secret", "s"))

    async def ask(**rule):
        policy = world.install(make.policy(**rule))
        return await world.ask(policy, world.cluster.add(make.object(data=DATA)))

    return ask


async def attempts(world, count):
    for _ in range(count):
        await world.dispatcher.resync()
        await world.settle()
        world.clock.tick(60)


@pytest.mark.parametrize("place", PLACES)
async def test_the_third_interruption_in_a_row_fails_the_request(world, killed, ask, place):
    await ask(**PLACES[place])
    await attempts(world, 2)
    status = await world.status()
    assert (status.state, status.reason) == (State.PENDING, "Interrupted")
    assert status.message == "the process that evaluated the rule was ended by SIGKILL"
    assert (status.attempts, status.interruptions) == (2, 2)
    # A new controller continues the count.
    world.restart()
    killed.isolate()
    await attempts(world, 1)
    status = await world.status()
    assert (status.state, status.reason) == (State.FAILED, "Interrupted")
    assert "ended by SIGKILL" in status.message
    assert "3 attempts in a row" in status.message


async def test_a_third_attempt_that_is_not_interrupted_completes_the_request(
    world, killed, ask, make
):
    await ask(**PLACES["trigger"])
    killed.left = 2
    await attempts(world, 3)
    status = await world.status()
    assert (status.state, status.interruptions) == (State.COMPLETED, 0)
