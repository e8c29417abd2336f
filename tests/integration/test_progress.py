"""The progress in a policy's status, on a real API server."""

import asyncio
import contextlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from devcluster.programs import CONTROLLER
from reconciler.api.updaterequest import Source, State
from reconciler.clock import SystemClock
from tests.faults.rig import Rig, config_map, rule, target

pytestmark = pytest.mark.cluster

CLOCK = SystemClock()
MANY = 1000
HIDDEN = "{{ 'Secret' }}"
"""A kind given by a variable, so that policy admission cannot check the rights on it."""
LABEL = {"metadata": {"labels": {"done": "yes"}}}


async def shown(rig: Rig) -> dict[str, Any]:
    policy = await rig.get("ClusterPolicy", rig.namespace, "")
    return dict((policy.get("status") or {}).get("mutateExisting") or {})


async def until_shown(rig: Rig, right: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Wait until the status of the test's policy passes a check, and return it."""
    found: dict[str, Any] = {}

    async def missing() -> Any:
        found.clear()
        found.update(await shown(rig))
        return None if right(found) else dict(found) or "no figures"

    await rig.settle(missing, within=20)
    return found


async def test_a_policy_shows_the_progress_of_its_sweep_over_a_thousand_triggers(rig: Rig) -> None:
    place = rig.namespace
    names = [f"trigger-{number:04}" for number in range(MANY)]
    await rig.create_all(config_map(place, name) for name in names)
    own = target(place, "{{ request.object.metadata.name }}")
    created = CLOCK.now()

    async def of_the_same_second() -> bool:
        return CLOCK.now() < created + timedelta(seconds=1)

    # Catch-up would work on triggers of the second in which the policy is created as well.
    await rig.settle(of_the_same_second, within=5)
    seen: list[dict[str, Any]] = []

    async def follow() -> None:
        while True:
            with contextlib.suppress(Exception):
                seen.append(await shown(rig))
            await asyncio.sleep(0.2)

    following = asyncio.create_task(follow())
    try:
        await rig.apply(rule(place, [own], LABEL), mutateExistingOnPolicyUpdate=True)
        await rig.finish(within=60)
        last = await until_shown(
            rig, lambda figures: figures.get("triggers") == MANY and not figures.get("pending")
        )
    finally:
        following.cancel()
    assert (last["patched"], last["failed"], last["pending"]) == (MANY, 0, 0)
    assert last["message"] == f"{MANY} patched after {MANY} triggers"
    assert "running" not in last
    found = [(it.status.state, it.spec.sweep, it.spec.source) for it in await rig.requests()]
    assert found == [(State.COMPLETED, True, Source.POLICY_CHANGE)]
    steps = [figures.get("patched", 0) for figures in seen]
    assert steps == sorted(steps)
    assert any(0 < step < MANY for step in steps), "nothing was seen while it ran"
    under_way = [figures["message"] for figures in seen if "running" in figures]
    assert any("existing objects looked at" in message for message in under_way)
    text = await asyncio.to_thread(rig.cluster.kubectl, "get", "cpol", place)
    assert text.splitlines()[1].split()[1:-1] == ["True", "Succeeded", "0", str(MANY), "0"]


async def test_the_figures_of_a_policy_survive_a_killed_controller(rig: Rig) -> None:
    place = rig.namespace
    await rig.create(config_map(place, "target"))
    got = {"data": {"got": "{{ request.object.metadata.name }}"}}
    await rig.apply(rule(place, [target(place, "target")], got))
    zero = await until_shown(rig, lambda figures: figures.get("message"))
    assert (zero["triggers"], zero["patched"]) == (0, 0)
    assert "no trigger yet: only new requests count" in zero["message"]
    for number in range(3):
        await rig.create(config_map(place, f"trigger-{number}"))
        await rig.applied({"target": {"got": f"trigger-{number}"}}, within=15)
    await until_shown(rig, lambda figures: figures.get("patched") == 3)
    await rig.create(config_map(place, "trigger-last"))
    await rig.applied({"target": {"got": "trigger-last"}}, within=15)
    await rig.finish(count=4)
    await rig.kill(CONTROLLER)
    await rig.restart(CONTROLLER)
    last = await until_shown(rig, lambda figures: figures.get("triggers") == 4)
    assert last["patched"] == 4
    assert last["lastRun"]


async def test_a_missing_right_is_in_the_status_of_its_policy_until_it_is_granted(
    rig: Rig,
) -> None:
    place = rig.namespace
    await rig.create({**config_map(place, "s"), "kind": "Secret", "data": {}})
    await rig.apply(rule(place, [target(place, "s", HIDDEN)], LABEL))
    await rig.create(config_map(place, "trigger-1"))
    parked = await until_shown(rig, lambda figures: figures.get("missingPermissions"))
    assert (parked["pending"], parked["patched"]) == (1, 0)
    assert parked["message"].startswith("1 request waits for a right: ")
    assert f"secrets in namespace {place}" in parked["lastError"]
    policy = await rig.get("ClusterPolicy", place, "")
    assert [item["type"] for item in policy["status"]["conditions"]] == ["Ready"]
    before = policy["metadata"]["resourceVersion"]
    attempts = (await rig.requests())[0].status.attempts

    async def no_other_attempt() -> str:
        return "" if (await rig.requests())[0].status.attempts > attempts else "not yet"

    await rig.settle(no_other_attempt, within=20)
    # An attempt that changes no figure of the status does not write the policy.
    policy = await rig.get("ClusterPolicy", place, "")
    assert policy["metadata"]["resourceVersion"] == before
    assert await rig.calls("patch", "secrets") == 0
    async with rig.granted("secrets"):
        after = await until_shown(rig, lambda figures: "missingPermissions" not in figures)
        assert (after["pending"], after["patched"], after["triggers"]) == (0, 1, 1)
        assert after["message"] == "1 patched after 1 trigger"
        assert "running" not in after
