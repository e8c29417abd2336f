import asyncio

import pytest

from reconciler.errors import InvalidPolicy
from reconciler.services.catalog.policies import PolicyIndex, policy_key


@pytest.fixture
def index():
    return PolicyIndex()


@pytest.fixture
def stored(make):
    """Return a policy as the API server gives it."""

    def build(name="p", *, generation=1, uid="u", **facts):
        target = make.target(namespace=facts.get("namespace") or "a")
        policy = make.policy(name, targets=[target], **facts)
        policy["metadata"] |= {"uid": uid, "generation": generation}
        return policy

    return build


def fired(index, kind, *, subresource="", namespace="a"):
    rules = index.rules(kind=kind, subresource=subresource, namespace=namespace)
    return [rule.policy.key for rule in rules]


def test_keys_tell_policies_of_namespaces_apart(index, stored):
    for policy in (stored(), stored(namespace="a"), stored(namespace="b")):
        index.apply(policy)
    assert [item.key for item in index.policies()] == ["a/p", "b/p", "p"]
    index.remove("a/p")
    assert index.get("a/p") is None
    assert index.get("p") is not None
    assert policy_key(stored(namespace="b")) == "b/p"


def test_a_generation_that_is_known_is_not_compiled_again(index, stored):
    first = index.apply(stored())
    assert index.apply(stored()) is first
    assert index.apply(stored(generation=2)) is not first


def test_an_event_of_an_older_generation_changes_nothing(index, stored):
    newer = index.apply(stored(generation=2))
    assert index.apply(stored(generation=1)) is newer
    assert index.apply(stored(generation=1, uid="another")) is not newer


def test_a_policy_that_became_invalid_acts_no_more_until_it_is_mended(index, stored):
    index.apply(stored())
    error = index.apply(stored(generation=2, spec={"nonsense": 1}))
    assert isinstance(error, InvalidPolicy)
    assert index.get("p") is None
    assert fired(index, "ConfigMap") == []
    entry = index.invalid()["p"]
    assert (entry.kind, entry.generation, entry.error.location) == (
        "ClusterPolicy",
        2,
        "spec.nonsense",
    )
    index.apply(stored(generation=3))
    assert index.invalid() == {}
    assert fired(index, "ConfigMap") == ["p"]


def test_an_invalid_policy_is_forgotten_when_it_is_deleted(index, stored):
    index.apply(stored(spec={"nonsense": 1}))
    index.remove("p")
    assert index.invalid() == {}


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


def test_a_namespaced_policy_is_left_out_elsewhere(index, stored):
    index.apply(stored(namespace="a"))
    assert fired(index, "ConfigMap", namespace="a") == ["a/p"]
    assert fired(index, "ConfigMap", namespace="b") == []
    assert fired(index, "Node", namespace="") == []


async def turns_during(work):
    """Return how often others had their turn while something was awaited."""
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


async def test_a_large_policy_is_compiled_where_nobody_waits_for_it(index, stored):
    assert await turns_during(index.prepare(stored(**conditions(1_500)))) > 20
    prepared = index.apply(stored(**conditions(1_500)))
    assert index.get("p") is prepared


async def test_what_was_prepared_is_used_and_nothing_else(index, stored):
    await index.prepare(stored(generation=1))
    assert index.apply(stored(generation=2)).generation == 2
    await index.prepare(stored(generation=3, spec={"nonsense": 1}))
    assert isinstance(index.apply(stored(generation=3, spec={"nonsense": 1})), InvalidPolicy)
    assert index.get("p") is None
    await index.prepare(stored(generation=4))
    index.remove("p")
    assert index.apply(stored(uid="made again")).uid == "made again"
