"""Catch-up of unrecorded triggers, on a real API server with the shipped ServiceAccounts."""

from typing import Any

import pytest

from devcluster.install import NAMESPACE
from devcluster.programs import ADMISSION, CONTROLLER
from reconciler.api.updaterequest import Source, State
from tests.faults.rig import Rig, config_map, rule, target
from tests.integration.test_metrics import scraped

pytestmark = pytest.mark.cluster

GOT = {"data": {"got": "{{ request.object.data.v }}"}}


def by_name(place: str, **more: Any) -> dict[str, Any]:
    """Return a rule whose trigger ``trigger-N`` changes the ConfigMap ``got-N``."""
    name = "got-{{ split(request.object.metadata.name, '-')[1] }}"
    return rule(place, [target(place, name)], GOT, **more)


async def caught_up(rig: Rig) -> list[str]:
    found = await rig.requests()
    return sorted(item.spec.resource.name for item in found if item.spec.source is Source.CATCH_UP)


async def done(rig: Rig) -> str:
    lease = await rig.find("Lease", "kube-retrofit-catch-up", NAMESPACE)
    return "" if lease is None else str(lease["spec"]["renewTime"])


async def passes(rig: Rig) -> int:
    total = await scraped(rig, CONTROLLER)
    return int(total("catch_up_passes_total"))


async def in_force(rig: Rig, *rules: Any) -> None:
    """Apply rules with failure policy Ignore, and wait until their catch-up pass is counted."""
    before = await passes(rig)
    await rig.apply(*rules, failurePolicy="Ignore")

    async def missing() -> str:
        # One pass belongs to a new leader, and one to the new policy.
        found = await passes(rig)
        return "" if found >= max(2, before + 1) else f"{found} passes, {before} before"

    await rig.settle(missing, within=30)


async def test_triggers_stored_during_an_admission_outage_are_caught_up(rig: Rig) -> None:
    place = rig.namespace
    await rig.create_all(config_map(place, f"got-{n}") for n in range(3))
    await in_force(rig, by_name(place))
    await rig.create(config_map(place, "trigger-0", v="one"))
    await rig.applied({"got-0": {"got": "one"}}, within=15)
    await rig.finish()
    await rig.kill(ADMISSION)
    await rig.create(config_map(place, "trigger-1", v="new"))
    await rig.merge("ConfigMap", "trigger-0", {"data": {"v": "changed"}})
    await rig.create(config_map(place, "other-2", v="no trigger"))
    await rig.restart(ADMISSION)

    # Much sooner than after the catch-up interval, which is five minutes.
    await rig.applied({"got-0": {"got": "changed"}, "got-1": {"got": "new"}}, within=60)
    assert await caught_up(rig) == ["trigger-0", "trigger-1"]
    await rig.finish(count=3)
    assert await rig.states() == {State.COMPLETED: 3}

    async def unseen() -> Any:
        notes = [
            item["message"]
            for item in await rig.items("Event", "default")
            if item["reason"] == "CaughtUp" and item["involvedObject"]["name"] == place
        ]
        return (
            []
            if notes == ["rule rule: caught up on 2 triggers not recorded before"]
            else (notes or "none")
        )

    await rig.settle(unseen, within=15)


async def test_catch_up_does_not_record_triggers_again(rig: Rig) -> None:
    place = rig.namespace
    names = [f"trigger-{n}" for n in range(10)]
    await rig.create_all(config_map(place, f"got-{n}") for n in range(10))
    await rig.apply(by_name(place), failurePolicy="Ignore")
    await rig.create_all(config_map(place, name, v="a") for name in names)
    for name in names[:5]:
        await rig.merge("ConfigMap", name, {"data": {"v": "b"}})
    await rig.finish(count=15)
    # A new controller process has no state of its own, and starts a pass at once.
    before = await done(rig)
    await rig.kill(CONTROLLER)
    await rig.restart(CONTROLLER)

    async def passed() -> str:
        return "" if await done(rig) > before else "no pass yet"

    await rig.settle(passed, within=60)
    assert await caught_up(rig) == []


async def test_no_trigger_is_lost_while_both_programs_are_down(rig: Rig) -> None:
    place = rig.namespace
    await rig.create_all(config_map(place, f"got-{n}") for n in range(2))
    await rig.apply(by_name(place), failurePolicy="Ignore")
    await rig.create(config_map(place, "trigger-0", v="one"))
    await rig.applied({"got-0": {"got": "one"}}, within=15)
    await rig.kill(ADMISSION, CONTROLLER)
    await rig.create(config_map(place, "trigger-1", v="new"))
    await rig.merge("ConfigMap", "trigger-0", {"data": {"v": "changed"}})
    await rig.restart(ADMISSION)
    await rig.restart(CONTROLLER)
    await rig.applied({"got-0": {"got": "changed"}, "got-1": {"got": "new"}}, within=60)


@pytest.mark.parametrize("failure_policy", ["Fail", "Ignore"])
async def test_triggers_between_storing_a_policy_and_its_activation_are_caught_up(
    rig: Rig, failure_policy: str
) -> None:
    place = rig.namespace
    await rig.create_all(config_map(place, f"got-{n}") for n in range(3))
    await rig.create(config_map(place, "trigger-0", v="before"))
    # Without a controller no webhook is registered: the policy is stored but not in force.
    await rig.kill(CONTROLLER)
    await rig.create(
        {
            "apiVersion": "kyverno.io/v1",
            "kind": "ClusterPolicy",
            "metadata": {"name": place},
            "spec": {"rules": [by_name(place)], "failurePolicy": failure_policy},
        }
    )
    await rig.create(config_map(place, "trigger-1", v="between"))
    await rig.restart(CONTROLLER)
    await rig.ready()
    await rig.create(config_map(place, "trigger-2", v="after"))
    await rig.applied({"got-1": {"got": "between"}, "got-2": {"got": "after"}}, within=60)
    assert await caught_up(rig) == ["trigger-1"]


async def test_catch_up_skips_rules_that_append_to_their_target(rig: Rig) -> None:
    place = rig.namespace
    await rig.create(config_map(place, "list", seen="begin"))
    await rig.create(config_map(place, "got-1"))
    append = rule(
        place,
        [target(place, "list")],
        {"data": {"seen": "{{ target.data.seen }} {{ request.object.metadata.name }}"}},
        name="append",
    )
    await in_force(rig, append, by_name(place))
    await rig.kill(ADMISSION)
    await rig.create(config_map(place, "trigger-1", v="new"))
    await rig.restart(ADMISSION)
    await rig.applied({"got-1": {"got": "new"}}, within=60)
    assert await rig.data("list") == {"seen": "begin"}
    assert {item.spec.rule for item in await rig.requests()} == {"rule"}
