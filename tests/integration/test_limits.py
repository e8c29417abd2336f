"""The limits of a rollout, on a cluster with both programs running."""

from datetime import timedelta
from typing import Any

import pytest

from reconciler.api.updaterequest import State
from reconciler.clock import SystemClock
from reconciler.errors import ClusterError
from tests.faults.rig import Rig, config_map, rule, target

pytestmark = pytest.mark.cluster

PREFIX = "kube-retrofit.dev/"
GOT = {"data": {"got": "{{ request.object.metadata.name }}"}}


async def limit(rig: Rig, **values: str | None) -> None:
    """Annotate the test's policy, where None removes an annotation."""
    marks = {PREFIX + name.replace("_", "-"): value for name, value in values.items()}
    change = {"metadata": {"annotations": marks}}
    await rig.merge("ClusterPolicy", rig.namespace, change, namespace="")


async def policy_says(rig: Rig, part: str) -> None:
    """Wait until the message in the policy's status contains a text."""

    async def missing() -> Any:
        policy = await rig.get("ClusterPolicy", rig.namespace, "")
        said = policy["status"]["mutateExisting"].get("message") or ""
        return "" if part in said else said or "nothing"

    await rig.settle(missing, within=15.0)


async def sweep_says(rig: Rig, reason: str, done: int) -> None:
    """Wait until the one sweep has a reason, and the given number of ConfigMaps is changed."""

    async def missing() -> Any:
        found = [item for item in await rig.requests() if item.spec.sweep]
        said = [(item.status.reason, item.status.message) for item in found]
        changed = [item for item in await rig.items("ConfigMap") if "got" in item.get("data", {})]
        good = [item[0] for item in said] == [reason] and len(changed) == done
        return "" if good else (said, len(changed))

    await rig.settle(missing, within=20.0)


def each(rig: Rig) -> Any:
    """Return a rule that gives each trigger its own target."""
    to = "{{ request.object.data.to }}"
    return rule(rig.namespace, [target(rig.namespace, to)], GOT)


async def pairs(rig: Rig, count: int, **labels: str) -> dict[str, dict[str, str]]:
    """Create labelled triggers and their targets, and return the data expected in the targets."""
    place, kind = rig.namespace, labels.get("env", "none")
    numbers = range(count)
    triggers = [config_map(place, f"trigger-{kind}-{n}", to=f"to-{kind}-{n}") for n in numbers]
    for trigger in triggers:
        trigger["metadata"]["labels"] = labels
    await rig.create_all(config_map(place, f"to-{kind}-{n}") for n in numbers)
    await rig.create_all(triggers)
    return {f"to-{kind}-{n}": {"got": f"trigger-{kind}-{n}"} for n in numbers}


async def test_a_paused_policy_does_nothing_until_it_is_resumed(rig: Rig) -> None:
    await rig.apply(each(rig))
    await rig.pause()
    wanted = await pairs(rig, 3)

    async def waiting() -> Any:
        found = await rig.requests(state=State.PENDING)
        reasons = [item.status.reason for item in found]
        return "" if reasons == ["Paused"] * 3 else reasons

    await rig.settle(waiting, within=15.0)
    assert len(await rig.lacking(wanted)) == 3
    await rig.resume()
    await rig.applied(wanted, within=15.0)
    await rig.held_back("")
    await rig.finish(3)


async def test_canaries_are_changed_first_and_the_rest_after_promotion(rig: Rig) -> None:
    wanted = await pairs(rig, 3, env="prod")
    early = await pairs(rig, 2, env="test")
    await rig.apply(each(rig))  # starts no sweep yet, without mutateExistingOnPolicyUpdate
    await limit(rig, canary="env=test", rate="120/m", batch_size="1")
    await rig.apply(each(rig), mutateExistingOnPolicyUpdate=True)
    await sweep_says(rig, "Canary", 2)
    await policy_says(rig, "it waits: ")
    assert await rig.lacking(early) == {}
    assert len(await rig.lacking(wanted)) == 3
    policy = await rig.get("ClusterPolicy", rig.namespace, "")
    await limit(rig, promote=str(policy["metadata"]["generation"]))
    await rig.applied(wanted, within=30.0)


async def test_no_more_triggers_fail_than_are_allowed(rig: Rig) -> None:
    """Every target is immutable: two of the eight triggers are tried, and then the sweep waits."""
    place = rig.namespace
    await pairs(rig, 8)
    for number in range(8):
        await rig.merge("ConfigMap", f"to-none-{number}", {"immutable": True})
    await rig.apply(each(rig))
    await limit(rig, max_failures="2", batch_size="1")
    await rig.apply(each(rig), mutateExistingOnPolicyUpdate=True)
    await sweep_says(rig, "TooManyFailures", 0)
    await policy_says(rig, "it waits: 2 triggers failed, and the policy allows 2")
    failed = [item for item in await rig.requests(state=State.FAILED) if not item.spec.sweep]
    assert len(failed) == 2
    await limit(rig, max_failures=None)

    async def left() -> Any:
        sweeps = [item.status.state for item in await rig.requests() if item.spec.sweep]
        figures = (await rig.get("ClusterPolicy", place, ""))["status"]["mutateExisting"]
        whole = sweeps == [State.COMPLETED] and figures["failed"] == 8
        return "" if whole else (sweeps, figures)

    await rig.settle(left, within=20.0)


async def test_requests_wait_outside_the_window_of_their_policy(rig: Rig) -> None:
    now = SystemClock().now()
    closed = f"{(now + timedelta(hours=2)):%H:%M}-{(now + timedelta(hours=3)):%H:%M} UTC"
    await rig.apply(each(rig))
    await limit(rig, window=closed)
    wanted = await pairs(rig, 2)
    await rig.held_back("outside of the policy's hours")

    async def waiting() -> Any:
        reasons = {item.status.reason for item in await rig.requests(state=State.PENDING)}
        return "" if reasons == {"OutsideWindow"} else reasons

    await rig.settle(waiting, within=15.0)
    opened = f"{(now - timedelta(hours=1)):%H:%M}-{(now + timedelta(hours=3)):%H:%M} UTC"
    await limit(rig, window=opened)
    await rig.applied(wanted, within=15.0)


async def test_an_invalid_limit_is_refused_with_its_path_and_an_example(rig: Rig) -> None:
    await rig.apply(each(rig))
    for name, value, cure in (
        ("rate", "fast", "10/s"),
        ("window", "at night", "Mon-Fri 09:00-17:00 Europe/Berlin"),
        ("canary", "a=b=c", "env=test"),
    ):
        with pytest.raises(ClusterError) as refused:
            await limit(rig, **{name: value})
        assert f"metadata.annotations[{PREFIX}{name}]" in str(refused.value)
        assert cure in str(refused.value)
