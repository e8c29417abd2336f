"""Old and deleted objects in reviews, checked against the stored ones."""

from collections.abc import AsyncIterator

import pytest

from reconciler.services.catalog.policy_store import PolicyStore
from reconciler.serving.callers import Callers
from tests.unit.admission.conftest import Make
from tests.unit.admission.serving import World

OLD = "{{ request.oldObject.data.a }}"
DELETES = {"kinds": ["ConfigMap"], "operations": ["DELETE"]}
FORGED = {"a": "forged"}


@pytest.fixture
def rules(make: type[Make]) -> PolicyStore:
    """A rule that fires on DELETE, one that reads the old object, and one that does neither."""
    return make.index(
        make.policy(
            "deleted",
            uid="deleted-uid",
            resources=DELETES,
            patch={"data": {"a": "{{ request.object.data.a }}"}},
        ),
        make.policy("changed", uid="changed-uid", patch={"data": {"a": OLD}}),
        make.policy("plain", uid="plain-uid"),
    )


@pytest.fixture
async def world(rules: PolicyStore) -> AsyncIterator[World]:
    async with World(rules) as world:
        yield world


def stored(world, make, **params):
    return world.cluster.add(make.thing(data={"a": "true"}, **params))


async def policies(world):
    return sorted(item.spec.policy.key for item in await world.stored())


async def send(world, make, operation, old, obj=None):
    status, response = await world.post("/validate/fail", make.review(operation, obj, old))
    assert status == 200
    return response["response"]


async def test_the_deletion_of_an_object_that_never_existed_is_not_recorded(world, make):
    forged = make.thing(name="invented", data=FORGED, metadata={"resourceVersion": "7"})
    assert (await send(world, make, "DELETE", forged))["allowed"] is True
    assert await world.stored() == []
    assert world.count("reviews_disbelieved_total", operation="DELETE") == 1


@pytest.mark.parametrize("operation", ["DELETE", "UPDATE"])
async def test_an_old_object_without_a_name_is_not_believed(world, make, operation):
    forged = make.thing(name="", data=FORGED, metadata={"resourceVersion": "7"})
    await send(world, make, operation, forged, forged if operation == "UPDATE" else None)
    assert {"deleted", "changed"}.isdisjoint(await policies(world))
    assert world.count("reviews_disbelieved_total", operation=operation) == 1


async def test_a_deleted_object_is_recorded_as_it_was_stored(world, make):
    old = stored(world, make)
    forged = {**old, "data": FORGED}
    await send(world, make, "DELETE", forged)
    (request,) = await world.stored()
    assert request.spec.recorded["object"]["data"] == {"a": "true"}


async def test_the_old_object_of_an_update_is_recorded_as_it_was_stored(world, make):
    old = stored(world, make)
    await send(world, make, "UPDATE", {**old, "data": FORGED}, {**old, "data": {"a": "new"}})
    recorded = {item.spec.policy.key: item.spec.recorded for item in await world.stored()}
    assert recorded == {"changed": {"oldObject": {"data": {"a": "true"}}}, "plain": None}


@pytest.mark.parametrize("part", ["uid", "resourceVersion"])
async def test_a_stale_old_object_fires_only_rules_that_do_not_need_it(world, make, part):
    old = stored(world, make)
    stale = {**old, "metadata": {**old["metadata"], part: "another"}}
    await send(world, make, "DELETE", stale)
    assert await world.stored() == []
    # A rule that reads the trigger when it is processed does not rely on the review's old object.
    await send(world, make, "UPDATE", stale, {**stale, "data": {"a": "new"}})
    assert await policies(world) == ["plain"]
    assert world.count("reviews_disbelieved_total", operation="DELETE") == 1


async def test_a_kind_that_does_not_match_the_resource_is_not_believed(world, make):
    secret = world.cluster.add(make.thing(kind="Secret", name="dict"))
    old = make.thing(name="dict", data=FORGED, metadata=secret["metadata"])
    resource = {"group": "", "version": "v1", "resource": "secrets"}
    review = make.review("DELETE", None, old, resource=resource)
    await world.post("/validate/fail", review)
    assert await world.stored() == []


async def test_without_read_access_the_object_is_recorded_unverified_and_counted(world, make):
    old = stored(world, make)
    world.cluster.forbid("get", "configmaps")
    await send(world, make, "DELETE", old)
    assert await policies(world) == ["deleted"]
    assert world.count("reviews_unverified_total") == 1


async def test_a_review_from_a_caller_with_a_certificate_causes_no_read(rules, make):
    async with World(rules, callers=Callers()) as world:
        world.cluster.forbid("get", "configmaps")
        old = make.thing(data={"a": "true"}, metadata={"resourceVersion": "7"})
        await send(world, make, "DELETE", old)
        assert await policies(world) == ["deleted"]
        assert world.count("reviews_unverified_total") == 0
