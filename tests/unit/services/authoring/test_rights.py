"""The rights that a policy needs, as found by access reviews."""

from typing import Any

import pytest

from reconciler.dialects.registry import compile_policy
from reconciler.memory.kinds import MemoryKinds
from reconciler.services.authoring.rights import Lack, RightsCheck
from tests.unit.rights import Account

EVERYTHING = {"get", "list", "update", "patch"}


def policy(target: dict[str, Any], *, namespace: str = "", **rule: Any) -> dict[str, Any]:
    match = rule.pop("match", {"any": [{"resources": {"kinds": ["*"]}}]})
    meta = {"name": "p"} | ({"namespace": namespace} if namespace else {})
    mutate = {"targets": [target], "patchStrategicMerge": {"metadata": {"labels": {"a": "b"}}}}
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "Policy" if namespace else "ClusterPolicy",
        "metadata": meta,
        "spec": {"rules": [{"name": "r", "match": match, "mutate": {**mutate, **rule}}]},
    }


async def lack(obj: dict[str, Any], account: Account) -> Lack:
    return await RightsCheck(kinds=MemoryKinds(), access=account).check(compile_policy(obj))


def secret(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", **fields}


def on_existing(**resources: Any) -> dict[str, Any]:
    obj = policy({}, match={"any": [{"resources": {"kinds": ["Secret"], **resources}}]})
    del obj["spec"]["rules"][0]["mutate"]["targets"]
    obj["metadata"]["annotations"] = {"kube-retrofit.dev/existing": "true"}
    return obj


NODE = {"apiVersion": "v1", "kind": "Node/status"}
IN_A_AND_B = {
    "any": [{"resources": {"kinds": ["*"], "namespaces": [name]}} for name in ("a", "b")]
}
NAMESPACE_A = {"any": [{"resources": {"kinds": ["Namespace"], "names": ["a"]}}]}
VARIABLE = "{{ request.object.metadata.namespace }}"


@pytest.mark.parametrize(
    ("obj", "asked"),
    [
        pytest.param(
            policy(secret(namespace="a", name="s")),
            ["get secrets in namespace a named s", "update secrets in namespace a named s"],
            id="exactly one",
        ),
        pytest.param(
            policy(secret(name="s")),
            ["get secrets named s", "list secrets", "update secrets named s"],
            id="in all namespaces",
        ),
        pytest.param(
            on_existing(),
            ["get secrets", "list secrets", "update secrets"],
            id="what exists",
        ),
        pytest.param(
            on_existing(namespaces=["a"]),
            [f"{verb} secrets in namespace a" for verb in ("get", "list", "update")],
            id="what exists in a namespace",
        ),
        pytest.param(
            on_existing(operations=["CREATE"]),
            ["get secrets", "list secrets"],
            id="what is created",
        ),
        pytest.param(
            policy(secret(namespace="a", name="s-*")),
            [f"{verb} secrets in namespace a" for verb in ("get", "list", "update")],
            id="a pattern",
        ),
        pytest.param(
            policy(secret(namespace="team-*", name="s")),
            ["get secrets named s", "list secrets", "update secrets named s"],
            id="a pattern of namespaces",
        ),
        pytest.param(
            policy(secret(namespace="a", name="{{ request.name }}")),
            ["get secrets in namespace a", "update secrets in namespace a"],
            id="a name that only the trigger tells",
        ),
        pytest.param(
            policy(secret(namespace="a", name="{{ request.name }}-*")),
            [f"{verb} secrets in namespace a" for verb in ("get", "list", "update")],
            id="a pattern with a variable",
        ),
        pytest.param(
            policy(secret(namespace=VARIABLE, name="s")),
            ["get secrets named s", "update secrets named s"],
            id="a namespace that only the trigger tells",
        ),
        pytest.param(
            policy(secret(namespace=VARIABLE), match=IN_A_AND_B),
            [
                f"{verb} secrets in namespace {place}"
                for verb in ("get", "list", "update")
                for place in ("a", "b")
            ],
            id="the namespace of triggers whose namespaces are listed",
        ),
        *(
            pytest.param(
                policy(secret(namespace="{{ " + expression + " }}", name="s"), match=IN_A_AND_B),
                ["get secrets named s", "update secrets named s"],
                id=f"a namespace that may be another one than the trigger's: {expression}",
            )
            for expression in (
                "'kube-public'",
                "request.namespace && 'kube-public'",
                "request.object.metadata.namespace || 'kube-public'",
                "[request.namespace, 'kube-public'][1]",
            )
        ),
        pytest.param(
            policy(secret(namespace="{{ request.name }}", name="s"), match=NAMESPACE_A),
            [
                "get namespaces",
                "get secrets in namespace a named s",
                "update secrets in namespace a named s",
            ],
            id="a namespace that is the trigger itself",
        ),
        pytest.param(
            policy(secret(name="s"), namespace="shop"),
            ["get secrets in namespace shop named s", "update secrets in namespace shop named s"],
            id="in the namespace of a Policy",
        ),
        pytest.param(
            policy({**NODE, "name": "n"}),
            ["get nodes/status named n", "update nodes/status named n"],
            id="a subresource",
        ),
        pytest.param(
            policy({**NODE, "selector": {"matchLabels": {"a": "b"}}}),
            ["get nodes/status", "list nodes", "update nodes/status"],
            id="a subresource of what a selector selects",
        ),
        pytest.param(
            policy({**NODE, "name": "n", "selector": {"matchLabels": {"a": "b"}}}),
            ["get nodes named n", "get nodes/status named n", "update nodes/status named n"],
            id="a subresource of one that a selector narrows",
        ),
        pytest.param(
            policy({"apiVersion": "*", "kind": "Secret", "namespace": "a", "name": "s"}),
            ["get secrets in namespace a named s", "update secrets in namespace a named s"],
            id="any version",
        ),
        pytest.param(
            policy({"apiVersion": "v1", "kind": "{{ request.kind.kind }}"}), [], id="kind"
        ),
        pytest.param(policy({"apiVersion": "v1", "kind": "*"}), [], id="all kinds"),
        pytest.param(
            policy({"apiVersion": "{{ request.kind.version }}", "kind": "Secret"}),
            [],
            id="version",
        ),
        pytest.param(
            policy(
                secret(namespace="a", name="s"),
                patchStrategicMerge=None,
                foreach=[{"list": "target.x", "patchStrategicMerge": {"data": {"a": "b"}}}],
            ),
            ["get secrets in namespace a named s", "update secrets in namespace a named s"],
            id="foreach",
        ),
    ],
)
async def test_access_reviews_check_exactly_the_rights_that_a_policy_needs(
    obj: dict[str, Any], asked: list[str]
) -> None:
    account = Account()
    assert await lack(obj, account) == Lack()
    assert sorted(account.asked) == sorted(asked)


async def test_a_right_that_two_rules_need_is_checked_once() -> None:
    obj = policy(secret(namespace="a", name="s"))
    obj["spec"]["rules"].append({**obj["spec"]["rules"][0], "name": "again"})
    account = Account()
    await lack(obj, account)
    assert len(account.asked) == 2


async def test_patch_is_checked_where_the_right_to_update_is_missing() -> None:
    account = Account(lacks={"update secrets"})
    assert await lack(policy(secret(namespace="a", name="s")), account) == Lack()
    assert account.asked[-1] == "patch secrets in namespace a named s"


async def test_every_target_that_lacks_rights_is_reported() -> None:
    account = Account(lacks={f"{verb} secrets" for verb in EVERYTHING})
    obj = policy(secret(name="s"))
    obj["spec"]["rules"][0]["mutate"]["targets"] *= 2
    found = await lack(obj, account)
    assert [(need.location[-10:], need.options[0].verb) for need in found.targets] == [
        (f"targets[{index}]", verb) for index in (0, 1) for verb in ("list", "get", "update")
    ]


@pytest.mark.parametrize(
    ("changes", "asked"),
    [
        ({}, ["get pods"]),
        ({"mutateExistingOnPolicyUpdate": True}, ["get pods", "list pods"]),
        ({"namespace": "shop"}, ["get pods in namespace shop"]),
    ],
)
async def test_the_rights_to_read_triggers_are_checked(
    changes: dict[str, Any], asked: list[str]
) -> None:
    match = {"any": [{"resources": {"kinds": ["Pod", "Pod/status", "Deploy*"]}}]}
    account = Account(lacks=set(asked))
    target = {"apiVersion": "v1", "kind": "{{ request.object.kind }}"}
    found = await lack(policy(target, match=match, **changes), account)
    assert account.asked == asked
    assert [str(need.options[0]) for need in found.triggers] == asked


async def test_unserved_kinds_of_targets_and_triggers_are_reported() -> None:
    match = {"any": [{"resources": {"kinds": ["example.com/v1/Gadget", "Widget"]}}]}
    found = await lack(policy({"apiVersion": "v2", "kind": "Secret"}, match=match), Account())
    assert found.unserved_targets == (("spec.rules[0].mutate.targets[0]", "v2 Secret"),)
    place = "spec.rules[0].match"
    assert found.unserved_triggers == ((place, "example.com/v1 Gadget"), (place, "Widget"))


def reading(reference: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    """Return a kinitiras policy whose template takes its value from a reference."""
    template = {"type": "labels", "operation": "add", "path": "a", "valueRef": reference}
    meta = {"name": "p"} | ({"namespace": namespace} if namespace else {})
    return {
        "apiVersion": "policy.kcloudlabs.io/v1alpha1",
        "kind": "OverridePolicy" if namespace else "ClusterOverridePolicy",
        "metadata": meta,
        "spec": {"overrideRules": [{"overriders": {"template": template}}]},
    }


@pytest.mark.parametrize(
    ("reference", "namespace", "lacking"),
    [
        (
            {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "a", "name": "b"},
            "",
            ["get deployments.apps in namespace a named b"],
        ),
        (
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "labelSelector": {"matchLabels": {"a": "b"}},
            },
            "shop",
            ["list configmaps in namespace shop"],
        ),
        (
            {"apiVersion": "v1", "kind": "Node", "name": "{{metadata.name}}"},
            "",
            ["get nodes"],
        ),
        ({"apiVersion": "none.example/v1", "kind": "Nothing", "name": "a"}, "", []),
    ],
)
async def test_rights_to_read_referenced_objects_at_admission_are_checked(
    reference, namespace, lacking
) -> None:
    compiled = compile_policy(reading({"from": "k8s", "path": "a.b", "k8s": reference}, namespace))
    account = Account({"get", "list"})
    found = await RightsCheck(kinds=MemoryKinds(), access=account).unread(compiled)
    assert account.asked == lacking
    assert len(found) == len(lacking)


async def test_no_rights_are_checked_for_an_owner_whose_kind_is_unknown() -> None:
    compiled = compile_policy(reading({"from": "owner", "path": "a.b"}))
    check = RightsCheck(kinds=MemoryKinds(), access=Account({"get"}))
    assert not await check.unread(compiled)
