"""The mutating webhooks that are registered for rules without targets."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from reconciler.api.meta import Object
from reconciler.services.catalog.policy_store import PolicyStore
from reconciler.services.rollout.webhook_config import (
    MUTATING_CONFIGURATION,
    POLICY_CONFIGURATION,
    RESOURCE_CONFIGURATION,
    configurations,
    silent,
)
from tests.unit.admission.conftest import Make
from tests.unit.admission.test_registration import NEVER, narrowed, resolve, settings
from tests.unit.dialects.kubemod.modrules import patching

MATCHED = (RESOURCE_CONFIGURATION, MUTATING_CONFIGURATION)
APPEND = '[{"op": "add", "path": "/data/list/-", "value": "x"}]'


@pytest.fixture
def webhooks(make: type[Make]) -> Callable[..., Awaitable[dict[str, Object]]]:
    async def build(*policies):
        compiled = make.index(*policies).policies()
        found = configurations(compiled, await resolve(compiled), settings())
        return {item["name"]: item for item in found[MUTATING_CONFIGURATION]["webhooks"]}

    return build


def patched(operations):
    return {"mutate": {"patchesJson6902": operations}}


async def test_a_rule_without_targets_is_registered_as_a_mutating_webhook(webhooks, make):
    policy = make.mutating()
    (hook,) = (await webhooks(policy)).values()
    assert hook["name"] == "mutate-fail.retrofit.kyverno.io"
    digest = make.index(policy).digest
    assert hook["clientConfig"]["service"]["path"] == f"/at/{digest}/mutate/fail"
    assert hook["rules"] == [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": ["configmaps"],
            "operations": ["CREATE", "UPDATE"],
            "scope": "Namespaced",
        }
    ]
    assert (hook["failurePolicy"], hook["matchPolicy"]) == ("Fail", "Equivalent")
    assert (hook["sideEffects"], hook["reinvocationPolicy"]) == ("None", "IfNeeded")
    (never,) = hook["namespaceSelector"]["matchExpressions"]
    assert never["values"] == NEVER


@pytest.mark.parametrize(
    "spec", [{"webhookConfiguration": {"failurePolicy": "Fail"}}, {"failurePolicy": "Fail"}, {}]
)
async def test_forced_ignore_applies_to_every_webhook_for_objects(make, spec):
    store = PolicyStore(forces_ignore=True)
    condition = {"matchConditions": [{"name": "a", "expression": "true"}]}
    for item in (
        make.mutating("changes", spec=spec),
        make.policy("records", uid="2", spec=spec),
        make.mutating("picky", spec={"webhookConfiguration": condition}),
        make.mutating("lax", spec={"failurePolicy": "Ignore"}),
    ):
        store.apply(item)
    compiled = store.policies()
    forced = replace(settings(), forces_ignore=True)
    found = configurations(compiled, await resolve(compiled), forced)
    webhooks = [item for ref in MATCHED for item in found[ref]["webhooks"]]
    assert {item["failurePolicy"] for item in webhooks} == {"Ignore"}
    paths = [item["clientConfig"]["service"]["path"].split("/", 3)[3] for item in webhooks]
    assert paths == ["validate/all", "mutate/all", "mutate/all/picky"]
    assert {item["failurePolicy"] for item in found[POLICY_CONFIGURATION]["webhooks"]} == {"Fail"}
    warned = {
        item.key for item in compiled if "--force-failure-policy-ignore" in str(item.warnings)
    }
    assert warned == {"changes", "records", "picky"}


async def test_each_kind_of_rule_has_its_own_configuration(make):
    compiled = make.index(make.mutating(), make.policy(resources={"kinds": ["Secret"]})).policies()
    found = configurations(compiled, await resolve(compiled), settings())
    asked = {
        ref: [rule["resources"] for hook in found[ref]["webhooks"] for rule in hook["rules"]]
        for ref in (RESOURCE_CONFIGURATION, MUTATING_CONFIGURATION)
    }
    assert asked == {
        RESOURCE_CONFIGURATION: [["secrets"]],
        MUTATING_CONFIGURATION: [["configmaps"]],
    }
    assert found[MUTATING_CONFIGURATION]["kind"] == "MutatingWebhookConfiguration"


@pytest.mark.parametrize(("rule", "asked"), [({}, [["x"]]), (patched(APPEND), [["1"], ["x"]])])
async def test_labels_are_a_match_condition_only_of_webhooks_that_are_not_reinvoked(
    webhooks, make, rule, asked
):
    resources = {
        "kinds": ["ConfigMap"],
        "names": ["x"],
        "selector": {"matchLabels": {"a": "1"}},
    }
    (hook,) = (await webhooks(make.mutating(resources=resources, **rule))).values()
    lists = (sorted(values) for values in narrowed(hook)["configmaps"])
    assert sorted(lists) == asked


async def test_deletions_are_not_registered_for_mutation(webhooks, make):
    def operations(*names):
        return {"kinds": ["ConfigMap"], "operations": list(names)}

    assert await webhooks(make.mutating(resources=operations("DELETE"))) == {}
    (hook,) = (await webhooks(make.mutating(resources=operations("DELETE", "UPDATE")))).values()
    assert [rule["operations"] for rule in hook["rules"]] == [["UPDATE"]]


@pytest.mark.parametrize(
    ("kind", "operation", "asked"),
    [
        ("*/scale", "CREATE", ("*", "*", "*/scale", "*")),
        ("Pod/exec", "CONNECT", ("", "v1", "pods/exec", "Namespaced")),
    ],
)
async def test_subresources_are_registered_as_they_are_matched(
    webhooks, make, kind, operation, asked
):
    resources = {"kinds": [kind], "operations": [operation]}
    (hook,) = (await webhooks(make.mutating(resources=resources))).values()
    group, version, resource, scope = asked
    assert hook["rules"] == [
        {
            "apiGroups": [group],
            "apiVersions": [version],
            "resources": [resource],
            "operations": [operation],
            "scope": scope,
        }
    ]


@pytest.mark.parametrize(
    ("rule", "policy"),
    [
        (patched(APPEND), "Never"),
        (patched('[{"op": "add", "path": "/data/list/0", "value": "x"}]'), "Never"),
        (patched('[{"op": "copy", "from": "/data/a", "path": "/data/list/-"}]'), "Never"),
        (patched('[{"op": "add", "path": "/data/{{request.name}}/-", "value": "x"}]'), "Never"),
        (patched("{{ request.object.data.patch }}"), "Never"),
        (patched('[{"op": "add", "path": "/data/{{request.name}}", "value": "x"}]'), "IfNeeded"),
        (patched('[{"op": "replace", "path": "/data/list/0", "value": "x"}]'), "IfNeeded"),
        (
            {"mutate": {"foreach": [{"list": "request.object.data", "patchesJson6902": APPEND}]}},
            "Never",
        ),
        (
            {
                "mutate": {
                    "foreach": [
                        {
                            "list": "request.object.data",
                            "patchesJson6902": "- op: add\n"
                            '  path: "/data/list/{{elementIndex}}"\n  value: x\n',
                        }
                    ]
                }
            },
            "Never",
        ),
    ],
)
async def test_a_rule_that_adds_by_position_is_not_reinvoked(webhooks, make, rule, policy):
    (hook,) = (await webhooks(make.mutating(**rule))).values()
    assert hook["reinvocationPolicy"] == policy
    assert ("/mutate-once/" in hook["clientConfig"]["service"]["path"]) is (policy == "Never")


async def test_rules_of_one_policy_share_a_webhook_and_others_are_reinvoked(webhooks, make):
    both = make.mutating("both", rules=[{"name": "a"}, {"name": "b", **patched(APPEND)}])
    found = await webhooks(both, make.mutating())
    policies = [(name.split(".")[0], hook["reinvocationPolicy"]) for name, hook in found.items()]
    # The API server calls them in this order.
    assert policies == [("mutate-fail", "IfNeeded"), ("mutate-once-fail", "Never")]


@pytest.mark.parametrize(
    ("kinds", "names", "policy"),
    [
        (["ConfigMap"], ["a", "b"], "Never"),
        (["ConfigMap"], ["a"], "IfNeeded"),
        # The generated rules for Pod controllers never match the same object as the Pod rule.
        (["Pod"], ["a"], "IfNeeded"),
    ],
)
async def test_a_policy_with_apply_rules_one_and_several_rules_is_not_reinvoked(
    webhooks, make, kinds, names, policy
):
    rules = [{"name": name} for name in names]
    one, resources = {"applyRules": "One"}, {"kinds": kinds}
    found = await webhooks(make.mutating(spec=one, resources=resources, rules=rules))
    (hook,) = found.values()
    assert hook["reinvocationPolicy"] == policy


def modrules(*appending: bool, **fields):
    edits = {
        False: {"op": "add", "path": "/metadata/labels/a", "value": "b"},
        True: {"op": "add", "path": "/spec/containers/-1", "value": "{name: c}"},
    }
    return [patching(edits[it], name=f"r{index}", **fields) for index, it in enumerate(appending)]


@pytest.mark.parametrize(
    ("rules", "policy"), [((False, False), "IfNeeded"), ((False, True), "Never")]
)
async def test_rules_of_a_language_with_tiers_share_a_webhook(webhooks, make, rules, policy):
    found = await webhooks(*modrules(*rules), make.mutating())
    assert list(found) == [
        "mutate-fail.retrofit.kyverno.io",
        "mutate-kubemod-ignore.retrofit.kyverno.io",
    ]
    hook = found["mutate-kubemod-ignore.retrofit.kyverno.io"]
    assert hook["clientConfig"]["service"]["path"].endswith("/mutate-kubemod/ignore")
    assert hook["reinvocationPolicy"] == policy
    (only,) = hook["namespaceSelector"]["matchExpressions"]
    assert (only["operator"], only["values"]) == ("In", ["shop"])


async def test_the_languages_with_tiers_are_called_in_a_fixed_order_after_the_others(
    webhooks, make
):
    appends = make.mutating("appends", **patched(APPEND))
    found = await webhooks(overriding(), *modrules(False), appends, make.mutating())
    assert [name.removesuffix(".retrofit.kyverno.io") for name in found] == [
        "mutate-fail",
        "mutate-once-fail",
        "mutate-kubemod-ignore",
        "mutate-kinitiras-fail",
    ]


async def test_no_rule_is_registered_to_refuse_policies(make):
    selectors = [
        {"apiVersion": version, "kind": kind}
        for version, kind in (("v1", "ConfigMap"), ("kyverno.io/v1", "ClusterPolicy"))
    ]
    condition = {"cond": "Exist", "message": "no", "dataRef": {"from": "current", "path": "/kind"}}
    rule = {"template": {"type": "condition", "condition": condition}}
    policy = {
        **overriding(objects="all"),
        "kind": "ClusterValidatePolicy",
        "spec": {"resourceSelectors": selectors, "validateRules": [rule]},
    }
    compiled = make.index(policy).policies()
    found = configurations(compiled, await resolve(compiled), settings())
    (hook,) = found[RESOURCE_CONFIGURATION]["webhooks"]
    assert [item["resources"] for item in hook["rules"]] == [["configmaps"]]


async def test_modrules_of_the_system_namespace_apply_to_all_namespaces(webhooks):
    # Pods are namespaced, so without a targetNamespaceRegex the rule matches no Pod.
    assert await webhooks(*modrules(False, namespace="kubemod-system")) == {}
    rules = modrules(False, namespace="kubemod-system", targetNamespaceRegex=".*")
    (hook,) = (await webhooks(*rules)).values()
    (never,) = hook["namespaceSelector"]["matchExpressions"]
    assert never["operator"] == "NotIn"


async def test_each_failure_policy_and_match_condition_has_its_own_webhook(webhooks, make):
    condition = {"name": "people", "expression": "request.userInfo.username != 'robot'"}
    found = await webhooks(
        make.mutating(),
        make.mutating("lax", spec={"failurePolicy": "Ignore"}),
        make.mutating(
            "own",
            namespace="shop",
            spec={"webhookConfiguration": {"matchConditions": [condition]}},
        ),
    )
    paths = [hook["clientConfig"]["service"]["path"].split("/", 3)[3] for hook in found.values()]
    assert paths == ["mutate/fail", "mutate/fail/shop/own", "mutate/ignore"]
    assert condition in list(found.values())[1]["matchConditions"]


async def test_a_rule_that_reads_an_entry_declares_side_effects(webhooks, make):
    entry = {"name": "it", "configMap": {"name": "c", "namespace": "a"}}
    (hook,) = (await webhooks(make.mutating(context=[entry]))).values()
    assert hook["sideEffects"] == "NoneOnDryRun"


@pytest.mark.parametrize("skips", [False, True])
async def test_writes_of_the_controller_are_not_excluded(webhooks, make, skips):
    (hook,) = (await webhooks(make.mutating(skipBackgroundRequests=skips))).values()
    assert "matchConditions" not in hook


async def test_update_requests_are_not_registered_for_mutation(webhooks, make):
    kinds = {"kinds": ["kyverno.io/v2/UpdateRequest", "ConfigMap"]}
    (hook,) = (await webhooks(make.mutating(resources=kinds))).values()
    assert [rule["resources"] for rule in hook["rules"]] == [["configmaps"]]


def test_standing_by_registers_no_mutating_webhook():
    assert silent(settings())[MUTATING_CONFIGURATION]["webhooks"] == []


def overriding(name: str = "a", objects: str = "labelled", operation: str = "replace") -> Object:
    """Return a kinitiras policy that changes Pods."""
    plaintext = {"op": operation, "path": "/spec/tolerations/-", "value": {}}
    return {
        "apiVersion": "policy.kcloudlabs.io/v1alpha1",
        "kind": "ClusterOverridePolicy",
        "metadata": {"name": name, "annotations": {"kube-retrofit.dev/objects": objects}},
        "spec": {
            "resourceSelectors": [{"apiVersion": "v1", "kind": "Pod"}],
            "overrideRules": [{"overriders": {"plaintext": [plaintext]}}],
        },
    }


async def test_kinitiras_policies_for_labelled_objects_have_an_object_selector(webhooks):
    (hook,) = (await webhooks(overriding(), overriding("b"))).values()
    assert hook["name"] == "mutate-kinitiras-fail.retrofit.kyverno.io"
    assert hook["timeoutSeconds"] == 10
    (wanted,) = hook["objectSelector"]["matchExpressions"]
    label = {"key": "kinitiras.kcloudlabs.io/webhook", "operator": "In", "values": ["enabled"]}
    assert wanted == label
    (hook,) = (await webhooks(overriding(), overriding("b", "all"))).values()
    assert hook["objectSelector"] == {}


async def test_a_kinitiras_policy_that_adds_to_a_list_is_not_reinvoked(webhooks):
    (hook,) = (await webhooks(overriding())).values()
    assert hook["reinvocationPolicy"] == "IfNeeded"
    (hook,) = (await webhooks(overriding(operation="add"))).values()
    assert hook["reinvocationPolicy"] == "Never"
