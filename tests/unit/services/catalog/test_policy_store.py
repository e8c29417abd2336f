import asyncio
from collections.abc import Callable

import pytest
from typing_extensions import override

from reconciler.api.kinds import policy_named
from reconciler.api.meta import Object, policy_ref
from reconciler.errors import InvalidPolicy
from reconciler.services.catalog.policy_store import PolicyStore
from reconciler.services.catalog.rule_index import Known
from tests.unit.services.conftest import Make


@pytest.fixture
def index() -> PolicyStore:
    return PolicyStore()


@pytest.fixture
def stored(make: type[Make]) -> Callable[..., Object]:
    """Return a function that builds a policy as the API server returns it."""

    def build(name="p", *, generation=1, uid="u", **facts):
        target = make.target(namespace=facts.get("namespace") or "a")
        policy = make.policy(name, targets=[target], **facts)
        policy["metadata"] |= {"uid": uid, "generation": generation}
        return policy

    return build


def fired(index, kind, *, subresource="", namespace="a"):
    rules = index.rules(Known(kind=kind, subresource=subresource, namespace=namespace))
    return [rule.policy.key for rule in rules]


def test_keys_distinguish_policies_of_different_namespaces(index, stored):
    for policy in (stored(), stored(namespace="a"), stored(namespace="b")):
        index.apply(policy)
    assert [item.key for item in index.policies()] == ["a/p", "b/p", "p"]
    index.on_deleted(stored(namespace="a"))
    assert index.get(policy_named("a/p")) is None
    assert index.get(policy_named("p")) is not None
    assert policy_ref(stored(namespace="b")) == policy_named("b/p")


def test_policies_of_two_kinds_with_the_same_name_are_kept_apart(index, stored):
    index.apply(stored(namespace="shop"))
    other = stored(namespace="shop") | {"apiVersion": "example.org/v1", "kind": "ModRule"}
    index.apply(other)
    assert len(index.entries()) == 2
    index.on_deleted(other)
    assert fired(index, "ConfigMap", namespace="shop") == ["shop/p"]
    assert index.entry(policy_ref(other)) is None


def test_a_generation_that_is_known_is_not_compiled_again(index, stored):
    first = index.apply(stored())
    assert index.apply(stored()) is first
    assert index.apply(stored(generation=2)) is not first


def test_only_the_newest_replaced_rules_of_a_policy_are_kept(index, stored):
    for generation in range(1, 201):
        policy = stored(generation=generation)
        policy["spec"]["rules"][0]["name"] = f"r{generation}"
        index.apply(policy)
    found = [bool(index.as_it_was("u", f"r{generation}")) for generation in (1, 98, 99, 199)]
    assert found == [False, False, True, True]


def test_an_event_of_an_older_generation_changes_nothing(index, stored):
    newer = index.apply(stored(generation=2))
    assert index.apply(stored(generation=1)) is newer
    assert index.apply(stored(generation=1, uid="another")) is not newer


def test_a_policy_that_becomes_invalid_stops_acting_until_it_is_corrected(index, stored):
    index.apply(stored())
    error = index.apply(stored(generation=2, spec={"nonsense": 1}))
    assert isinstance(error, InvalidPolicy)
    assert index.get(policy_named("p")) is None
    assert fired(index, "ConfigMap") == []
    (entry,) = index.invalid()
    assert entry.ref.kind == "ClusterPolicy"
    assert (entry.generation, entry.result.location) == (2, "spec.nonsense")
    index.apply(stored(generation=3))
    assert index.invalid() == ()
    assert fired(index, "ConfigMap") == ["p"]


def test_a_policy_that_a_bug_prevents_from_compiling_is_invalid(index, stored):
    class Unreadable(dict):
        @override
        def __iter__(self):
            raise ValueError("not for everyone")

    policy = stored()
    result = index.apply({**policy, "spec": Unreadable(policy["spec"])})
    assert isinstance(result, InvalidPolicy)
    assert "a bug in kube-retrofit (ValueError in __iter__, line " in str(result)
    assert index.invalid()
    index.apply(stored(generation=2))
    assert not index.invalid()


def test_an_invalid_policy_is_forgotten_when_it_is_deleted(index, stored):
    index.apply(stored(spec={"nonsense": 1}))
    index.on_deleted(stored())
    assert index.invalid() == ()


@pytest.mark.parametrize(
    ("kinds", "kind", "subresource", "fires"),
    [
        (("ConfigMap",), "ConfigMap", "", True),
        (("v1/ConfigMap",), "ConfigMap", "", True),
        (("ConfigMap",), "Secret", "", False),
        (("ConfigMap", "Secret"), "Secret", "", True),
        (("*",), "Anything", "", True),
        (("Config*",), "ConfigMap", "", True),
        (("Pod",), "Pod", "binding", False),
        (("Pod/binding",), "Pod", "binding", True),
        (("Pod/*",), "Pod", "binding", True),
        (("Pod",), "Pod", "ephemeralcontainers", True),
    ],
)
def test_rules_are_found_by_the_kind_that_may_trigger_them(
    index, stored, kinds, kind, subresource, fires
):
    index.apply(stored(kinds=kinds))
    assert fired(index, kind, subresource=subresource) == (["p"] if fires else [])


def test_a_namespaced_policy_is_not_found_for_other_namespaces(index, stored):
    index.apply(stored(namespace="a"))
    assert fired(index, "ConfigMap", namespace="a") == ["a/p"]
    assert fired(index, "ConfigMap", namespace="b") == []
    assert fired(index, "Node", namespace="") == []


@pytest.mark.parametrize(
    ("names", "name", "found"),
    [
        (["settings", "flags"], "flags", True),
        (["settings", "flags"], "other", False),
        (["settings", "flag*"], "other", True),
        (["settings", "flags"], "", True),
        ([], "other", True),
    ],
)
def test_a_rule_for_other_names_is_not_found_for_an_object_with_a_name(
    index, stored, names, name, found
):
    policy = stored()
    policy["spec"]["rules"][0]["match"]["any"][0]["resources"]["names"] = names
    index.apply(policy)
    rules = index.rules(Known(kind="ConfigMap", subresource="", namespace="a", name=name))
    assert len(list(rules)) == found


def versioned(policy, version, **annotations):
    named = {f"kube-retrofit.dev/{key}": value for key, value in annotations.items()}
    meta = policy["metadata"] | {"resourceVersion": str(version), "annotations": named}
    return policy | {"metadata": meta}


def test_an_older_resource_version_changes_nothing(index, stored):
    """A list that began before a change returns the earlier version of the policy."""
    index.apply(versioned(stored(), 12, paused="true"))
    known = index.entry(policy_named("p"))
    assert known.limits.paused
    index.apply(versioned(stored(), 11))
    assert index.entry(policy_named("p")) is known


def test_a_late_deletion_of_an_earlier_policy_does_not_remove_a_recreated_one(index, stored):
    index.apply(versioned(stored(uid="second"), 12))
    index.on_deleted(versioned(stored(uid="first"), 11))
    assert fired(index, "ConfigMap") == ["p"]


def test_a_policy_from_a_list_that_began_before_its_deletion_is_not_stored_again(index, stored):
    index.apply(versioned(stored(), 12))
    index.on_deleted(versioned(stored(), 15))
    index.apply(versioned(stored(), 12))
    assert index.entries() == ()
    index.apply(versioned(stored(uid="made again"), 16))
    assert fired(index, "ConfigMap") == ["p"]


def test_a_policy_of_a_kind_that_was_not_served_for_a_while_acts_again(index, stored):
    """A watch reports the deletion of such a policy with the version that it had."""
    index.apply(versioned(stored(), 12))
    index.on_deleted(versioned(stored(), 12))
    index.apply(versioned(stored(), 12))
    assert fired(index, "ConfigMap") == ["p"]


def test_an_invalid_policy_is_compiled_once(index, stored):
    invalid = stored(spec={"nonsense": 1})
    error = index.apply(invalid)
    assert index.apply(invalid) is error


def test_a_subscriber_receives_each_change_with_the_previous_version(index, stored):
    seen = []
    index.apply(versioned(stored(), 1))
    index.subscribe(lambda before, after: seen.append((before, after)))
    index.apply(versioned(stored(generation=2), 2))
    index.apply(versioned(stored(), 1))
    index.on_deleted(versioned(stored(generation=2), 3))
    versions = [
        tuple(item and item.head["metadata"]["resourceVersion"] for item in change)
        for change in seen
    ]
    assert versions == [(None, "1"), ("1", "2"), ("2", None)]


def test_the_last_applied_configuration_of_kubectl_is_not_kept(index, stored):
    policy = versioned(stored(), 1, paused="true")
    applied = "kubectl.kubernetes.io/last-applied-configuration"
    policy["metadata"]["annotations"][applied] = "{}"
    index.apply(policy)
    held = index.entry(policy_named("p")).head
    assert held["metadata"]["annotations"] == {"kube-retrofit.dev/paused": "true"}
    assert "spec" not in held


async def turns_during(work):
    """Return how many turns other tasks of the event loop got while this work ran."""
    task, turns = asyncio.create_task(work), 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    await task
    return turns


def conditions(count):
    keys = (f"{{{{ request.object.data.k{number} }}}}" for number in range(count))
    items = [{"key": key, "operator": "Equals", "value": "a"} for key in keys]
    return {"preconditions": {"all": items}}


async def test_compiling_a_large_policy_does_not_block_the_event_loop(index, stored):
    assert await turns_during(index.prepare(stored(**conditions(1_500)))) > 20
    prepared = index.apply(stored(**conditions(1_500)))
    assert index.get(policy_named("p")) is prepared


async def test_a_prepared_policy_is_used_only_for_its_own_generation_and_uid(index, stored):
    await index.prepare(stored(generation=1))
    assert index.apply(stored(generation=2)).generation == 2
    await index.prepare(stored(generation=3, spec={"nonsense": 1}))
    assert isinstance(index.apply(stored(generation=3, spec={"nonsense": 1})), InvalidPolicy)
    assert index.get(policy_named("p")) is None
    await index.prepare(stored(generation=4))
    index.on_deleted(stored())
    assert index.apply(stored(uid="made again")).uid == "made again"
