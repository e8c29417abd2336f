"""The settings ConfigMap of a running installation: both programs honour it without a restart."""

import asyncio
import contextlib
import itertools
import json
import signal
import urllib.request
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from devcluster.install import NAMESPACE
from devcluster.programs import ADMISSION, CONTROLLER
from reconciler.api.meta import Object
from reconciler.api.updaterequest import State
from tests.faults.rig import Rig, config_map, rule, target

pytestmark = pytest.mark.cluster

NAME = "kyverno"
RESOURCE = "kube-retrofit-resource"
KIND = "ValidatingWebhookConfiguration"
GOT = {"data": {"got": "{{ request.object.metadata.name }}"}}


@contextlib.asynccontextmanager
async def settings(rig: Rig, **data: str) -> AsyncIterator[None]:
    """Change keys of the settings ConfigMap, and restore them at the end."""
    before = (await rig.get("ConfigMap", NAME, NAMESPACE))["data"]
    await rig.merge("ConfigMap", NAME, {"data": data}, namespace=NAMESPACE)
    try:
        yield
    finally:
        restored = {key: before.get(key) for key in data}
        await rig.merge("ConfigMap", NAME, {"data": restored}, namespace=NAMESPACE)


def scrape(rig: Rig, program: str) -> str:
    """Return the metrics of a program."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{rig.programs.address(program)}/metrics", timeout=5) as answer:
        return str(answer.read().decode())


async def policy(rig: Rig, **more: Any) -> None:
    """Store the test's policy and its target."""
    await rig.create(config_map(rig.namespace, "target"))
    await rig.apply(rule(rig.namespace, [target(rig.namespace, "target")], GOT, **more))


async def fires(rig: Rig, name: str, user: str = "") -> bool:
    """Create a trigger, and return whether a request was recorded by the time kubectl returned."""
    before = len(await rig.requests())
    document = json.dumps(config_map(rig.namespace, name))
    identity = (f"--as={user}",) if user else ()
    await asyncio.to_thread(rig.cluster.kubectl, *identity, "create", "-f", "-", stdin=document)
    return len(await rig.requests()) > before


async def until_it_fires(rig: Rig, user: str = "", *, fire: bool) -> None:
    """Create triggers until one is recorded, or until one is not."""

    async def missing() -> str:
        name = f"trigger-{uuid.uuid4().hex[:8]}"
        return "" if await fires(rig, name, user) is fire else f"recorded: {not fire}"

    await rig.settle(missing, within=5.0)


async def allow(rig: Rig, user: str, *, cluster_role: bool) -> str:
    """Allow a user to create ConfigMaps in the test's namespace; return the full role name."""
    name = f"makers-{rig.namespace}"
    kind = "clusterrole" if cluster_role else "role"
    where = ("-n", rig.namespace)
    rights = ("--verb=create,get", "--resource=configmaps")

    def make() -> None:
        rig.cluster.kubectl("create", kind, name, *rights, *(() if cluster_role else where))
        binding = (f"--{kind}={name}", f"--user={user}", *where)
        rig.cluster.kubectl("create", "rolebinding", name, *binding)

    await asyncio.to_thread(make)
    return name if cluster_role else f"{rig.namespace}:{name}"


async def test_excluded_users_and_roles_trigger_nothing(rig: Rig) -> None:
    await policy(rig)
    role = await allow(rig, "painter", cluster_role=False)
    await until_it_fires(rig, "painter", fire=True)
    for key, value in (("excludeRoles", role), ("excludeUsernames", "paint*")):
        async with settings(rig, **{key: value}):
            await until_it_fires(rig, "painter", fire=False)
            assert await fires(rig, f"trigger-by-admin-{key.lower()}")
        await until_it_fires(rig, "painter", fire=True)


async def test_users_of_excluded_cluster_roles_trigger_nothing(rig: Rig) -> None:
    await policy(rig)
    role = await allow(rig, "builder", cluster_role=True)
    try:
        await until_it_fires(rig, "builder", fire=True)
        async with settings(rig, excludeClusterRoles="makers-*"):
            await until_it_fires(rig, "builder", fire=False)
            assert await fires(rig, "trigger-by-admin")
        async with settings(rig, excludeClusterRoles=f"makers-*,!{role}"):
            await until_it_fires(rig, "builder", fire=True)
    finally:
        await asyncio.to_thread(rig.cluster.kubectl, "delete", "clusterrole", role)


async def test_filtered_objects_trigger_nothing_at_admission_or_in_a_sweep(
    rig: Rig,
) -> None:
    await policy(rig)
    await until_it_fires(rig, fire=True)
    await rig.finish()
    old = (await rig.get("ConfigMap", NAME, NAMESPACE))["data"]["resourceFilters"]
    async with settings(rig, resourceFilters=f"{old} [ConfigMap,{rig.namespace},trigger-*]"):
        await until_it_fires(rig, fire=False)
        await rig.apply(
            rule(
                rig.namespace,
                [target(rig.namespace, "target")],
                {"data": {"swept": "{{ request.object.metadata.name }}"}},
            ),
            mutateExistingOnPolicyUpdate=True,
        )

        async def unswept() -> Any:
            found = [item for item in await rig.requests() if item.spec.sweep]
            done = [item for item in found if item.status.state is State.COMPLETED]
            return "" if done else found or "no sweep"

        await rig.settle(unswept, within=15.0)
        assert "swept" not in await rig.data("target")


async def test_a_kind_fires_without_its_filter_while_its_subresources_stay_filtered(
    rig: Rig,
) -> None:
    async with rig.granted("nodes"):
        await _node_and_its_status_fire_each_by_itself(rig)


async def _node_and_its_status_fire_each_by_itself(rig: Rig) -> None:
    shipped = (await rig.get("ConfigMap", NAME, NAMESPACE))["data"]["resourceFilters"]
    node = f"{rig.namespace}-node"
    await rig.create(config_map(rig.namespace, "target"))
    resources = {"kinds": ["Node", "Node/status"], "names": [node]}
    mutate = {"targets": [target(rig.namespace, "target")], "patchStrategicMerge": GOT}
    await rig.apply(
        {"name": "rule", "match": {"any": [{"resources": resources}]}, "mutate": mutate}
    )
    await rig.learn("v1", "Node")
    async with settings(rig, resourceFilters=shipped.replace("[Node,*,*]", "")):

        async def silent() -> str:
            await rig.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
            fired = bool(await rig.requests())
            if not fired:
                await rig.delete("Node", node)
            return "" if fired else "a Node fires nothing"

        await rig.settle(silent, within=10.0)

        async def touch_status(phase: str) -> set[str]:
            await rig.merge(
                "Node", node, {"status": {"phase": phase}}, namespace="", subresource="status"
            )
            return {item.spec.trigger.subresource for item in await rig.requests()}

        assert await touch_status("Pending") == {""}
        both = shipped.replace("[Node,*,*]", "").replace("[Node/?*,*,*]", "")
        async with settings(rig, resourceFilters=both):
            phases = itertools.cycle(("Running", "Pending"))

            async def still() -> str:
                found = await touch_status(next(phases))
                return "" if "status" in found else "its status fires nothing"

            await rig.settle(still, within=10.0)
    await rig.delete("Node", node)


async def test_the_status_of_a_policy_reports_filters_that_leave_out_its_triggers(
    rig: Rig,
) -> None:
    await policy(rig)
    old = (await rig.get("ConfigMap", NAME, NAMESPACE))["data"]["resourceFilters"]

    async def said() -> tuple[str, str]:
        status = (await rig.get("ClusterPolicy", rig.namespace, ""))["status"]
        return status["conditions"][0]["message"], status["mutateExisting"].get("message", "")

    async with settings(rig, resourceFilters=f"{old} [ConfigMap,{rig.namespace},*]"):
        text = "nothing ever fires it: resourceFilters leave out ConfigMap"

        async def unsaid() -> Any:
            found = await said()
            return "" if all(text in item for item in found) else found

        await rig.settle(unsaid, within=10.0)

    async def still() -> Any:
        found = await said()
        return "" if found[0] == "Ready" and text not in found[1] else found

    await rig.settle(still, within=10.0)


async def test_a_refused_value_is_reported_and_the_old_one_stays_in_use(rig: Rig) -> None:
    await policy(rig)
    old = (await rig.get("ConfigMap", NAME, NAMESPACE))["data"]["resourceFilters"]
    alone = f"{old} [ConfigMap,{rig.namespace},alone-*]"
    async with settings(rig, resourceFilters=alone):
        async with settings(rig, resourceFilters="ConfigMap,team,*", excludeUsernames="robot"):

            async def untold() -> Any:
                gauge = 'retrofit_setting_refused{key="resourceFilters"} 1.0'
                silent = [
                    name
                    for name in (ADMISSION, CONTROLLER)
                    if gauge not in await asyncio.to_thread(scrape, rig, name)
                ]
                events = await rig.items("Event", NAMESPACE)
                notes = [item["message"] for item in events if item["reason"] == "SettingRefused"]
                if silent or not notes:
                    return silent or "no event"
                return "" if "[kind,namespace,name]" in notes[0] else notes

            await rig.settle(untold, within=10.0)
            assert not await fires(rig, "alone-1")
            assert await fires(rig, "trigger-1")

        async def still() -> str:
            metrics = await asyncio.to_thread(scrape, rig, CONTROLLER)
            return "" if 'refused{key="resourceFilters"} 0.0' in metrics else "still refused"

        await rig.settle(still, within=5.0)


async def webhook(rig: Rig) -> Object:
    """Return the one webhook for triggers."""
    found: Object = (await rig.get(KIND, RESOURCE, ""))["webhooks"][0]
    return found


async def test_settings_add_selectors_conditions_and_metadata_to_the_webhooks(rig: Rig) -> None:
    await policy(rig)
    selector = {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["x"]}]}
    conditions = [{"name": "no-robot", "expression": "request.userInfo.username != 'robot'"}]
    async with settings(
        rig,
        webhooks=json.dumps({"namespaceSelector": selector, "objectSelector": selector}),
        matchConditions=json.dumps(conditions),
        webhookAnnotations='{"admissions.enforcer/disabled": "true"}',
        webhookLabels='{"team": "platform"}',
    ):

        async def lacking() -> Any:
            found = await rig.get(KIND, RESOURCE, "")
            meta, hook = found["metadata"], found["webhooks"][0]
            there = (
                hook["objectSelector"] == selector
                and selector["matchExpressions"][0]
                in hook["namespaceSelector"]["matchExpressions"]
                and conditions[0] in hook["matchConditions"]
                and meta.get("annotations") == {"admissions.enforcer/disabled": "true"}
                and meta["labels"].get("team") == "platform"
            )
            return "" if there else found

        await rig.settle(lacking, within=5.0)

    async def left() -> Any:
        found = await rig.get(KIND, RESOURCE, "")
        return found["metadata"].get("annotations") or found["webhooks"][0]["objectSelector"]

    await rig.settle(left, within=5.0)


async def test_a_refused_match_condition_is_reported_and_the_old_one_stays_in_use(
    rig: Rig,
) -> None:
    await policy(rig)
    good = [{"name": "no-robot", "expression": "request.userInfo.username != 'robot'"}]
    bad = [{"name": "no-robot", "expression": "request.userInfo.username !="}]
    async with settings(rig, matchConditions=json.dumps(good)):

        async def lacking() -> Any:
            found = await webhook(rig)
            return "" if good[0] in found["matchConditions"] else found["matchConditions"]

        await rig.settle(lacking, within=5.0)
        async with settings(rig, matchConditions=json.dumps(bad)):

            async def untold() -> Any:
                events = await rig.items("Event", NAMESPACE)
                notes = [item["message"] for item in events if item["reason"] == "SettingRefused"]
                return "" if any("data.matchConditions" in note for note in notes) else notes

            await rig.settle(untold, within=10.0)
            assert await lacking() == ""


async def test_a_success_is_an_event_with_generate_success_events(rig: Rig) -> None:
    await policy(rig)

    async def applied() -> list[Object]:
        return [
            item
            for item in await rig.items("Event", "default")
            if item["reason"] == "PolicyApplied"
            and item["involvedObject"]["name"] == rig.namespace
        ]

    assert await fires(rig, "trigger-silent")
    await rig.finish()
    async with settings(rig, generateSuccessEvents="true"):
        count = 0

        async def missing() -> str:
            nonlocal count
            count += 1
            await fires(rig, f"trigger-{count}")
            await rig.finish()
            return "" if await applied() else "no event"

        await rig.settle(missing, within=15.0)
    (event, *_) = await applied()
    assert event["type"] == "Normal"
    assert event["related"]["name"] == "target"
    assert all("trigger-silent" not in item["message"] for item in await applied())


async def test_filtered_targets_are_skipped_with_filter_targets(rig: Rig) -> None:
    await rig.create(config_map(rig.namespace, "other"))
    targets = [target(rig.namespace, "target"), target(rig.namespace, "other")]
    await rig.create(config_map(rig.namespace, "target"))
    await rig.apply(rule(rig.namespace, targets, GOT))
    old = (await rig.get("ConfigMap", NAME, NAMESPACE))["data"]["resourceFilters"]
    # SIGTERM makes the controller release its Lease at once.
    await asyncio.to_thread(rig.programs.kill, CONTROLLER, signal.SIGTERM)
    try:
        async with settings(rig, resourceFilters=f"{old} [ConfigMap,{rig.namespace},other]"):
            await rig.controller("--filter-targets", name="filtering")
            assert await fires(rig, "trigger-1")
            await rig.finish(within=30.0)
            assert await rig.data("target") == {"got": "trigger-1"}
            assert await rig.data("other") == {}
            (request,) = await rig.requests()
            messages = {item.ref.name: item.message for item in request.status.targets}
            assert "resourceFilters" in messages["other"]
    finally:
        await asyncio.to_thread(rig.programs.kill, "filtering", signal.SIGTERM)
        await rig.restart(CONTROLLER)
