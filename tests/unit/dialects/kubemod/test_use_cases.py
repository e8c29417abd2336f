"""Use cases of ModRules, each run on an object that it matches and again on the result."""

from typing import Any

import pytest
import yaml

from reconciler.api.meta import Object
from tests.unit.dialects.kubemod.modrules import modrule, refusals, request

WORKLOAD = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop, namespace: team-a, labels: {app: shop}, annotations: {trace: "true"}}
spec:
  template:
    spec:
      containers:
      - {name: web, image: "shop/web:2.1.7", ports: [{containerPort: 80}, {containerPort: 443}]}
      - {name: log, image: "tools/log:1", securityContext: {}}
"""
CLAIM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: data-0
  namespace: team-a
  labels: {"search.example.com/type": store}
  ownerReferences: [{kind: Search, name: s}]
"""
POD = """
apiVersion: v1
kind: Pod
metadata:
  name: p
  namespace: team-a
  labels: {app: shop}
  annotations: {ref.kubemod.io/nodename: n1}
spec: {containers: [{name: web, image: "shop/web:2.1.7"}]}
"""
CLUSTER: list[Object] = [
    {
        "kind": "Namespace",
        "metadata": {"name": "team-a", "labels": {"colour": "blue", "taste": "mint"}},
    },
    {"kind": "Node", "metadata": {"name": "n1", "labels": {"topology.kubernetes.io/zone": "z-2"}}},
]

HARDEN = """
type: Patch
match:
- {select: $.kind, matchValue: Deployment}
- {select: $.metadata.labels.app, matchValue: shop}
- {select: "$.spec.template.spec.containers[*].image", matchRegex: 'shop/web:2\\.1\\..*'}
- {select: $.spec.template.spec.securityContext.runAsNonRoot == true, negate: true}
patch:
- {op: add, path: /metadata/annotations/hardened, value: by-rule}
- op: add
  path: /spec/template/spec/securityContext
  value: |-
    runAsUser: 101
    runAsNonRoot: true
"""
ORPHAN = """
type: Patch
match:
- {select: $.kind, matchValue: PersistentVolumeClaim}
- {select: '$.metadata.labels["search.example.com/type"]', matchValue: store}
patch:
- {op: remove, path: /metadata/ownerReferences/0}
"""
NO_MESH = """
type: Patch
match:
- {select: $.kind, matchValue: Deployment}
- {select: '$.metadata.annotations["mesh.example.com/inject"]', negate: true}
patch:
- {op: add, path: /metadata/annotations/mesh.example.com~1inject, value: '"false"'}
"""
SIDECAR = """
type: Patch
match:
- {select: $.kind, matchValue: Deployment}
- {select: $.metadata.annotations.trace, matchValue: "true"}
- {select: "$.spec.template.spec.containers[*].name", matchValue: agent, negate: true}
patch:
- op: add
  path: /spec/template/spec/containers/-1
  value: |-
    name: agent
    args: ["--host={{ .Target.metadata.name }}.{{ .Namespace }}:14250"]
    env:
    - {name: HOST, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
"""
PORTS = """
type: Patch
match:
- {select: $.kind, matchValue: Deployment}
patch:
- op: replace
  select: '$.spec.template.spec.containers[? @.image =~ "shop"].ports[? @.containerPort == 80]'
  path: /spec/template/spec/containers/#0/ports/#1/containerPort
  value: "8080"
"""
EMPTY_CONTEXT = """
type: Patch
match:
- {select: $.kind, matchValue: Deployment}
patch:
- op: add
  select: "$.spec.template.spec.containers[? isEmpty(@.securityContext)]"
  path: /spec/template/spec/containers/#0/securityContext
  value: "capabilities: {drop: [ALL]}"
"""
TASTE = """
type: Patch
targetNamespaceRegex: ".*"
match:
- {select: $.kind, matchValue: Pod}
- {select: $.syntheticRefs.namespace.metadata.labels.colour, matchValue: blue}
- {select: $.syntheticRefs.namespace.metadata.labels.taste}
patch:
- op: add
  path: /metadata/labels/taste
  value: '{{ .Target.syntheticRefs.namespace.metadata.labels.taste }}'
"""
ZONE = """
type: Patch
targetNamespaceRegex: ".*"
admissionOperations: [UPDATE]
match:
- {select: $.kind, matchValue: Pod}
- {select: $.syntheticRefs.node.metadata.labels}
patch:
- op: add
  path: /metadata/labels/topology.kubernetes.io~1zone
  value: '"{{ index .Target.syntheticRefs.node.metadata.labels "topology.kubernetes.io/zone" }}"'
"""
ASK_FOR_NODE = """
type: Patch
targetNamespaceRegex: ".*"
match:
- {select: $.kind, matchValue: Pod}
- select: '$.metadata.annotations["ref.kubemod.io/inject-node-ref"]'
  matchValue: "true"
  negate: true
patch:
- {op: add, path: /metadata/annotations/ref.kubemod.io~1inject-node-ref, value: '"true"'}
"""
EXTERNAL_IPS = """
type: Reject
rejectMessage: "not allowed: {{ .Target.spec.externalIPs }}"
match:
- {select: $.kind, matchValue: Service}
- {select: length($.spec.externalIPs) > 0}
- {select: "$.spec.externalIPs[*]", matchFor: All, matchRegex: '^10\\.1\\.2\\.', negate: true}
"""
ROOT = """
type: Reject
match:
- {select: $.kind, matchValues: [Deployment, StatefulSet]}
- {select: $.spec.template.spec.securityContext.runAsNonRoot == true, negate: true}
"""


def containers(obj: Any) -> Any:
    return obj["spec"]["template"]["spec"]["containers"]


@pytest.mark.parametrize(
    ("rule", "given", "picked", "wanted"),
    [
        (
            HARDEN,
            WORKLOAD,
            lambda obj: (
                obj["metadata"]["annotations"]["hardened"],
                obj["spec"]["template"]["spec"]["securityContext"],
            ),
            ("by-rule", {"runAsUser": 101, "runAsNonRoot": True}),
        ),
        (ORPHAN, CLAIM, lambda obj: obj["metadata"]["ownerReferences"], []),
        (
            NO_MESH,
            WORKLOAD,
            lambda obj: obj["metadata"]["annotations"]["mesh.example.com/inject"],
            "false",
        ),
        (
            SIDECAR,
            WORKLOAD,
            lambda obj: containers(obj)[2:],
            [
                {
                    "name": "agent",
                    "args": ["--host=shop.team-a:14250"],
                    "env": [
                        {"name": "HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}
                    ],
                }
            ],
        ),
        (
            PORTS,
            WORKLOAD,
            lambda obj: containers(obj)[0]["ports"],
            [{"containerPort": 8080}, {"containerPort": 443}],
        ),
        (
            EMPTY_CONTEXT,
            WORKLOAD,
            lambda obj: [item["securityContext"] for item in containers(obj)],
            [{"capabilities": {"drop": ["ALL"]}}] * 2,
        ),
        (TASTE, POD, lambda obj: obj["metadata"]["labels"]["taste"], "mint"),
        (ZONE, POD, lambda obj: obj["metadata"]["labels"]["topology.kubernetes.io/zone"], "z-2"),
        (
            ASK_FOR_NODE,
            POD,
            lambda obj: obj["metadata"]["annotations"]["ref.kubemod.io/inject-node-ref"],
            "true",
        ),
    ],
    ids=["harden", "orphan", "mesh", "sidecar", "ports", "empty", "taste", "zone", "node"],
)
def test_a_rule_changes_the_object_once_and_a_second_pass_changes_nothing(
    rule: str, given: str, picked: Any, wanted: Any
) -> None:
    # `targetNamespaceRegex` is honoured only in this namespace.
    home = "kubemod-system" if "targetNamespaceRegex" in rule else "team-a"
    rules = [modrule(rule, namespace=home)]
    chain = request(rules, yaml.safe_load(given), "UPDATE", cluster=CLUSTER)
    assert picked(chain.obj) == wanted
    assert request(rules, dict(chain.obj), "UPDATE", cluster=CLUSTER).obj == chain.obj


def make_service(*addresses: str) -> Object:
    meta = {"name": "s", "namespace": "team-a"}
    spec = {"externalIPs": list(addresses)} if addresses else {}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}


def test_reject_rules_refuse_external_addresses_and_root_containers() -> None:
    rules = [
        modrule(EXTERNAL_IPS, name="addresses", namespace="team-a"),
        modrule(ROOT, name="no-root", namespace="team-a"),
    ]
    assert refusals(request(rules, make_service())) == []
    assert refusals(request(rules, make_service("10.1.2.3"))) == []
    assert refusals(request(rules, make_service("10.1.2.3", "10.9.2.3"))) == [
        'team-a/addresses: "not allowed: [10.1.2.3 10.9.2.3]"'
    ]
    workload = yaml.safe_load(WORKLOAD)
    assert refusals(request(rules, workload)) == ["team-a/no-root"]
    assert refusals(request([modrule(HARDEN, namespace="team-a"), *rules], workload)) == []
