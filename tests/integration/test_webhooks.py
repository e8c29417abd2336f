"""The webhook configurations on a real API server: scope, updates, repair and removal."""

import asyncio
import contextlib
import itertools
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devcluster.binaries import Binaries
from devcluster.cluster import ControlPlane
from devcluster.install import install
from devcluster.programs import CONTROLLER, Programs, start_programs
from devcluster.waiting import wait_until
from reconciler.api.meta import ANNOTATION_ALL_KINDS, Object
from reconciler.cli.manifests import find_manifests
from reconciler.errors import Denied, NotFound
from tests.faults.rig import Rig, config_map, rule, target
from tests.usedrights import audited

pytestmark = pytest.mark.cluster

RESOURCE, POLICY = "kube-retrofit-resource", "kube-retrofit-policy"
KIND = "ValidatingWebhookConfiguration"
GOT = {"data": {"got": "{{ request.object.metadata.name }}"}}


@pytest.fixture(scope="module", autouse=True)
def readable_triggers(live_programs: Programs) -> Iterator[None]:
    """Allow the controller to read the kinds that only these tests use as triggers."""
    role = readable("", "persistentvolumes", "podtemplates", "secrets")
    live_programs.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(role))
    yield
    live_programs.cluster.kubectl("delete", "clusterrole", role["metadata"]["name"])


async def asked(rig: Rig) -> set[tuple[str, str]]:
    """Return the groups and resources in the rules of the validating webhooks for triggers."""
    found = await rig.find(KIND, RESOURCE, "")
    return {
        (group, resource)
        for webhook in (found or {}).get("webhooks", ())
        for part in webhook["rules"]
        for group in part["apiGroups"]
        for resource in part["resources"]
    }


async def settled(rig: Rig, resource: tuple[str, str], *, there: bool, within: float) -> float:
    """Wait until the webhook rules contain, or lack, a resource, and return the seconds waited."""
    loop = asyncio.get_running_loop()
    begun = loop.time()

    async def missing() -> Any:
        found = await asked(rig)
        return "" if (resource in found) is there else found or "nothing is asked about"

    await rig.settle(missing, within=within)
    return loop.time() - begun


def policy(rig: Rig, *rules: Object, **spec: Any) -> Object:
    """Return the test's policy."""
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": rig.namespace},
        "spec": {"rules": list(rules), **spec},
    }


async def change(rig: Rig, *rules: Object) -> None:
    """Replace the rules of the test's policy."""
    patch = {"spec": {"rules": list(rules)}}
    await rig.merge("ClusterPolicy", rig.namespace, patch, namespace="")


def about(rig: Rig, kind: str) -> Object:
    """Return a rule for triggers of a kind, preferably one that no other test uses."""
    return rule(rig.namespace, [target(rig.namespace, "target")], GOT, kinds=[kind])


async def test_the_webhook_follows_changes_of_policies_within_two_seconds(rig: Rig) -> None:
    limits, quotas = ("", "limitranges"), ("", "resourcequotas")
    await rig.create(policy(rig, about(rig, "LimitRange")))
    await settled(rig, limits, there=True, within=2.0)
    await change(rig, about(rig, "ResourceQuota"))
    await settled(rig, quotas, there=True, within=2.0)
    assert limits not in await asked(rig)
    await rig.delete("ClusterPolicy", rig.namespace, "")
    await settled(rig, quotas, there=False, within=2.0)


async def test_the_webhook_selects_only_the_namespaces_that_policies_name(rig: Rig) -> None:
    await rig.apply(about(rig, "Endpoints"))
    found = await rig.get(KIND, RESOURCE, "")
    (webhook,) = found["webhooks"]
    (expression,) = webhook["namespaceSelector"]["matchExpressions"]
    assert (expression["operator"], expression["values"]) == ("In", [rig.namespace])


async def test_the_webhook_has_the_options_of_its_policies_and_is_removed_without_any(
    rig: Rig,
) -> None:
    fires = {
        "any": [
            {"resources": {"kinds": ["Pod/binding"], "operations": ["CREATE"]}},
            {"resources": {"kinds": ["PersistentVolume"], "operations": ["UPDATE", "DELETE"]}},
        ]
    }
    condition = {"name": "people", "expression": "request.userInfo.username != 'nobody'"}
    one = {**about(rig, "Secret"), "match": fires}
    await rig.create(
        policy(
            rig,
            one,
            webhookConfiguration={
                "failurePolicy": "Ignore",
                "timeoutSeconds": 17,
                "matchConditions": [condition],
            },
        )
    )
    await settled(rig, ("", "pods/binding"), there=True, within=5.0)
    (webhook,) = (await rig.get(KIND, RESOURCE, ""))["webhooks"]
    assert (webhook["failurePolicy"], webhook["timeoutSeconds"]) == ("Ignore", 17)
    assert condition in webhook["matchConditions"]
    asks = {
        (resource, tuple(part["operations"]), part["scope"])
        for part in webhook["rules"]
        for resource in part["resources"]
    }
    # DELETE in one filter also applies to filters without operations; Pod/binding lists its own.
    assert asks == {
        ("pods/binding", ("CREATE",), "Namespaced"),
        ("persistentvolumes", ("DELETE", "UPDATE"), "Cluster"),
    }
    await change(rig, rule(rig.namespace, [target(rig.namespace, "target")], GOT, kinds=["*"]))
    await settled(rig, ("*", "*"), there=True, within=5.0)
    await rig.delete("ClusterPolicy", rig.namespace, "")

    async def asking() -> Any:
        return (await rig.get(KIND, RESOURCE, "")).get("webhooks")

    await rig.settle(asking, within=5.0)


@pytest.mark.parametrize("name", [RESOURCE, POLICY])
async def test_a_deleted_or_edited_configuration_is_restored_and_reported(
    rig: Rig, name: str
) -> None:
    await rig.apply(about(rig, "PodTemplate"))
    before = (await rig.get(KIND, name, ""))["webhooks"]
    await rig.delete(KIND, name, "")

    async def different() -> Any:
        found = await rig.find(KIND, name, "")
        return "" if found is not None and found.get("webhooks") == before else found or "absent"

    await rig.settle(different, within=2.0)
    patch = {"metadata": {"labels": None}, "webhooks": []}
    await rig.merge(KIND, name, patch, namespace="")
    await rig.settle(different, within=2.0)
    labels = (await rig.get(KIND, name, ""))["metadata"]["labels"]
    assert labels["app.kubernetes.io/managed-by"] == "kube-retrofit"

    async def untold() -> Any:
        notes = {
            item["message"]
            for item in await rig.items("Event", "default")
            if item["reason"] == "WebhookRestored" and item["involvedObject"]["name"] == name
        }
        return {"it was deleted"} - notes

    await rig.settle(untold, within=10.0)


async def test_a_kind_that_is_served_later_triggers_without_a_restart(rig: Rig) -> None:
    group = f"{rig.namespace}.example.com"
    await rig.create(config_map(rig.namespace, "target"))
    await rig.create(policy(rig, about(rig, f"{group}/v1/Widget")))
    await not_ready(rig, "KindNotServed")
    assert (group, "widgets") not in await asked(rig)
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }
    await asyncio.to_thread(rig.cluster.kubectl, "apply", "-f", "-", stdin=json.dumps(definition))
    try:
        await settled(rig, (group, "widgets"), there=True, within=8.0)
        await rig.learn(f"{group}/v1", "Widget")
        await rig.create(readable(group))
        numbers = itertools.count()

        async def untouched() -> Any:
            # The API server loads the configuration through a watch, so it takes effect later.
            meta = {"name": f"trigger-{next(numbers)}", "namespace": rig.namespace}
            await rig.create({"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": meta})
            return "" if (await rig.data("target")).get("got") else await rig.waiting() or "none"

        await rig.settle(untouched, within=15.0)
        await rig.ready()
    finally:
        await asyncio.to_thread(rig.cluster.kubectl, "delete", "crd", f"widgets.{group}")
        with contextlib.suppress(NotFound):
            await rig.delete("ClusterRole", group, "")
    # The webhook keeps its rule for the kind, which is gone, as long as the policy names it.
    await not_ready(rig, "KindNotServed")
    assert (group, "widgets") in await asked(rig)
    await rig.delete("ClusterPolicy", rig.namespace, "")
    await settled(rig, (group, "widgets"), there=False, within=8.0)


async def not_ready(rig: Rig, reason: str) -> None:
    """Wait until the Ready condition of the test's policy is False with a given reason."""

    async def unsaid() -> Any:
        status = (await rig.get("ClusterPolicy", rig.namespace, "")).get("status") or {}
        reported = [(item["status"], item["reason"]) for item in status.get("conditions", ())]
        return "" if reported == [("False", reason)] else status or "no status"

    await rig.settle(unsaid, within=15.0)


def readable(group: str, *resources: str) -> Object:
    """Return a role that allows the controller to read objects of a group."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {
            "name": group or "core-triggers",
            "labels": {"rbac.kyverno.io/aggregate-to-background-controller": "true"},
        },
        "rules": [
            {"apiGroups": [group], "resources": resources or ["*"], "verbs": ["get", "list"]}
        ],
    }


async def test_a_match_condition_that_does_not_compile_is_reported_until_repaired(
    rig: Rig,
) -> None:
    conditions = [{"name": "broken", "expression": "request.userInfo.username +"}]
    broken = policy(
        rig, about(rig, "Secret"), webhookConfiguration={"matchConditions": conditions}
    )

    async def unstored() -> str:
        # Stored without the policy webhook, as an older version might have allowed it.
        with contextlib.suppress(NotFound):
            await rig.delete(KIND, POLICY, "")
        try:
            await rig.create(broken)
        except Denied as error:
            return str(error)
        return ""

    await rig.settle(unstored, within=15.0)

    async def untold() -> Any:
        status = (await rig.get("ClusterPolicy", rig.namespace, "")).get("status") or {}
        reported = [(item["type"], item["status"]) for item in status.get("conditions", ())]
        return "" if reported == [("Ready", "False")] else status or "no status"

    await rig.settle(untold, within=10.0)
    status = (await rig.get("ClusterPolicy", rig.namespace, ""))["status"]
    assert "matchConditions[0].expression" in status["conditions"][0]["message"]
    conditions[0]["expression"] = "request.userInfo.username != 'nobody'"
    fields = {"webhookConfiguration": {"matchConditions": conditions}}
    await rig.merge("ClusterPolicy", rig.namespace, {"spec": fields}, namespace="")
    await rig.ready()
    assert ("", "secrets") in await asked(rig)


async def test_a_restarted_controller_writes_webhooks_only_for_a_policy_change(rig: Rig) -> None:
    await rig.apply(about(rig, "Endpoints"))
    before = (await rig.get(KIND, RESOURCE, ""))["metadata"]["generation"]
    await asyncio.to_thread(rig.programs.kill, CONTROLLER, signal.SIGTERM)
    await rig.restart(CONTROLLER)
    await change(rig, about(rig, "LimitRange"))
    await settled(rig, ("", "limitranges"), there=True, within=20.0)
    assert (await rig.get(KIND, RESOURCE, ""))["metadata"]["generation"] == before + 1


@pytest.fixture
def removable(binaries: Binaries | Path) -> Iterator[tuple[ControlPlane, Programs]]:
    """A cluster with both programs and a policy for all kinds, which a test uninstalls."""
    if isinstance(binaries, Path):
        pytest.skip("RETROFIT_CONTROL_PLANE names a cluster, which no test may break")
    with audited(binaries) as plane:
        settings = install(plane, "demo")
        with start_programs(plane, settings=settings) as programs:
            conditions = policy_for_everything()
            plane.kubectl("apply", "-f", "-", stdin=json.dumps(conditions))
            plane.kubectl("wait", "--for=condition=Ready", "--timeout=20s", "cpol/all")
            yield plane, programs


def policy_for_everything() -> Object:
    """Return a policy whose webhook would block every write once the admission server is gone."""
    match = {"any": [{"resources": {"kinds": ["*"]}}]}
    targets = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "namespace": "default"}]
    mutate = {"targets": targets, "patchStrategicMerge": {"data": {"a": "b"}}}
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "all", "annotations": {ANNOTATION_ALL_KINDS: "fail"}},
        "spec": {
            "failurePolicy": "Fail",
            "rules": [{"name": "r", "match": match, "mutate": mutate}],
        },
    }


def configurations(plane: ControlPlane) -> str:
    return plane.kubectl("get", "validatingwebhookconfigurations", "-o", "name").strip()


@pytest.mark.parametrize(
    "command",
    [
        ("delete", "--wait=false", "--ignore-not-found", "-k", "manifests/overlays/demo"),
        ("delete", "namespace", "kyverno", "--wait=false"),
    ],
    ids=["manifests", "namespace"],
)
def test_uninstalling_leaves_no_webhook_behind(
    removable: tuple[ControlPlane, Programs], command: tuple[str, ...]
) -> None:
    plane, programs = removable
    assert RESOURCE in configurations(plane)
    root = find_manifests()
    args = [str(root / part) if part.startswith("manifests/") else part for part in command]
    plane.kubectl(*args)
    wait_until(lambda: not configurations(plane), within=60, what="the configurations are gone")
    # A program that still runs must not create them again.
    wait_until(lambda: not namespaces(plane), within=60, what="the namespace is gone")
    assert configurations(plane) == ""
    programs.stop()
    plane.kubectl("create", "configmap", "free", "-n", "default")


def namespaces(plane: ControlPlane) -> str:
    return plane.kubectl("get", "namespace", "kyverno", "--ignore-not-found", "-o", "name").strip()
