"""The webhooks skip a sweep's writes only where no other rule may match them."""

from collections.abc import Awaitable, Callable

import pytest

from reconciler.api.meta import ANNOTATION_EXISTING, Object
from reconciler.services.rollout.own_sweeps import lone_rules
from reconciler.services.rollout.webhook_config import (
    MUTATING_CONFIGURATION,
    RESOURCE_CONFIGURATION,
    configurations,
)
from tests.unit.admission.conftest import Make
from tests.unit.admission.test_registration import OWN, resolve, settings
from tests.unit.dialects.kubemod.modrules import modrule

SWEPT = {ANNOTATION_EXISTING: "true"}
CONDITION = (
    f'!(request.userInfo.username in ["{OWN}"] && has(request.options.fieldManager)'
    ' && request.options.fieldManager == "kube-retrofit-existing")'
)
EDIT = {"op": "add", "path": "/metadata/labels/team", "value": "blue"}


def rule(name: str = "rule", namespace: str = "shop", kind: str = "ConfigMap", **fields) -> Object:
    match = [{"select": "$.kind", "matchValue": kind}]
    given = {"type": "Patch", "match": match, "patch": [EDIT], "annotations": SWEPT}
    return modrule(name=name, namespace=namespace, **{**given, **fields})


@pytest.fixture
def spared(make: type[Make]) -> Callable[..., Awaitable[list[str]]]:
    """Return the exempted resources and namespaces, as ``resource namespace``."""

    async def build(*policies: Object) -> list[str]:
        compiled = make.index(*policies).policies()
        kinds = await resolve(compiled)
        found = lone_rules(compiled, kinds)
        written = configurations(compiled, kinds, settings())
        conditions = [
            item["expression"]
            for ref in (RESOURCE_CONFIGURATION, MUTATING_CONFIGURATION)
            for webhook in written[ref]["webhooks"]
            for item in webhook.get("matchConditions", ())
            if item["name"] == "kube-retrofit-own-sweeps"
        ]
        assert set(conditions) == ({CONDITION} if found else set())
        return sorted(f"{item.plural} {item.namespace}".strip() for item in found)

    return build


async def test_writes_of_a_lone_swept_rule_are_exempted(spared):
    assert await spared(rule()) == ["configmaps shop"]


async def test_writes_of_a_rule_without_a_sweep_are_not_exempted(spared):
    assert await spared(rule(annotations={})) == []


async def test_writes_that_another_rule_may_match_are_not_exempted(spared, make):
    assert await spared(rule("one"), rule("two")) == []
    assert await spared(rule(), rule("other", annotations={})) == []
    # A rule of any language that records or refuses the write counts.
    assert await spared(rule(), make.policy()) == []
    assert await spared(rule(), rule("no", type="Reject", patch=None, annotations={})) == []
    assert await spared(rule(), make.mutating(resources={"kinds": ["*"]})) == []


async def test_rules_of_other_kinds_and_namespaces_do_not_prevent_the_exemption(spared, make):
    elsewhere = make.mutating(resources={"kinds": ["ConfigMap"], "namespaces": ["bar"]})
    assert await spared(rule(), elsewhere) == ["configmaps shop"]
    assert await spared(rule(), rule("pods", kind="Pod")) == ["configmaps shop", "pods shop"]
    assert await spared(rule(), rule(namespace="foo")) == ["configmaps foo", "configmaps shop"]
    assert await spared(rule(), make.policy(resources={"kinds": ["Secret"]})) == [
        "configmaps shop"
    ]


async def test_writes_of_a_cluster_wide_rule_are_exempted_in_all_namespaces(spared, make):
    policy = make.mutating(name="wide")
    policy["metadata"]["annotations"] = SWEPT
    assert await spared(policy) == ["configmaps"]
    assert await spared(policy, rule(annotations={})) == []


async def test_writes_of_a_policy_of_a_namespace_are_exempted_only_there(spared, make):
    policy = make.mutating(namespace="shop")
    policy["metadata"]["annotations"] = SWEPT
    assert await spared(policy) == ["configmaps shop"]
    assert await spared(policy, rule(namespace="bar")) == ["configmaps bar", "configmaps shop"]
    assert await spared(policy, make.policy("there", namespace="bar")) == ["configmaps shop"]
    assert await spared(policy, make.policy("there", namespace="shop")) == []
    assert await spared(policy, make.mutating("everywhere")) == []


async def test_writes_of_a_policy_with_an_account_are_not_exempted(spared):
    account = {**SWEPT, "kube-retrofit.dev/service-account": "bot"}
    assert await spared(rule(annotations=account)) == []
