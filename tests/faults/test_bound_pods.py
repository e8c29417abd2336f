"""Pods bound while the controller is down get the node's name and the fields derived from it."""

import contextlib
from collections.abc import AsyncIterator

import pytest

from devcluster.install import NAMESPACE
from devcluster.programs import CONTROLLER
from reconciler.api.meta import Object
from reconciler.errors import ClusterError
from tests.faults.rig import Rig, pod
from tests.integration.test_modrules import install, kubectl, ready
from tests.unit.dialects.kubemod.modrules import POD, modrule

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(200)]

ASKS = {"ref.kubemod.io/inject-node-ref": "true"}
RBAC = "rbac.authorization.k8s.io"


@pytest.fixture
async def nodes(rig: Rig) -> AsyncIterator[Rig]:
    """The rig of a cluster that serves ModRules and whose admission server may read Nodes."""
    await install(rig, "manifests/dialects/kubemod")
    await rig.learn("v1", "Node")
    name = f"nodes:{rig.namespace}"
    labels = {"rbac.kyverno.io/aggregate-to-admission-controller": "true"}
    reads = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}
    role: Object = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name, "labels": labels},
        "rules": [reads],
    }
    account = f"system:serviceaccount:{NAMESPACE}:kyverno-admission-controller"
    await rig.create(role)

    async def denied() -> str:
        with contextlib.suppress(ClusterError):  # kubectl answers "no" with exit code 1.
            await kubectl(rig, "auth", "can-i", "get", "nodes", f"--as={account}")
            return ""
        return "the program may not get Nodes yet"

    await rig.settle(denied, within=20.0)
    yield rig
    await kubectl(rig, "delete", "modrules", "--all", "-n", rig.namespace)
    await kubectl(rig, "delete", f"clusterrole/{name}", f"node/{rig.namespace}")


async def test_a_pod_bound_while_the_controller_is_down_gets_its_zone(nodes: Rig) -> None:
    rig, place = nodes, nodes.namespace
    labels = {"zone": "z-2"}
    await rig.create(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": place, "labels": labels}}
    )
    zone = {"op": "add", "path": "/metadata/labels/zone"}
    template = "{{ .Target.syntheticRefs.node.metadata.labels.zone }}"
    rule = modrule(
        type="Patch",
        match=[POD, {"select": "$.syntheticRefs.node.metadata.labels.zone"}],
        patch=[{**zone, "value": template}],
        namespace=place,
        name="zone",
    )
    await ready(rig, rule)
    await rig.kill(CONTROLLER)
    for name, asks in (("asks", ASKS), ("silent", {})):
        made = pod(place, name)
        made["metadata"]["annotations"] = asks
        await rig.create(made)
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name},
            "target": {"kind": "Node", "name": place},
        }
        path = f"/api/v1/namespaces/{place}/pods/{name}/binding"
        await kubectl(rig, "create", "--raw", path, "-f", "-", stdin=binding)
    assert "labels" not in (await rig.get("Pod", "asks"))["metadata"]
    await rig.restart(CONTROLLER)

    async def unmarked() -> str:
        labels = (await rig.get("Pod", "asks"))["metadata"].get("labels")
        return "" if labels == {"zone": "z-2"} else f"its labels are {labels}"

    await rig.settle(unmarked, within=40.0)
    annotations = (await rig.get("Pod", "asks"))["metadata"]["annotations"]
    assert annotations == {**ASKS, "ref.kubemod.io/nodename": place}
    assert "annotations" not in (await rig.get("Pod", "silent"))["metadata"]
    # Each binding has one request; the annotation and the label that needs it are one write.
    await rig.finish(2, f"{place}/zone")
    assert await rig.calls("patch", "pods", code=200, user=None) == 1
