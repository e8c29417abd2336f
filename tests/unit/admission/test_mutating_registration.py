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


async def test_a_rule_without_targets_is_asked_about_before_its_object_is_stored(webhooks, make):
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
async def test_where_ignore_is_forced_no_policy_stops_a_request(make, spec):
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
async def test_a_label_that_another_webhook_may_add_excludes_nothing(webhooks, make, rule, asked):
    resources = {
        "kinds": ["ConfigMap"],
        "names": ["x"],
        "selector": {"matchLabels": {"a": "1"}},
    }
    (hook,) = (await webhooks(make.mutating(resources=resources, **rule))).values()
    lists = (sorted(values) for values in narrowed(hook)["configmaps"])
    assert sorted(lists) == asked


async def test_a_deletion_stores_nothing_that_could_be_changed(webhooks, make):
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
async def test_subresources_are_asked_about_as_they_are_matched(
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
async def test_what_adds_by_position_is_asked_once(webhooks, make, rule, policy):
    (hook,) = (await webhooks(make.mutating(**rule))).values()
    assert hook["reinvocationPolicy"] == policy
    assert ("/mutate-once/" in hook["clientConfig"]["service"]["path"]) is (policy == "Never")


async def test_rules_of_one_policy_stay_together_and_others_are_asked_again(webhooks, make):
    both = make.mutating("both", rules=[{"name": "a"}, {"name": "b", **patched(APPEND)}])
    found = await webhooks(both, make.mutating())
    policies = {name.split(".")[0]: hook["reinvocationPolicy"] for name, hook in found.items()}
    assert policies == {"mutate-fail": "IfNeeded", "mutate-once-fail": "Never"}


@pytest.mark.parametrize(
    ("kinds", "names", "policy"),
    [
        (["ConfigMap"], ["a", "b"], "Never"),
        (["ConfigMap"], ["a"], "IfNeeded"),
        # The generated rules for Pod controllers never match the same object as the Pod rule.
        (["Pod"], ["a"], "IfNeeded"),
    ],
)
async def test_what_applies_one_rule_is_not_asked_for_the_next(
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
async def test_the_rules_of_one_language_with_tiers_stay_together(webhooks, make, rules, policy):
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


async def test_rules_of_the_system_namespace_are_for_all_namespaces(webhooks):
    # Pods are namespaced, so without a targetNamespaceRegex the rule matches no Pod.
    assert await webhooks(*modrules(False, namespace="kubemod-system")) == {}
    rules = modrules(False, namespace="kubemod-system", targetNamespaceRegex=".*")
    (hook,) = (await webhooks(*rules)).values()
    (never,) = hook["namespaceSelector"]["matchExpressions"]
    assert never["operator"] == "NotIn"


async def test_failure_policies_and_conditions_have_webhooks_of_their_own(webhooks, make):
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


async def test_a_rule_that_reads_something_may_have_effects_elsewhere(webhooks, make):
    entry = {"name": "it", "configMap": {"name": "c", "namespace": "a"}}
    (hook,) = (await webhooks(make.mutating(context=[entry]))).values()
    assert hook["sideEffects"] == "NoneOnDryRun"


@pytest.mark.parametrize("skips", [False, True])
async def test_the_controllers_own_writes_are_asked_about(webhooks, make, skips):
    (hook,) = (await webhooks(make.mutating(skipBackgroundRequests=skips))).values()
    assert "matchConditions" not in hook


async def test_nobody_changes_what_the_programs_keep(webhooks, make):
    kinds = {"kinds": ["kyverno.io/v2/UpdateRequest", "ConfigMap"]}
    (hook,) = (await webhooks(make.mutating(resources=kinds))).values()
    assert [rule["resources"] for rule in hook["rules"]] == [["configmaps"]]


def test_who_stands_by_is_asked_nothing():
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


async def test_who_asks_for_labels_is_asked_about_nothing_else(webhooks):
    (hook,) = (await webhooks(overriding(), overriding("b"))).values()
    assert hook["name"] == "mutate-kinitiras-fail.retrofit.kyverno.io"
    assert hook["timeoutSeconds"] == 10
    (wanted,) = hook["objectSelector"]["matchExpressions"]
    label = {"key": "kinitiras.kcloudlabs.io/webhook", "operator": "In", "values": ["enabled"]}
    assert wanted == label
    (hook,) = (await webhooks(overriding(), overriding("b", "all"))).values()
    assert hook["objectSelector"] == {}


async def test_a_policy_that_adds_to_a_list_is_asked_once(webhooks):
    (hook,) = (await webhooks(overriding())).values()
    assert hook["reinvocationPolicy"] == "IfNeeded"
    (hook,) = (await webhooks(overriding(operation="add"))).values()
    assert hook["reinvocationPolicy"] == "Never"
