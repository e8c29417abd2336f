"""The rules in the how-to pages for other languages do what the pages describe."""

import re
from typing import Any

import pytest
import yaml

from reconciler.api.meta import Object
from tests.architecture.conftest import ROOT
from tests.unit.dialects.kubemod.modrules import refusals, request

PAGE = ROOT / "docs/how-to/write-a-modrule.md"
FENCE = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
CLUSTER: list[Object] = [
    {"kind": "Namespace", "metadata": {"name": "shop", "labels": {"cost-center": "47"}}},
    {"kind": "Node", "metadata": {"name": "n1", "labels": {"topology.kubernetes.io/zone": "z"}}},
]


def rules(*names: str) -> list[Object]:
    blocks = "---\n".join(FENCE.findall(PAGE.read_text()))
    known = {rule["metadata"]["name"]: rule for rule in yaml.safe_load_all(blocks)}
    return [known[name] for name in names]


def obj(kind: str, spec: Any, api_version: str = "v1", **meta: Any) -> Object:
    head = {"name": "web", "namespace": "shop", **meta}
    return {"apiVersion": api_version, "kind": kind, "metadata": head, "spec": spec}


def deployment(**meta: Any) -> Object:
    ports = [{"containerPort": 80}, {"containerPort": 443}]
    containers = [
        {"name": "web", "image": "shop/web:2", "ports": ports},
        {"name": "log", "image": "tools/log:1", "securityContext": {"runAsUser": 1}},
    ]
    return obj("Deployment", {"template": {"spec": {"containers": containers}}}, "apps/v1", **meta)


def once(names: tuple[str, ...], given: Object, operation: str = "UPDATE") -> Any:
    """Return the object after the rules, after checking that a second run changes nothing."""
    made = request(rules(*names), given, operation, cluster=CLUSTER).obj
    assert request(rules(*names), dict(made), operation, cluster=CLUSTER).obj == made
    return made


def pod(made: Any) -> Any:
    return made["spec"]["template"]["spec"]


def test_owner_references_set_by_an_operator_are_removed() -> None:
    owned = obj(
        "PersistentVolumeClaim",
        {},
        labels={"search.example.com/type": "store"},
        ownerReferences=[{"kind": "Search", "name": "s"}],
    )
    assert once(("keep-claims",), owned)["metadata"]["ownerReferences"] == []


def test_an_annotation_for_a_mesh_is_set_by_label() -> None:
    made = once(("no-mesh",), deployment(labels={"app": "web"}))
    assert made["metadata"]["annotations"] == {"mesh.example.com/inject": "false"}


def test_a_sidecar_is_added_to_an_annotated_deployment() -> None:
    made = once(("agent",), deployment(annotations={"trace": "true"}))
    assert pod(made)["containers"][2]["args"] == ["--name=web.shop"]


def test_capabilities_are_dropped_and_low_ports_are_raised() -> None:
    made = once(("drop-capabilities", "high-ports"), deployment())
    web, log = pod(made)["containers"]
    assert web["securityContext"] == {"capabilities": {"drop": ["ALL"]}}
    assert log["securityContext"] == {"runAsUser": 1}
    assert [port["containerPort"] for port in web["ports"]] == [8080, 443]


def test_images_are_mirrored_and_pull_secrets_added() -> None:
    made = once(("mirror-credentials", "mirror"), deployment())
    assert pod(made)["containers"][0]["image"] == "mirror.example.com/web:2"
    assert pod(made)["imagePullSecrets"] == [{"name": "mirror"}]


def test_labels_are_copied_from_the_namespace_and_the_node() -> None:
    made = once(("cost-center",), obj("Pod", {}))
    assert made["metadata"]["labels"] == {"cost-center": "47"}
    asking = once(("ask-for-node",), obj("Pod", {}), "CREATE")
    assert asking["metadata"]["annotations"] == {"ref.kubemod.io/inject-node-ref": "true"}
    bound = obj("Pod", {}, annotations={"ref.kubemod.io/nodename": "n1"})
    labels = once(("zone",), bound)["metadata"]["labels"]
    assert labels == {"topology.kubernetes.io/zone": "z"}


@pytest.mark.parametrize(
    ("rule", "given", "said"),
    [
        ("own-addresses", obj("Service", {"externalIPs": ["10.1.2.3"]}), ""),
        (
            "own-addresses",
            obj("Service", {"externalIPs": ["10.1.2.3", "10.9.2.3"]}),
            "addresses outside of 10.1.2.0/24: [10.1.2.3 10.9.2.3]",
        ),
        ("no-root", deployment(), "Deployment web has to say runAsNonRoot"),
    ],
)
def test_reject_rules_refuse_with_their_message(rule: str, given: Object, said: str) -> None:
    wanted = [f'shop/{rule}: "{said}"'] if said else []
    assert refusals(request(rules(rule), given)) == wanted


def test_a_config_map_without_a_team_label_gets_one() -> None:
    made = once(("team",), obj("ConfigMap", {}))
    assert made["metadata"]["labels"] == {"team": "blue"}
