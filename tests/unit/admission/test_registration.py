"""The webhook configurations that are registered for policies."""

import base64
import itertools
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from reconciler.api.meta import Kind, Object
from reconciler.memory.cluster import MemoryCluster
from reconciler.services.ports.webhooks import Endpoint
from reconciler.services.rollout.webhook_config import (
    POLICY_CONFIGURATION,
    RESOURCE_CONFIGURATION,
    WebhookConfig,
    configurations,
)
from reconciler.services.rollout.webhook_rules import lookup, selectors
from tests.unit.admission.conftest import Make

NEVER = ["kube-retrofit-beside-recorded", "kube-retrofit-recorded", "kube-system", "kyverno"]
OWN = "system:serviceaccount:kyverno:kyverno-background-controller"
DNS = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?){2,}")


def settings(**endpoint):
    endpoint = endpoint or {"service": "kyverno-svc"}
    return WebhookConfig(
        endpoint=Endpoint(ca_bundle=b"PEM", **endpoint),
        namespace="kyverno",
        controller_users=(OWN,),
        timeout=10.0,
    )


async def resolve(policies):
    cluster = MemoryCluster()
    cluster.serve(
        Kind(group="", version="v1", kind="Pod", plural="pods", namespaced=True),
        Kind(
            group="",
            version="v1",
            kind="Pod",
            plural="pods",
            namespaced=True,
            subresource="binding",
        ),
        Kind(
            group="",
            version="v1",
            kind="Pod",
            plural="pods",
            namespaced=True,
            subresource="exec",
        ),
    )
    return {item: await cluster.find(*lookup(item)) for item in selectors(policies)}


@pytest.fixture
def webhooks(make: type[Make]) -> Callable[..., Awaitable[dict[str, Object]]]:
    async def build(*policies, **endpoint):
        compiled = make.index(*policies).policies()
        kinds = await resolve(compiled)
        found = configurations(compiled, kinds, settings(**endpoint))
        return {item["name"]: item for item in found[RESOURCE_CONFIGURATION]["webhooks"]}

    return build


def rule(group, resources, operations, scope="Namespaced", version="v1"):
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": resources,
        "operations": operations,
        "scope": scope,
    }


async def test_without_policies_there_is_no_webhook_for_resources(webhooks):
    assert await webhooks() == {}


async def test_a_webhook_is_registered_only_for_the_kinds_of_the_policy(make, webhooks):
    found = await webhooks(make.policy())
    (hook,) = found.values()
    path = hook["clientConfig"]["service"].pop("path")
    assert re.fullmatch(r"/at/[0-9a-f]{16}/validate/fail", path)
    assert hook == {
        "name": "fail.retrofit.kyverno.io",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {
            "service": {
                "name": "kyverno-svc",
                "namespace": "kyverno",
                "port": 443,
            },
            "caBundle": base64.b64encode(b"PEM").decode(),
        },
        "rules": [rule("", ["configmaps"], ["CREATE", "UPDATE"])],
        "matchPolicy": "Equivalent",
        "failurePolicy": "Fail",
        "sideEffects": "NoneOnDryRun",
        "timeoutSeconds": 10,
        "objectSelector": {},
        "namespaceSelector": {
            "matchExpressions": [
                {
                    "key": "kubernetes.io/metadata.name",
                    "operator": "NotIn",
                    "values": NEVER,
                }
            ]
        },
        "matchConditions": [
            {
                "name": "kube-retrofit-own-writes",
                "expression": f"!(request.userInfo.username in ['{OWN}'])",
            }
        ],
    }


async def test_the_webhook_uses_a_url_outside_a_cluster(make, webhooks):
    found = await webhooks(make.policy(), url="https://127.0.0.1:9443/")
    config = found["fail.retrofit.kyverno.io"]["clientConfig"]
    assert re.fullmatch(r"https://127.0.0.1:9443/at/[0-9a-f]{16}/validate/fail", config["url"])
    assert config == {
        "url": config["url"],
        "caBundle": base64.b64encode(b"PEM").decode(),
    }


async def test_the_path_identifies_the_set_of_policies(make, webhooks):
    def path(found):
        return found["fail.retrofit.kyverno.io"]["clientConfig"]["service"]["path"]

    first = path(await webhooks(make.policy("a", uid="1")))
    assert path(await webhooks(make.policy("a", uid="1"))) == first
    assert path(await webhooks(make.policy("a", uid="1"), make.policy("b", uid="2"))) != first
    assert path(await webhooks(make.policy("a", uid="2"))) != first


async def test_each_failure_policy_has_its_own_webhook(make, webhooks):
    found = await webhooks(
        make.policy("a", uid="1"),
        make.policy("b", uid="2", spec={"failurePolicy": "Ignore"}),
    )
    assert {name: item["failurePolicy"] for name, item in found.items()} == {
        "fail.retrofit.kyverno.io": "Fail",
        "ignore.retrofit.kyverno.io": "Ignore",
    }
    path = found["ignore.retrofit.kyverno.io"]["clientConfig"]["service"]["path"]
    assert path.endswith("/validate/ignore")


async def test_rules_are_grouped_by_operations_and_scope(make, webhooks):
    found = await webhooks(
        make.policy("a", uid="1", resources={"kinds": ["Secret", "ConfigMap"]}),
        make.policy("b", uid="2", resources={"kinds": ["Namespace"]}),
        make.policy("c", uid="3", resources={"kinds": ["ConfigMap"], "operations": ["DELETE"]}),
    )
    assert found["fail.retrofit.kyverno.io"]["rules"] == [
        rule("", ["namespaces"], ["CREATE", "UPDATE"], "Cluster"),
        rule("", ["configmaps"], ["CREATE", "DELETE", "UPDATE"]),
        rule("", ["secrets"], ["CREATE", "UPDATE"]),
    ]


async def test_only_listed_operations_are_registered(make, webhooks):
    resources = {"kinds": ["ConfigMap"], "operations": ["DELETE"]}
    found = await webhooks(make.policy(resources=resources))
    assert found["fail.retrofit.kyverno.io"]["rules"] == [rule("", ["configmaps"], ["DELETE"])]


async def test_delete_in_one_filter_applies_to_kinds_of_filters_without_operations(make, webhooks):
    policy = make.policy(resources={"kinds": ["ConfigMap"], "operations": ["DELETE"]})
    policy["spec"]["rules"][0]["match"]["any"].append({"resources": {"kinds": ["Secret"]}})
    found = await webhooks(policy)
    assert found["fail.retrofit.kyverno.io"]["rules"] == [
        rule("", ["secrets"], ["CREATE", "DELETE", "UPDATE"]),
        rule("", ["configmaps"], ["DELETE"]),
    ]


async def test_pods_are_registered_with_their_ephemeral_containers(make, webhooks):
    found = await webhooks(make.policy(resources={"kinds": ["Pod"]}))
    (only,) = found["fail.retrofit.kyverno.io"]["rules"]
    assert only["resources"] == ["pods", "pods/ephemeralcontainers"]


async def test_a_subresource_is_registered_by_its_name(make, webhooks):
    found = await webhooks(make.policy(resources={"kinds": ["Pod/binding"]}))
    assert found["fail.retrofit.kyverno.io"]["rules"] == [
        rule("", ["pods/binding"], ["CONNECT", "CREATE", "UPDATE"])
    ]


async def test_all_subresources_of_a_kind_are_registered_by_wildcard(make, webhooks):
    found = await webhooks(make.policy(resources={"kinds": ["Pod/*"]}))
    (only,) = found["fail.retrofit.kyverno.io"]["rules"]
    assert only["resources"] == ["pods/*"]


async def test_any_kind_is_registered_as_a_wildcard(make, webhooks):
    found = await webhooks(make.policy(resources={"kinds": ["*"]}))
    assert found["fail.retrofit.kyverno.io"]["rules"] == [
        rule("*", ["*"], ["CREATE", "UPDATE"], "*", version="*")
    ]


async def test_all_kinds_of_a_group_and_all_subresources_are_wildcards(make, webhooks):
    async def asked(kind):
        found = await webhooks(make.policy(resources={"kinds": [kind]}))
        return found["fail.retrofit.kyverno.io"]["rules"]

    both = ["CREATE", "UPDATE"]
    assert await asked("apps/*") == [rule("apps", ["*"], both, "*", version="*")]
    assert await asked("apps/v1/*") == [rule("apps", ["*"], both, "*")]
    subresources = ["CONNECT", *both]
    assert await asked("*/*") == [rule("*", ["*/*"], subresources, "*", version="*")]
    assert await asked("*/scale") == [rule("*", ["*/scale"], subresources, "*", version="*")]


class TestNamespaces:
    @pytest.fixture
    def asked(
        self, webhooks: Callable[..., Awaitable[dict[str, Object]]]
    ) -> Callable[..., Awaitable[Any]]:
        async def run(*policies):
            hook = (await webhooks(*policies))["fail.retrofit.kyverno.io"]
            (expression,) = hook["namespaceSelector"]["matchExpressions"]
            return expression["operator"], expression["values"]

        return run

    async def test_only_namespaces_that_policies_name_are_selected(self, make, asked):
        near = make.policy("a", uid="1", resources={"kinds": ["Secret"], "namespaces": ["x"]})
        own = make.policy("b", uid="2", namespace="y")
        assert await asked(near, own) == ("In", ["x", "y"])

    @pytest.mark.parametrize("resources", [{"namespaces": ["x*"]}, {}])
    async def test_one_policy_without_fixed_namespaces_selects_all_namespaces(
        self, make, asked, resources
    ):
        near = make.policy("a", uid="1", namespace="y")
        far = make.policy("b", uid="2", resources={"kinds": ["Secret"], **resources})
        assert await asked(near, far) == ("NotIn", NEVER)

    async def test_filters_under_all_intersect_their_namespaces(self, make, asked):
        policy = make.policy()
        policy["spec"]["rules"][0]["match"] = {
            "all": [
                {"resources": {"kinds": ["Secret"], "namespaces": ["x", "y"]}},
                {"resources": {"kinds": ["Secret"], "namespaces": ["y", "z"]}},
            ]
        }
        assert await asked(policy) == ("In", ["y"])

    async def test_own_and_system_namespaces_are_never_selected(self, make, asked):
        named = {"kinds": ["Secret"], "namespaces": ["kyverno", "x", "kube-system"]}
        assert await asked(make.policy(resources=named)) == ("In", ["x"])


async def test_a_namespaced_policy_is_registered_only_for_namespaced_kinds(make, webhooks):
    policy = make.policy(namespace="a", resources={"kinds": ["ConfigMap", "Namespace"]})
    found = await webhooks(policy)
    assert found["fail.retrofit.kyverno.io"]["rules"] == [
        rule("", ["configmaps"], ["CREATE", "UPDATE"])
    ]


async def test_a_kind_that_is_not_served_yet_is_left_out(make, webhooks):
    resources = {"kinds": ["ConfigMap", "example.com/v1/Later"]}
    found = await webhooks(make.policy(resources=resources))
    (only,) = found["fail.retrofit.kyverno.io"]["rules"]
    assert only["resources"] == ["configmaps"]
    alone = make.policy(resources={"kinds": ["example.com/v1/Later"]})
    assert await webhooks(alone) == {}


async def test_writes_of_the_controller_are_sent_if_a_rule_does_not_skip_them(make, webhooks):
    found = await webhooks(make.policy(skipBackgroundRequests=False))
    assert "matchConditions" not in found["fail.retrofit.kyverno.io"]


async def test_match_conditions_apply_only_to_the_webhook_of_their_policy(make, webhooks):
    conditions = [{"name": "not-me", "expression": "request.userInfo.username != 'me'"}]
    picky = {"webhookConfiguration": {"matchConditions": conditions}}
    found = await webhooks(
        make.policy("plain", uid="1"), make.policy("picky", uid="2", spec=picky)
    )
    assert len(found) == 2
    (own,) = (item for name, item in found.items() if name != "fail.retrofit.kyverno.io")
    assert own["clientConfig"]["service"]["path"].endswith("/validate/fail/picky")
    assert [item["name"] for item in own["matchConditions"]] == [
        "not-me",
        "kube-retrofit-own-writes",
    ]
    assert all(DNS.fullmatch(name) for name in found)


async def test_the_longest_timeout_of_the_policies_is_used(make, webhooks):
    async def timeout(*seconds):
        policies = [
            make.policy(f"p{value}", uid=str(value), spec={"webhookTimeoutSeconds": value})
            for value in seconds
        ]
        return (await webhooks(*policies))["fail.retrofit.kyverno.io"]["timeoutSeconds"]

    assert await timeout(5) == 10
    assert await timeout(5, 20) == 20


def test_policies_hooks_entries_and_exceptions_have_webhooks():
    found = configurations([], {}, settings())
    assert found[RESOURCE_CONFIGURATION]["webhooks"] == []
    hook, exceptions = found[POLICY_CONFIGURATION]["webhooks"]
    assert exceptions["clientConfig"]["service"]["path"] == "/exceptions"
    (asked,) = exceptions["rules"]
    assert (asked["resources"], asked["apiVersions"]) == (["policyexceptions"], ["v2"])
    assert hook["clientConfig"]["service"]["path"] == "/policies"
    assert hook["rules"] == [
        rule(
            "kube-retrofit.dev", ["clusterhooks", "hooks"], ["CREATE", "UPDATE"], "*", "v1alpha1"
        ),
        rule("kyverno.io", ["clusterpolicies", "policies"], ["CREATE", "UPDATE"], "*"),
        rule("kyverno.io", ["globalcontextentries"], ["CREATE", "UPDATE"], "*", "v2"),
    ]
    assert hook["failurePolicy"] == "Fail"
    assert hook["sideEffects"] == "None"
    assert DNS.fullmatch(hook["name"])


class TestStanding:
    """Exclusions that keep a cluster working while the webhook does not answer."""

    async def conditions(self, make, *kinds):
        compiled = make.index(make.policy(resources={"kinds": list(kinds)})).policies()
        cluster = MemoryCluster()
        cluster.serve(
            Kind(group="", version="v1", kind="Node", plural="nodes", namespaced=False),
            Kind(
                group="coordination.k8s.io",
                version="v1",
                kind="Lease",
                plural="leases",
                namespaced=True,
            ),
        )
        found = {item: await cluster.find(*lookup(item)) for item in selectors(compiled)}
        (hook,) = configurations(compiled, found, settings())[RESOURCE_CONFIGURATION]["webhooks"]
        prefix = "kube-retrofit-standing-"
        names = (item["name"] for item in hook["matchConditions"])
        return {name.removeprefix(prefix) for name in names if name.startswith(prefix)}

    async def test_a_rule_for_all_kinds_excludes_objects_vital_to_the_cluster(self, make):
        assert await self.conditions(make, "*") == {
            "node-users",
            "nodes",
            "node-leases",
            "tokens",
            "authentication",
            "authorization",
            "certificates",
            "policies",
            "policies-beside",
        }

    async def test_a_kind_that_is_named_is_not_excluded(self, make):
        found = await self.conditions(make, "*", "Node", "coordination.k8s.io/v1/Lease")
        assert {"nodes", "node-leases"} & found == set()
        assert {"node-users", "tokens", "authorization"} <= found

    async def test_rules_for_named_kinds_need_no_exclusions(self, make):
        assert await self.conditions(make, "Node") == set()


async def test_the_result_does_not_depend_on_the_order_of_policies(make):
    policies = [
        make.policy(f"p{number}", uid=str(number), resources={"kinds": [kind]})
        for number, kind in enumerate(("Secret", "ConfigMap", "Namespace", "Pod"))
    ]
    compiled = make.index(*policies).policies()
    kinds = await resolve(compiled)
    assert configurations(compiled, kinds, settings()) == configurations(
        compiled[::-1], kinds, settings()
    )


class TestExactObjects:
    @pytest.fixture
    def asked(
        self, make: type[Make], webhooks: Callable[..., Awaitable[dict[str, Object]]]
    ) -> Callable[..., Awaitable[Any]]:
        """Return the names or labels to which the webhook is restricted, by resource."""

        async def run(*written, **spec):
            policies = [
                make.policy(str(number), match={"any": filters}, spec=spec)
                for number, filters in enumerate(written)
            ]
            (hook,) = (await webhooks(*policies)).values()
            return narrowed(hook)

        return run

    async def test_names_of_one_kind_are_a_match_condition(self, asked):
        assert await asked([named("ConfigMap", "a", "b")]) == {"configmaps": [["a", "b"]]}

    async def test_names_of_all_policies_of_a_webhook_are_joined(self, asked):
        one, other = [named("ConfigMap", "a")], [named("ConfigMap", "b"), named("Secret", "c")]
        assert await asked(one, other) == {"configmaps": [["a", "b"]], "secrets": [["c"]]}

    @pytest.mark.parametrize("opened", [(), ("b", "c*"), ("?",)])
    async def test_one_rule_without_exact_names_removes_the_condition_of_its_kind(
        self, asked, opened
    ):
        written = [named("ConfigMap", "a"), named("Secret", "s")], [named("ConfigMap", *opened)]
        assert await asked(*written) == {"secrets": [["s"]]}

    async def test_a_second_selector_of_the_kind_without_names_removes_the_condition(self, asked):
        assert await asked([named("ConfigMap", "a"), named("v1/ConfigMap")]) == {}

    async def test_a_rule_for_all_kinds_removes_all_conditions(self, asked):
        assert await asked([named("ConfigMap", "a"), named("*")]) == {}

    async def test_a_rule_for_a_subresource_removes_the_condition_of_the_parent(self, asked):
        assert await asked([named("Pod", "a"), named("Pod/binding", "a")]) == {}

    async def test_there_are_no_more_conditions_than_the_api_server_allows(self, make, webhooks):
        conditions = [{"name": f"c{number}", "expression": "true"} for number in range(63)]
        match = {"any": [named("ConfigMap", "a"), named("Secret", "b")]}
        own = {"webhookConfiguration": {"matchConditions": conditions}}
        (hook,) = (await webhooks(make.policy(match=match, spec=own))).values()
        names = [item["name"] for item in hook["matchConditions"]]
        assert names == [*(item["name"] for item in conditions), "kube-retrofit-own-writes"]

    async def test_too_many_names_are_not_listed(self, asked):
        assert await asked([named("ConfigMap", *map(str, range(101)))]) == {}

    async def test_conditions_too_long_to_be_stored_are_left_out(self, make, webhooks):
        def names(letter):
            return (f"{letter}{number:03}".ljust(253, "x") for number in range(99))

        kinds = ("ConfigMap", "Secret", "Namespace", "Pod")
        rules = [named(kind, *names(kind[0].lower())) for kind in kinds]
        (hook,) = (
            await webhooks(make.policy(match={"any": [*rules, named("Node", "n")]}))
        ).values()
        found = narrowed(hook)
        assert (len(found), found["nodes"]) == (3, [["n"]])
        assert len(json.dumps(hook)) < 250_000

    async def test_names_are_combined_with_the_namespaces_of_their_filter(self, asked):
        one, other = named("ConfigMap", "a", namespaces=["x"]), named("ConfigMap", "b", "c")
        assert await asked([one], [other]) == {"configmaps": [["b", "c"], ["x"], ["a"]]}

    async def test_namespaces_of_the_selector_are_not_repeated_as_a_condition(
        self, make, webhooks, asked
    ):
        alike = named("ConfigMap", namespaces=["x", "y"]), named("Secret", namespaces=["x", "y"])
        assert await asked([*alike]) == {}
        apart = named("ConfigMap", namespaces=["x"]), named("Secret", namespaces=["x", "y"])
        assert await asked([*apart]) == {"configmaps": [["x"]]}
        assert await asked([named("Node", namespaces=["x"])]) == {"nodes": [["x"]]}
        own = make.policy("a", uid="1", namespace="x")
        (hook,) = (await webhooks(own)).values()
        assert narrowed(hook) == {}

    async def test_a_namespace_object_is_matched_by_its_own_name(self, asked):
        assert await asked([named("Namespace", namespaces=["x", "y"])]) == {
            "namespaces": [["x", "y"]]
        }

    async def test_exact_label_values_are_a_match_condition(self, asked):
        selector = {"matchLabels": {"a": "1", "b": "x*"}}
        assert await asked([named("ConfigMap", selector=selector)]) == {"configmaps": [["1"]]}

    async def test_too_many_label_values_are_left_out_and_names_kept(self, asked):
        values = {"key": "a", "operator": "In", "values": [str(n) for n in range(101)]}
        rules = named("ConfigMap", "x", selector={"matchExpressions": [values]})
        assert await asked([rules]) == {"configmaps": [["x"]]}

    async def test_a_namespaced_policy_is_limited_to_its_namespace_by_a_condition(
        self, make, webhooks
    ):
        policies = (
            make.policy("a", uid="1", namespace="x"),
            make.policy("b", uid="2", resources={"kinds": ["Secret"]}),
        )
        (hook,) = (await webhooks(*policies)).values()
        assert narrowed(hook) == {"configmaps": [["x"]]}

    async def test_names_that_json_would_escape_are_kept(self, asked):
        assert await asked([named("ConfigMap", "\U0001f600")]) == {"configmaps": [["\U0001f600"]]}


def narrowed(hook):
    """Return the value lists of the object match conditions, by resource."""
    conditions = {item["name"]: item["expression"] for item in hook["matchConditions"]}
    assert len(conditions) == len(hook["matchConditions"])
    found = {}
    for name, text in conditions.items():
        if name.startswith("kube-retrofit-objects-"):
            resource = re.search(r'resource\.resource != "(\w+)"', text)[1]
            lists = (json.loads(item) for item in re.findall(r" in (\[.*?\])", text))
            found[resource] = [item for item, _ in itertools.groupby(lists)]
    return found


def named(kind, *names, **resources):
    written = {"kinds": [kind], **resources} | ({"names": list(names)} if names else {})
    return {"resources": written}
