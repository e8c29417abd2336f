"""Kinitiras policies with both programs running, from the installation of their CRDs on."""

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from reconciler.api.meta import ANNOTATION_EXISTING, PREFIX, Object
from reconciler.api.updaterequest import State
from reconciler.cli.main import retrofit
from reconciler.dialects.kinitiras.labelled import ANNOTATION as OBJECTS
from reconciler.dialects.kinitiras.labelled import LABEL
from reconciler.errors import ClusterError
from tests.faults.rig import Rig, config_map, deployment, pod

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
API_VERSION = "policy.kcloudlabs.io/v1alpha1"
KINDS = ("ClusterOverridePolicy", "OverridePolicy", "ClusterValidatePolicy")
LABELS = dict([LABEL])
CONFIG_MAPS = {"apiVersion": "v1", "kind": "ConfigMap"}
DEPLOYMENTS = {"apiVersion": "apps/v1", "kind": "Deployment"}
PODS = {"apiVersion": "v1", "kind": "Pod"}


async def kubectl(rig: Rig, *args: str, stdin: Object | None = None) -> str:
    """Run kubectl as the administrator."""
    text = "" if stdin is None else json.dumps(stdin)
    return await asyncio.to_thread(rig.cluster.kubectl, *args, stdin=text)


@pytest.fixture
async def policies(rig: Rig) -> AsyncIterator[Rig]:
    """The rig, with the kinitiras kinds installed; their policies are deleted after the test."""
    await kubectl(rig, "apply", "-k", str(ROOT / "manifests/dialects/kinitiras"))
    for kind in KINDS:
        await rig.learn(API_VERSION, kind)
    yield rig
    for kind in ("cop", "op", "cvp"):
        await kubectl(rig, "delete", kind, "--all", "--all-namespaces")


def policy(
    rig: Rig, kind: str, name: str, spec: Object, annotations: dict[str, str] | None = None
) -> Object:
    meta: Object = {"name": f"{rig.namespace}-{name}", "annotations": annotations or {}}
    if kind == "OverridePolicy":
        meta["namespace"] = rig.namespace
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": meta, "spec": spec}


def overriding(
    rig: Rig,
    name: str,
    *overriders: Object,
    select: Object,
    kind: str = "ClusterOverridePolicy",
    operations: tuple[str, ...] = (),
    annotations: dict[str, str] | None = None,
) -> Object:
    """Return a policy that changes the objects it selects in the test's namespace."""
    rules = [{"targetOperations": list(operations), "overriders": item} for item in overriders]
    place = {} if kind == "OverridePolicy" else {"namespace": rig.namespace}
    spec = {"resourceSelectors": [{**select, **place}], "overrideRules": rules}
    return policy(rig, kind, name, spec, annotations)


def label(name: str, value: str) -> Object:
    """Return an overrider that sets a label."""
    return {"origin": [{"type": "labels", "labels": {name: value}}]}


def referring(path: str, reference: Object) -> Object:
    """Return an overrider that sets an annotation to the value of a reference."""
    return {
        "template": {
            "type": "annotations",
            "operation": "replace",
            "path": path,
            "valueRef": reference,
        }
    }


def labelled(obj: Object, **more: str) -> Object:
    meta = obj["metadata"]
    return {**obj, "metadata": {**meta, "labels": {**LABELS, **more}}}


async def ready(rig: Rig, *written: Object, reason: str = "Succeeded") -> None:
    """Store policies, and wait until the condition of each has the given reason."""
    for obj in written:
        if await rig.find(obj["kind"], obj["metadata"]["name"], _place(obj)) is None:
            await rig.create(obj)

    async def missing() -> Any:
        for obj in written:
            stored = await rig.get(obj["kind"], obj["metadata"]["name"], _place(obj))
            (condition,) = (stored.get("status") or {}).get("conditions") or [{}]
            if condition.get("reason") != reason:
                return condition or f"no status of {obj['metadata']['name']}"
        return ""

    await rig.settle(missing, within=40.0)


async def skipped_without(rig: Rig, held: Object) -> None:
    """Delete a paused policy, and wait until its one request is skipped as ``PolicyGone``."""
    name, place = held["metadata"]["name"], _place(held)

    async def are(state: State, reason: str) -> Any:
        found = [item.status for item in await rig.requests(f"{place}/{name}" if place else name)]
        said = [(status.state, status.reason) for status in found]
        return "" if said == [(state, reason)] else said or "no request"

    await rig.settle(partial(are, State.PENDING, "Paused"), within=15.0)
    await rig.delete(held["kind"], name, place)
    await rig.settle(partial(are, State.SKIP, "PolicyGone"), within=15.0)


def _place(obj: Object) -> str:
    return str(obj["metadata"].get("namespace", ""))


async def labels(rig: Rig, name: str, namespace: str | None = None) -> dict[str, str]:
    """Return the labels of a ConfigMap without the label that selects it for the webhook."""
    found = (await rig.get("ConfigMap", name, namespace))["metadata"].get("labels") or {}
    return {key: value for key, value in found.items() if key != LABEL[0]}


async def test_policies_change_applied_objects_in_their_order(policies: Rig) -> None:
    rig = policies
    factors = {"cpuFactor": "0.5", "memoryFactor": "0.2"}
    toleration = {"key": "batch", "operator": "Exists", "effect": "NoSchedule"}
    await ready(
        rig,
        overriding(rig, "z", label("order", "cluster"), select=PODS),
        overriding(rig, "a", label("order", "own"), select=PODS, kind="OverridePolicy"),
        overriding(
            rig,
            "m",
            {"plaintext": [{"op": "add", "path": "/metadata/annotations/by", "value": "op"}]},
            {
                "template": {"type": "resourcesOversell", "operation": "replace"}
                | {"resourcesOversell": factors}
            },
            {
                "template": {"type": "tolerations", "operation": "add"}
                | {"tolerations": [toleration]}
            },
            select=PODS,
            operations=("CREATE",),
        ),
    )
    written = labelled(pod(rig.namespace, "web"))
    written["metadata"]["annotations"] = {"mine": "yes"}
    limits = {"cpu": "1500m", "memory": "1Gi"}
    written["spec"]["containers"][0]["resources"] = {"limits": limits}
    await kubectl(rig, "apply", "-f", "-", stdin=written)
    made = await rig.get("Pod", "web")
    assert made["metadata"]["labels"]["order"] == "own"
    assert made["metadata"]["annotations"]["by"] == "op"
    requests = made["spec"]["containers"][0]["resources"]["requests"]
    assert requests == {"cpu": "750m", "memory": "214748365"}
    assert toleration in made["spec"]["tolerations"]
    shown = await kubectl(rig, "get", "cop", f"{rig.namespace}-z")
    assert shown.split()[:2] == ["NAME", "READY"]
    assert "True" in shown


async def test_values_come_from_other_objects_and_the_owner(policies: Rig) -> None:
    rig, place = policies, policies.namespace
    owner = await rig.create(labelled(deployment(place, "front"), team="blue"))
    await rig.create(labelled(config_map(place, "settings", color="red"), part="settings"))
    by_name = {**CONFIG_MAPS, "namespace": "{{metadata.namespace}}", "name": "settings"}
    selector = {"matchLabels": {"part": "{{metadata.labels.reads}}"}}
    by_label = {**CONFIG_MAPS, "namespace": place, "labelSelector": selector}
    await ready(
        rig,
        overriding(
            rig,
            "refers",
            referring("team", {"from": "owner", "path": "/metadata/labels/team"}),
            referring("color", {"from": "k8s", "path": "/data/color", "k8s": by_name}),
            referring("first", {"from": "k8s", "path": "metadata.name", "k8s": by_label}),
            select=PODS,
            operations=("CREATE",),
        ),
    )
    written = labelled(pod(place, "web"), reads="settings")
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "front"}
    uid = owner["metadata"]["uid"]
    written["metadata"]["ownerReferences"] = [{**reference, "uid": uid}]
    made = await rig.create(written)
    annotations = made["metadata"]["annotations"]
    assert {name: annotations[name] for name in ("team", "color", "first")} == {
        "team": "blue",
        "color": "red",
        "first": "settings",
    }
    orphan = labelled(pod(place, "orphan"))
    with pytest.raises(ClusterError, match="owner: the object has no owner") as refused:
        await rig.create(orphan)
    assert f"policy {place}-refers rule overrideRules[0]" in str(refused.value)
    orphan["metadata"]["ownerReferences"] = [{**reference, "uid": "someone-else"}]
    with pytest.raises(ClusterError, match="has another uid"):
        await rig.create(orphan)


async def test_a_guarded_namespace_is_deleted_only_after_confirmation(policies: Rig) -> None:
    rig = policies
    guarded = f"{rig.namespace}-guarded"
    condition = {
        "cond": "NotExist",
        "message": "confirm it with the annotation example.com/delete",
        "dataRef": {"from": "current", "path": "/metadata/annotations/example.com~1delete"},
    }
    rules = [
        {"targetOperations": ["DELETE"], "template": {"type": "condition", "condition": condition}}
    ]
    selectors = [{"apiVersion": "v1", "kind": "Namespace", "name": guarded}]
    spec = {"resourceSelectors": selectors, "validateRules": rules}
    await ready(rig, policy(rig, "ClusterValidatePolicy", "guard", spec))
    meta = {"name": guarded, "labels": LABELS}
    await rig.create({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    with pytest.raises(ClusterError, match="confirm it with the annotation") as refused:
        await rig.delete("Namespace", guarded, "")
    assert f"{rig.namespace}-guard: " in str(refused.value)
    confirmed = {"metadata": {"annotations": {"example.com/delete": "yes"}}}
    await rig.merge("Namespace", guarded, confirmed, namespace="")
    await rig.delete("Namespace", guarded, "")


async def test_connections_and_deletions_of_a_collection_are_refused(policies: Rig) -> None:
    rig, place = policies, policies.namespace

    def refusing(name: str, operation: str, kind: str, path: str) -> Object:
        data = {"from": "current", "path": path}
        condition = {"affectMode": "reject", "cond": "Exist", "message": name, "dataRef": data}
        rule = {
            "targetOperations": [operation],
            "template": {"type": "condition", "condition": condition},
        }
        selectors = [{"apiVersion": "v1", "kind": kind, "namespace": place}]
        spec = {"resourceSelectors": selectors, "validateRules": [rule]}
        return policy(rig, "ClusterValidatePolicy", name, spec, {OBJECTS: "all"})

    await rig.create_all([pod(place, "web"), config_map(place, "kept", a="b")])
    await ready(
        rig,
        refusing("no-exec", "CONNECT", "PodExecOptions", "/command"),
        refusing("kept", "DELETE", "ConfigMap", "/data/a"),
        refusing("all", "*", "Secret", "/data/a"),
    )
    with pytest.raises(ClusterError, match=f"{place}-no-exec: no-exec"):
        await kubectl(rig, "exec", "-n", place, "web", "--", "true")
    with pytest.raises(ClusterError, match=f"{place}-kept: kept"):
        await kubectl(rig, "delete", "--raw", f"/api/v1/namespaces/{place}/configmaps")
    assert await rig.data("kept") == {"a": "b"}
    with pytest.raises(ClusterError, match=f"{place}-all: all"):
        await kubectl(
            rig, "create", "secret", "generic", "s", "-n", place, "--from-literal", "a=b"
        )


async def test_unlabelled_objects_are_changed_only_by_annotated_policies(policies: Rig) -> None:
    rig = policies
    known = overriding(rig, "known", label("known", "yes"), select=CONFIG_MAPS)
    await ready(rig, known)
    webhooks = await kubectl(
        rig, "get", "mutatingwebhookconfiguration", "kube-retrofit-resource", "-o", "json"
    )
    (webhook,) = (item for item in json.loads(webhooks)["webhooks"] if "kinitiras" in item["name"])
    wanted = {"key": LABEL[0], "operator": "In", "values": [LABEL[1]]}
    assert webhook["objectSelector"]["matchExpressions"] == [wanted]
    assert webhook["failurePolicy"] == "Fail"
    await rig.create(config_map(rig.namespace, "off"))
    await rig.create(labelled(config_map(rig.namespace, "on")))
    assert await labels(rig, "off") == {}
    assert await labels(rig, "on") == {"known": "yes"}
    await ready(
        rig,
        overriding(
            rig, "all", label("all", "yes"), select=CONFIG_MAPS, annotations={OBJECTS: "all"}
        ),
    )
    await rig.create(config_map(rig.namespace, "any"))
    assert await labels(rig, "any") == {"all": "yes"}


async def test_a_namespaced_policy_changes_no_object_of_another_namespace(policies: Rig) -> None:
    """It changes no object elsewhere, neither at admission nor in a sweep."""
    rig = policies
    other = f"{rig.namespace}-other"
    await kubectl(rig, "create", "namespace", other)
    for place in (rig.namespace, other):
        await rig.create(labelled(config_map(place, "old")))
    own = overriding(
        rig,
        "own",
        label("team", "blue"),
        select=CONFIG_MAPS,
        kind="OverridePolicy",
        annotations={ANNOTATION_EXISTING: "true"},
    )
    await ready(rig, own)

    async def unswept() -> Any:
        stored = await rig.get("OverridePolicy", own["metadata"]["name"])
        figures = stored["status"]["mutateExisting"]
        return "" if figures.get("lastRun") and not figures["pending"] else figures

    await rig.settle(unswept, within=40.0)
    for place in (rig.namespace, other):
        await rig.create(labelled(config_map(place, "new")))
    for name in ("old", "new"):
        assert await labels(rig, name) == {"team": "blue"}
        assert await labels(rig, name, other) == {}
    figures = (await rig.get("OverridePolicy", own["metadata"]["name"]))["status"][
        "mutateExisting"
    ]
    assert (figures["onExisting"], figures["failed"]) == (True, 0)


@pytest.mark.parametrize("kind", ["OverridePolicy", "ClusterOverridePolicy"])
async def test_waiting_requests_of_a_deleted_policy_are_skipped(policies: Rig, kind: str) -> None:
    rig = policies
    await rig.create(labelled(config_map(rig.namespace, "a")))
    marks = {ANNOTATION_EXISTING: "true", f"{PREFIX}paused": "true"}
    held = overriding(
        rig, "held", label("team", "blue"), select=CONFIG_MAPS, kind=kind, annotations=marks
    )
    await ready(rig, held)
    await skipped_without(rig, held)
    assert await labels(rig, "a") == {}


@pytest.mark.parametrize(
    ("overriders", "line"),
    [
        (
            {
                "template": {
                    "type": "labels",
                    "operation": "add",
                    "path": "a",
                    "value": {"string": "x", "integer": 1},
                }
            },
            "overriders.template.value: expected one of string, integer",
        ),
        (
            {
                "template": {
                    "type": "resourcesOversell",
                    "operation": "replace",
                    "resourcesOversell": {"cpuFactor": "half"},
                }
            },
            "overriders.template.resourcesOversell.cpuFactor: expected a number between 0 and 1",
        ),
        (
            referring(
                "a",
                {
                    "from": "k8s",
                    "path": "data",
                    "k8s": {"apiVersion": "v1", "kind": "Secret", "name": "s"},
                },
            ),
            "overriders.template.valueRef.k8s.kind: a namespaced policy must not read Secrets",
        ),
        (
            referring(
                "a", {"from": "http", "path": "a", "http": {"url": "http://x.elsewhere.svc"}}
            ),
            "overriders.template.valueRef.http.url: a namespaced policy calls Services of its own",
        ),
        ({"cue": "patches: []"}, "overriders.cue: CUE is not evaluated"),
    ],
)
async def test_an_invalid_policy_is_refused_with_its_path(
    policies: Rig, overriders: Object, line: str
) -> None:
    wrong = overriding(policies, "wrong", overriders, select=PODS, kind="OverridePolicy")
    with pytest.raises(ClusterError) as refused:
        await policies.create(wrong)
    assert f"spec.overrideRules[0].{line}" in str(refused.value)


async def test_a_service_that_may_not_be_called_is_named_in_the_refusal(policies: Rig) -> None:
    """The metadata service of a cloud is not called, and the refusal does not show the path."""
    rig = policies
    url = "http://169.254.169.254/latest/{{metadata.labels.role}}"
    asking = overriding(
        rig,
        "asks",
        referring("a", {"from": "http", "path": "a", "http": {"url": url}}),
        select=CONFIG_MAPS,
    )
    await ready(rig, asking)
    with pytest.raises(ClusterError, match=r"169\.254\.169\.254 may not be called") as refused:
        await rig.create(labelled(config_map(rig.namespace, "a"), role="s3cret-role"))
    assert "allow it with --service-hosts" in str(refused.value)
    assert "s3cret-role" not in str(refused.value)


async def test_policies_stand_by_while_kinitiras_is_at_work(policies: Rig) -> None:
    rig = policies
    rule = overriding(rig, "later", label("team", "blue"), select=CONFIG_MAPS)
    await ready(rig, rule)
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "kinitiras-webhook"},
        "webhooks": [],
    }
    await kubectl(rig, "create", "-f", "-", stdin=configuration)
    try:
        await ready(rig, rule, reason="StandingBy")
        await rig.create(labelled(config_map(rig.namespace, "theirs")))
        assert await labels(rig, "theirs") == {}
    finally:
        await kubectl(rig, "delete", "mutatingwebhookconfiguration", "kinitiras-webhook")
    await ready(rig, rule)
    await rig.create(labelled(config_map(rig.namespace, "ours")))
    assert await labels(rig, "ours") == {"team": "blue"}


@pytest.mark.parametrize("kind", ["ClusterOverridePolicy", "OverridePolicy"])
async def test_commands_name_a_stored_policy_with_its_kind(policies: Rig, kind: str) -> None:
    rig = policies
    await rig.create(labelled(config_map(rig.namespace, "old")))
    existing = overriding(
        rig,
        "named",
        label("named", "yes"),
        select=CONFIG_MAPS,
        kind=kind,
        annotations={ANNOTATION_EXISTING: "true", OBJECTS: "all"},
    )
    await ready(rig, existing)
    name = "/".join(filter(None, (kind.lower(), _place(existing), existing["metadata"]["name"])))

    async def asked(*arguments: str) -> str:
        result = await asyncio.to_thread(
            CliRunner().invoke,
            retrofit,
            [*arguments, "--kubeconfig", str(rig.cluster.kubeconfig)],
            env={"COLUMNS": "300"},
        )
        assert result.exit_code == 0, result.output
        return result.output

    assert existing["metadata"]["name"] in await asked("preview", name)
    trigger = f"ConfigMap/{rig.namespace}/old"
    assert "named" in await asked("explain", name, "--cluster", "--trigger", trigger)
    ran = await asked("run", name, "--wait")
    assert "rule overrideRules[0]" in ran
    assert (await labels(rig, "old"))["named"] == "yes"
    assert existing["metadata"]["name"] in await asked("status", name)
    assert existing["metadata"]["name"] in await asked("top", name, "-o", "json")
    assert "repeated: 0" in await asked("retry", name)
