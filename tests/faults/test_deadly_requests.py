"""kill -9 of the controller during every attempt of one request: that request fails."""

from pathlib import Path

import pytest

from devcluster.programs import CONTROLLER
from reconciler.api.updaterequest import Reason, State, UpdateRequest
from reconciler.requests.lifecycle import MOST_INTERRUPTIONS
from tests.faults.rig import Rig, config_map, rule, target
from tests.linux import linux

pytestmark = [linux, pytest.mark.cluster, pytest.mark.timeout(240)]

DATA = {f"k{at}": "x" for at in range(8)}
TENFOLD = f"[{', '.join(['@'] * 10)}][]"
KEYS = f"request.object.data | keys(@) | {TENFOLD} | {TENFOLD}"
SECONDS = {
    "key": f"{{{{ length({KEYS} | map(&parse_yaml('a: 1'), @)) }}}}",
    "operator": "GreaterThan",
    "value": 1,
}
"""A condition whose evaluation takes about 15 ms."""
BESIDE = 20


def children(rig: Rig) -> list[str]:
    pid = rig.programs.supervision.pids[CONTROLLER]
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


async def test_a_request_whose_attempts_keep_ending_the_controller_fails(rig: Rig) -> None:
    place = rig.namespace
    targets = [config_map(place, f"target-{n}") for n in range(BESIDE)]
    await rig.create_all([config_map(place, "x"), *targets])
    deadly = rule(place, [target(place, "x")], {"data": {"a": "b"}}, names="deadly")
    deadly["preconditions"] = {"all": [SECONDS] * 60}
    named = target(place, "target-{{ request.object.data.n }}")
    harmless = rule(place, [named], {"data": {"got": "it"}}, name="harmless")
    await rig.apply(deadly, harmless)

    async def request() -> UpdateRequest:
        (found,) = [item for item in await rig.requests() if item.spec.rule == "rule"]
        return found

    async def end_the_controller(noted: int) -> None:
        """Kill the controller in an attempt, once the request has ``noted`` interruptions."""

        async def missing() -> str:
            times = (await request()).status.interruptions
            return "" if times == noted and children(rig) else f"noted {times} times"

        await rig.settle(missing, within=60.0)
        await rig.kill(CONTROLLER)

    await rig.create(config_map(place, "deadly", **DATA))
    await end_the_controller(noted=0)
    await rig.create_all(config_map(place, f"trigger-{n}", n=str(n)) for n in range(BESIDE))
    for times in range(1, MOST_INTERRUPTIONS + 1):
        await rig.restart(CONTROLLER)
        await end_the_controller(noted=times)
    await rig.restart(CONTROLLER)

    async def unfinished() -> str:
        return "" if (await request()).status.state is State.FAILED else str(await request())

    await rig.settle(unfinished, within=60.0)
    status = (await request()).status
    assert status.reason == Reason.INTERRUPTED
    assert "the controller was terminated 3 times in a row" in status.message
    assert await rig.data("x") == {}
    # The requests that were processed at the same time are completed.
    got = {f"target-{n}": {"got": "it"} for n in range(BESIDE)}
    await rig.applied(got, within=30.0)
    await rig.settle(rig.waiting, within=30.0)
