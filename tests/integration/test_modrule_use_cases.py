"""The use cases of ModRules, all applied together, on objects applied with kubectl."""

from typing import Any

import pytest
import yaml

from reconciler.api.meta import Object
from reconciler.errors import ClusterError
from tests.faults.rig import Rig, deployment, pod
from tests.integration.test_modrules import NAMESPACE, kubectl, modrules, ready
from tests.unit.dialects.kubemod.modrules import modrule
from tests.unit.dialects.kubemod.test_use_cases import (
    ASK_FOR_NODE,
    EMPTY_CONTEXT,
    EXTERNAL_IPS,
    HARDEN,
    NO_MESH,
    ORPHAN,
    PORTS,
    ROOT,
    SIDECAR,
    TASTE,
)

pytestmark = pytest.mark.cluster

__all__ = ["modrules"]

OWN = {
    "addresses": EXTERNAL_IPS,
    "context": EMPTY_CONTEXT,
    "harden": HARDEN,
    "mesh": NO_MESH,
    "no-root": ROOT,
    "orphan": ORPHAN,
    "ports": PORTS,
    "sidecar": SIDECAR.replace("name: agent", "name: agent\n    image: tools/agent:1"),
}
EVERYWHERE = {"taste": TASTE, "node": ASK_FOR_NODE}
MIRROR = """
type: Patch
executionTier: 1
match: [{select: $.kind, matchValue: Deployment}]
patch:
- op: replace
  select: '$.spec.template.spec.containers[? @.image =~ "^shop/.+"].image'
  path: /spec/template/spec/containers/#0/image
  value: '{{ regexReplaceAll "(.+)/(.*)" .SelectedItem "mirror.example.com/${2}" }}'
"""
PULL_SECRET = """
type: Patch
executionTier: 2
match:
- {select: $.kind, matchValue: Deployment}
- {select: "$.spec.template.spec.containers[*].image", matchRegex: ^mirror\\.}
- {select: $.spec.template.spec.imagePullSecrets, negate: true}
patch: [{op: add, path: /spec/template/spec/imagePullSecrets/-1, value: "name: mirror"}]
"""
"""A rule of the tier after that of ``MIRROR``, which matches the image that it sets."""


def rules(place: str) -> list[Object]:
    own = {**OWN, "mirror": MIRROR, "secret": PULL_SECRET}
    made = [modrule(text, name=name, namespace=place) for name, text in own.items()]
    for name, text in EVERYWHERE.items():
        spec = {**yaml.safe_load(text), "targetNamespaceRegex": f"^{place}$"}
        made.append(modrule(spec, name=f"{place}-{name}", namespace="kubemod-system"))
    return made


def workload(place: str, name: str, app: str) -> Object:
    made = deployment(place, name)
    ports = [{"containerPort": 80}, {"containerPort": 443}]
    made["spec"]["template"]["spec"]["containers"] = [
        {"name": "web", "image": "shop/web:2.1.7", "ports": ports},
        {"name": "log", "image": "tools/log:1", "securityContext": {}},
    ]
    made["metadata"] |= {"labels": {"app": app}, "annotations": {"trace": "true"}}
    return made


def claim(place: str, uid: str) -> Object:
    owner = {"apiVersion": "v1", "kind": "Namespace", "name": place, "uid": uid}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "data-0",
            "namespace": place,
            "labels": {"search.example.com/type": "store"},
            "ownerReferences": [owner],
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def service(place: str, *addresses: str) -> Object:
    meta = {"name": f"s-{len(addresses)}", "namespace": place}
    spec = {"ports": [{"port": 80}], "externalIPs": list(addresses)}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}


async def test_rules_for_every_purpose_work_together(modrules: Rig) -> None:
    rig, place = modrules, modrules.namespace
    await rig.learn("v1", "PersistentVolumeClaim")
    await kubectl(rig, "apply", "-f", "-", stdin={**NAMESPACE})
    taste = {"metadata": {"labels": {"colour": "blue", "taste": "mint"}}}
    await rig.merge("Namespace", place, taste, namespace="")
    made = rules(place)
    for rule in made:
        await kubectl(rig, "apply", "-f", "-", stdin=rule)
    for rule in made:
        await ready(rig, rule)

    web = workload(place, "web", "shop")
    await kubectl(rig, "apply", "-f", "-", stdin=web)
    stored = await rig.get("Deployment", "web")
    assert_changed(stored, place)
    # Applying the object again has the same result.
    await kubectl(rig, "apply", "-f", "-", stdin=web)
    again = await rig.get("Deployment", "web")
    assert again["spec"] == stored["spec"]

    with pytest.raises(ClusterError, match=f"following ModRule\\(s\\): {place}/no-root"):
        await kubectl(rig, "apply", "-f", "-", stdin=workload(place, "root", "other"))
    await kubectl(rig, "apply", "-f", "-", stdin=service(place, "10.1.2.3"))
    with pytest.raises(ClusterError, match=r"not allowed: \[10\.1\.2\.3 10\.9\.2\.3\]"):
        await kubectl(rig, "apply", "-f", "-", stdin=service(place, "10.1.2.3", "10.9.2.3"))

    uid = (await rig.get("Namespace", place, ""))["metadata"]["uid"]
    await kubectl(rig, "apply", "-f", "-", stdin=claim(place, uid))
    orphan = await rig.get("PersistentVolumeClaim", "data-0")
    assert "ownerReferences" not in orphan["metadata"]

    await kubectl(rig, "apply", "-f", "-", stdin=pod(place, "p"))
    # Twice, because after a server-side apply the rules act on the merged object.
    for _ in range(2):
        await kubectl(rig, "apply", "--server-side", "-f", "-", stdin=pod(place, "q"))
        assert (await rig.get("Pod", "q"))["metadata"]["labels"] == {"taste": "mint"}
    meta = (await rig.get("Pod", "p"))["metadata"]
    assert meta["labels"] == {"taste": "mint"}
    assert meta["annotations"]["ref.kubemod.io/inject-node-ref"] == "true"


def assert_changed(stored: Any, place: str) -> None:
    annotations, spec = stored["metadata"]["annotations"], stored["spec"]["template"]["spec"]
    assert annotations["hardened"] == "by-rule"
    assert annotations["mesh.example.com/inject"] == "false"
    assert spec["securityContext"] == {"runAsUser": 101, "runAsNonRoot": True}
    web, log, agent = spec["containers"]
    assert (web["image"], log["image"]) == ("mirror.example.com/web:2.1.7", "tools/log:1")
    assert [port["containerPort"] for port in web["ports"]] == [8080, 443]
    assert agent["args"] == [f"--host=web.{place}:14250"]
    dropped = {"capabilities": {"drop": ["ALL"]}}
    assert [item.get("securityContext") for item in (web, log)] == [dropped] * 2
    assert spec["imagePullSecrets"] == [{"name": "mirror"}]
