"""Two replicas of the controller: a takeover at once, or after the Lease has expired."""

import asyncio
import signal

import pytest

from devcluster.install import NAMESPACE
from devcluster.programs import CONTROLLER
from tests.faults.rig import SHORT_LEASE, Rig, config_map, rule, target

pytestmark = pytest.mark.cluster

LEASE = "kube-retrofit-controller"
TRIGGERS = 100


async def leader(rig: Rig) -> str:
    """Return the name of the program that holds the Lease, empty if no program does."""
    lease = await rig.get("Lease", LEASE, NAMESPACE)
    holder = lease["spec"].get("holderIdentity") or "nobody"
    for name in (CONTROLLER, "second", "third"):
        if rig.has_log(name) and any(line.get("identity") == holder for line in rig.log(name)):
            return name
    return ""


async def follow(rig: Rig, name: str, within: float) -> None:
    """Wait until the program with this name leads."""

    async def missing() -> str:
        leads = await leader(rig)
        return "" if leads == name else f"{leads or 'nobody'} leads"

    await rig.settle(missing, within=within)


async def test_another_replica_takes_over_after_the_leader_is_killed_or_stopped(rig: Rig) -> None:
    place = rig.namespace
    triggers = await rig.one_to_one(TRIGGERS)
    await follow(rig, CONTROLLER, within=10)
    await rig.controller(*SHORT_LEASE, name="second")
    sending = asyncio.create_task(rig.burst(triggers, per_second=20))

    await rig.completed(TRIGGERS // 4, within=20)
    assert await leader(rig) == CONTROLLER
    await rig.kill(CONTROLLER)
    burst = await sending
    assert not burst.refused
    await rig.applied({f"target-{n}": {"got": f"trigger-{n}"} for n in range(TRIGGERS)}, within=20)
    await rig.finish(count=TRIGGERS)
    assert await leader(rig) == "second"

    await rig.controller(*SHORT_LEASE, name="third")
    await asyncio.to_thread(rig.programs.kill, "second", signal.SIGTERM)
    assert rig.programs.supervision.exit_code("second") == 0
    # A released Lease is free at the next retry. Otherwise its five seconds would have to pass.
    await follow(rig, "third", within=3)
    await rig.create(config_map(place, "trigger-last", n="0"))
    await rig.applied({"target-0": {"got": "trigger-last"}}, within=10)


async def test_the_leader_finishes_its_work_before_it_ends(rig: Rig) -> None:
    place = rig.namespace
    await rig.apply(
        rule(place, [target(place, "one")], {"data": {"{{ request.object.metadata.name }}": "x"}})
    )
    await rig.create(config_map(place, "one"))
    names = [f"trigger-{n}" for n in range(50)]
    sending = asyncio.create_task(
        rig.burst((config_map(place, name) for name in names), per_second=50)
    )

    async def some_applied() -> str:
        return "" if await rig.data("one") else "nothing yet"

    await rig.settle(some_applied, within=20)
    await asyncio.to_thread(rig.programs.kill, CONTROLLER, signal.SIGTERM)
    assert rig.programs.supervision.exit_code(CONTROLLER) == 0
    # The controller finished its open attempts: each write has a completed request.
    done = {
        item.spec.resource.name
        for item in await rig.requests()
        if item.status.state == "Completed"
    }
    assert set(await rig.data("one")) == done
    await rig.restart(CONTROLLER)
    burst = await sending
    assert not burst.refused
    await rig.applied({"one": dict.fromkeys(names, "x")}, within=20)
    await rig.finish(count=len(names))


async def test_a_frozen_leader_exits_and_repeats_no_append(rig: Rig) -> None:
    place, count = rig.namespace, 100
    await rig.apply(
        rule(
            place,
            [target(place, "list")],
            {"data": {"seen": "{{ target.data.seen }} {{ request.object.metadata.name }}"}},
        )
    )
    await rig.create(config_map(place, "list", seen="begin"))
    await follow(rig, CONTROLLER, within=10)
    await rig.controller(*SHORT_LEASE, name="second")
    triggers = (config_map(place, f"trigger-{n}") for n in range(count))
    sending = asyncio.create_task(rig.burst(triggers, per_second=25))

    async def begun() -> str:
        seen = (await rig.data("list"))["seen"].split()
        return "" if len(seen) > count // 4 else f"only {seen} yet"

    await rig.settle(begun, within=20)
    rig.programs.kill(CONTROLLER, signal.SIGSTOP)
    await follow(rig, "second", within=20)
    rig.programs.kill(CONTROLLER, signal.SIGCONT)
    # The controller has lost its Lease and exits, so that its restart makes it a candidate again.
    exits = rig.programs.supervision
    assert await asyncio.to_thread(exits.wait_exit, CONTROLLER, 15.0) == 1
    burst = await sending
    assert not burst.refused
    await rig.finish(count=count, within=30)
    assert sorted((await rig.data("list"))["seen"].split()[1:]) == sorted(burst.accepted)
