"""ModRules with both programs running, from the installation of their CRD on."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from reconciler.api.meta import ANNOTATION_EXISTING, PREFIX, Object
from reconciler.cli.main import retrofit
from reconciler.errors import ClusterError, Denied, Invalid
from tests.faults.rig import Rig, config_map, pod
from tests.integration.test_kinitiras import skipped_without
from tests.unit.dialects.kubemod.modrules import POD, modrule

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
CONFIG_MAP = {"select": "$.kind", "matchValue": "ConfigMap"}


async def kubectl(rig: Rig, *args: str, stdin: Object | None = None) -> str:
    """Run kubectl as the administrator."""
    text = "" if stdin is None else json.dumps(stdin)
    return await asyncio.to_thread(rig.cluster.kubectl, *args, stdin=text)


async def desk(rig: Rig, *args: str) -> str:
    """Return the output of a `retrofit` command that is run against the cluster."""

    def run() -> str:
        flags = ("--kubeconfig", str(rig.cluster.kubeconfig))
        return CliRunner().invoke(retrofit, [*args, *flags]).output

    return await asyncio.to_thread(run)


async def install(rig: Rig, folder: str) -> None:
    await kubectl(rig, "apply", "-k", str(ROOT / folder))
    await rig.learn("api.kubemod.io/v1beta1", "ModRule")


@pytest.fixture
async def modrules(rig: Rig) -> AsyncIterator[Rig]:
    """The rig, with the ModRule kind installed; the ModRules are deleted after the test."""
    await install(rig, "manifests/dialects/kubemod")
    yield rig
    await kubectl(rig, "delete", "modrules", "--all", "--all-namespaces")


def labelling(rig: Rig, name: str = "rule", value: str = "blue", **fields: Any) -> Object:
    """Return a rule that labels ConfigMaps of the test's namespace."""
    patch = {"op": "add", "path": "/metadata/labels/team", "value": value}
    given: dict[str, Any] = {
        "type": "Patch",
        "match": [CONFIG_MAP],
        "patch": [patch],
        "namespace": rig.namespace,
        "name": name,
    }
    return modrule(**{**given, **fields})


async def ready(rig: Rig, rule: Object, reason: str = "Succeeded") -> Object:
    """Store a rule, wait until its condition has the given reason, and return the stored rule."""
    meta = rule["metadata"]
    if await rig.find("ModRule", meta["name"], meta["namespace"]) is None:
        await rig.create(rule)
    found: list[Object] = []

    async def missing() -> Any:
        stored = await rig.get("ModRule", meta["name"], meta["namespace"])
        found[:] = [stored]
        (condition,) = (stored.get("status") or {}).get("conditions") or [{}]
        return "" if condition.get("reason") == reason else condition or "no status"

    await rig.settle(missing, within=40.0)
    return found[0]


async def labels(rig: Rig, name: str, namespace: str | None = None) -> dict[str, str]:
    found = (await rig.get("ConfigMap", name, namespace))["metadata"].get("labels")
    return dict(found or {})


async def test_rules_are_ignored_where_only_the_crd_is_installed(rig: Rig) -> None:
    """With the CRD alone, as where KubeMod itself is installed, its rules are ignored."""
    everything = str(ROOT / "manifests/dialects/kubemod")
    await kubectl(rig, "delete", "-k", everything, "--wait", "--ignore-not-found")
    await install(rig, "crds/dialects/kubemod")
    await rig.create(labelling(rig))
    await rig.create(config_map(rig.namespace, "a"))
    assert await labels(rig, "a") == {}
    assert rig.running()
    assert "status" not in await rig.get("ModRule", "rule")
    await kubectl(rig, "delete", "modrules", "--all", "--all-namespaces")


async def test_rules_change_and_refuse_applied_objects(modrules: Rig) -> None:
    rig, place = modrules, modrules.namespace
    sidecar = modrule(
        type="Patch",
        match=[POD, {"select": "$.spec.containers[*].name", "matchValue": "side", "negate": True}],
        patch=[{"op": "add", "path": "/spec/containers/-1", "value": "name: side\nimage: s\n"}],
        namespace=place,
        name="sidecar",
    )
    counted = modrule(
        type="Patch",
        executionTier=1,
        match=[POD],
        patch=[
            {
                "op": "add",
                "path": "/metadata/annotations/containers",
                "value": '"{{ len .Target.spec.containers }}"',
            }
        ],
        namespace=place,
        name="a-later",
    )
    no_root = modrule(
        type="Reject",
        match=[POD, {"select": "$.spec.securityContext.runAsUser == 0"}],
        rejectMessage="{{ .Target.metadata.name }} must not run as root",
        namespace=place,
        name="no-root",
    )
    for rule in (sidecar, counted, no_root):
        assert (await ready(rig, rule))["status"]["kinds"] == ["Pod"]
    await kubectl(rig, "apply", "-f", "-", stdin=pod(place, "web"))
    made = await rig.get("Pod", "web")
    assert [item["name"] for item in made["spec"]["containers"]] == ["main", "side"]
    assert made["metadata"]["annotations"]["containers"] == "2"
    # Applying the same file again leaves the fields that rules added as they are.
    await kubectl(rig, "apply", "-f", "-", stdin=pod(place, "web"))
    assert (await rig.get("Pod", "web"))["spec"] == made["spec"]
    root = pod(place, "root")
    root["spec"]["securityContext"] = {"runAsUser": 0}
    with pytest.raises(ClusterError, match="root must not run as root") as refused:
        await rig.create(root)
    assert f"rejected by the following ModRule(s): {place}/no-root" in str(refused.value)
    shown = await kubectl(rig, "get", "modrules", "-n", place)
    assert [line.split()[:4] for line in shown.splitlines()] == [
        ["NAME", "TYPE", "TIER", "READY"],
        ["a-later", "Patch", "1", "True"],
        ["no-root", "Reject", "0", "True"],
        ["sidecar", "Patch", "0", "True"],
    ]


async def test_an_invalid_rule_is_refused_with_its_path(modrules: Rig) -> None:
    wrong = labelling(modrules, match=[{"select": "$.metadata.labels.a-b == 1"}])
    with pytest.raises((Denied, Invalid), match=r"spec.match\[0\].select: a name with") as refused:
        await modrules.create(wrong)
    assert 'write ["a-name"] for .a-name' in str(refused.value)


async def test_a_tenants_rule_affects_no_other_namespace(modrules: Rig) -> None:
    """It affects no object elsewhere, at admission or in a sweep, whatever namespaces it names."""
    rig = modrules
    other = f"{rig.namespace}-other"
    await kubectl(rig, "create", "namespace", other)
    for place in (rig.namespace, other):
        await rig.create(config_map(place, "old"))
    greedy = labelling(rig, annotations={ANNOTATION_EXISTING: "true"}, targetNamespaceRegex=".*")
    refusing = modrule(
        type="Reject",
        match=[CONFIG_MAP, {"select": "$.metadata.name", "matchValue": "refused"}],
        targetNamespaceRegex=".*",
        namespace=rig.namespace,
        name="refusing",
    )
    for rule in (greedy, refusing):
        await ready(rig, rule)

    async def unswept() -> Any:
        stored = await rig.get("ModRule", "rule")
        figures = stored["status"]["mutateExisting"]
        return "" if figures.get("lastRun") and not figures["pending"] else figures

    await rig.settle(unswept, within=40.0)
    for place in (rig.namespace, other):
        await rig.create(config_map(place, "new"))
    for name in ("old", "new"):
        assert await labels(rig, name) == {"team": "blue"}
        assert await labels(rig, name, other) == {}
    await rig.create(config_map(other, "refused"))
    assert await rig.refused(config_map(rig.namespace, "refused"))
    figures = (await rig.get("ModRule", "rule"))["status"]["mutateExisting"]
    assert (figures["onExisting"], figures["failed"]) == (True, 0)
    named = f"modrule/{rig.namespace}/rule"
    assert "Completed, 2/2 done" in await desk(rig, "status", named)
    # All objects have the label of the rule already.
    assert "0 objects would be changed" in await desk(rig, "preview", named)


async def test_waiting_requests_of_a_deleted_rule_are_skipped(modrules: Rig) -> None:
    rig = modrules
    await rig.create(config_map(rig.namespace, "a"))
    held = labelling(rig, annotations={ANNOTATION_EXISTING: "true", f"{PREFIX}paused": "true"})
    await ready(rig, held)
    await skipped_without(rig, held)
    assert await labels(rig, "a") == {}


async def test_rules_of_the_system_namespace_apply_to_the_whole_cluster(modrules: Rig) -> None:
    rig = modrules
    await kubectl(rig, "apply", "-f", "-", stdin={**NAMESPACE})
    everywhere = labelling(
        rig, "everywhere", namespace="kubemod-system", targetNamespaceRegex=f"^{rig.namespace}$"
    )
    await ready(rig, everywhere)
    await rig.create(config_map(rig.namespace, "a"))
    assert await labels(rig, "a") == {"team": "blue"}
    ignored = {"metadata": {"labels": {"admission.kubemod.io/ignore": "true"}}}
    await rig.merge("Namespace", rig.namespace, ignored, namespace="")

    async def unheard() -> str:
        await rig.create(config_map(rig.namespace, f"b-{next(NUMBERS)}"))
        newest = max(await rig.items("ConfigMap"), key=_age)
        return "it is still changed" if newest["metadata"].get("labels") else ""

    await rig.settle(unheard, within=15.0)


NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubemod-system"}}
NUMBERS = iter(range(1000))


def _age(obj: Object) -> int:
    return int(obj["metadata"]["resourceVersion"])


async def test_rules_stand_by_while_kubemod_is_at_work(modrules: Rig) -> None:
    rig = modrules
    rule = labelling(rig)
    await ready(rig, rule)
    original = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "kubemod-mutating-webhook-configuration"},
        "webhooks": [],
    }
    await kubectl(rig, "create", "-f", "-", stdin=original)
    stored = await ready(rig, rule, "StandingBy")
    assert "KubeMod is installed in this cluster" in stored["status"]["conditions"][0]["message"]
    await rig.create(config_map(rig.namespace, "theirs"))
    assert await labels(rig, "theirs") == {}
    await kubectl(
        rig, "delete", "mutatingwebhookconfiguration", "kubemod-mutating-webhook-configuration"
    )
    await ready(rig, rule)
    await rig.create(config_map(rig.namespace, "ours"))
    assert await labels(rig, "ours") == {"team": "blue"}
