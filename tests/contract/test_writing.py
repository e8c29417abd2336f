"""Writing objects, in every adapter."""

import contextlib
import copy
from dataclasses import replace

import pytest

from reconciler.api.meta import Kind
from reconciler.errors import Conflict, Denied, Forbidden, Invalid, NotFound

CONFIG_MAPS = Kind(group="", version="v1", kind="ConfigMap", plural="configmaps", namespaced=True)
WIDGETS = Kind(
    group="contract.example", version="v1", kind="Widget", plural="widgets", namespaced=True
)
DEPLOYMENTS = Kind(
    group="apps", version="v1", kind="Deployment", plural="deployments", namespaced=True
)
POD = {
    "metadata": {"labels": {"app": "a"}},
    "spec": {"containers": [{"name": "main", "image": "example/image"}]},
}


def changed(obj, *path, to):
    after = copy.deepcopy(obj)
    place = after
    for part in path[:-1]:
        place = place.setdefault(part, {})
    place[path[-1]] = to
    return after


def without(obj, *path):
    after = copy.deepcopy(obj)
    place = after
    for part in path[:-1]:
        place = place[part]
    del place[path[-1]]
    return after


async def test_a_change_is_stored_and_returned(world):
    before = await world.create(CONFIG_MAPS, "a", data={"x": "1", "y": "1"})
    after = without(changed(before, "data", "x", to="2"), "data", "y")
    written = await world.writer.change(CONFIG_MAPS, before, after)
    assert written["data"] == {"x": "2"}
    assert written["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]
    assert written["metadata"]["uid"] == before["metadata"]["uid"]
    assert await world.reader.get(CONFIG_MAPS, world.namespace, "a") == written


async def test_an_unchanged_object_is_not_sent(world):
    before = await world.create(CONFIG_MAPS, "a", data={"x": "1"})
    sent = world.writes()
    assert await world.writer.change(CONFIG_MAPS, before, copy.deepcopy(before)) == before
    assert world.writes() == sent


async def test_a_stale_merge_patch_is_a_conflict(world):
    before = await world.create(CONFIG_MAPS, "a", data={"x": "1"})
    await world.writer.change(CONFIG_MAPS, before, changed(before, "data", "y", to="2"))
    with pytest.raises(Conflict):
        await world.writer.change(CONFIG_MAPS, before, changed(before, "data", "x", to="3"))
    stored = await world.reader.get(CONFIG_MAPS, world.namespace, "a")
    assert stored["data"] == {"x": "1", "y": "2"}


async def test_a_null_is_stored(world):
    before = await world.create(WIDGETS, "a", spec={"note": "x", "size": 1})
    written = await world.writer.change(WIDGETS, before, changed(before, "spec", "note", to=None))
    assert written["spec"] == {"note": None, "size": 1}


async def test_a_stale_json_patch_is_a_conflict(world):
    before = await world.create(WIDGETS, "a", spec={"note": "x", "size": 1})
    await world.writer.change(WIDGETS, before, changed(before, "spec", "size", to=2))
    with pytest.raises(Conflict):
        await world.writer.change(WIDGETS, before, changed(before, "spec", "note", to=None))


async def test_a_stale_json_patch_that_no_longer_fits_is_a_conflict(world):
    before = await world.create(WIDGETS, "a", spec={"note": "x", "size": 1})
    await world.writer.change(WIDGETS, before, without(before, "spec", "size"))
    after = without(changed(before, "spec", "note", to=None), "spec", "size")
    with pytest.raises(Conflict):
        await world.writer.change(WIDGETS, before, after)


async def test_a_change_of_a_deleted_object_is_not_found(world):
    before = await world.create(CONFIG_MAPS, "a", data={"x": "1"})
    await world.delete(CONFIG_MAPS, "a")
    with pytest.raises(NotFound):
        await world.writer.change(CONFIG_MAPS, before, changed(before, "data", "x", to="2"))


async def test_a_change_of_a_recreated_object_is_a_conflict(world):
    before = await world.create(CONFIG_MAPS, "a", data={"x": "1"})
    await world.delete(CONFIG_MAPS, "a")
    await world.create(CONFIG_MAPS, "a", data={"x": "1"})
    with pytest.raises(Conflict):
        await world.writer.change(CONFIG_MAPS, before, changed(before, "data", "x", to="2"))


async def test_an_object_without_version_cannot_be_changed(world):
    before = await world.create(CONFIG_MAPS, "a", data={"x": "1"})
    before = without(before, "metadata", "resourceVersion")
    with pytest.raises(Invalid, match="resourceVersion"):
        await world.writer.change(CONFIG_MAPS, before, changed(before, "data", "x", to="2"))


async def test_the_status_is_written_through_its_subresource_only(world):
    status = replace(WIDGETS, subresource="status")
    before = await world.create(WIDGETS, "a", spec={"size": 1})
    after = changed(changed(before, "status", "ready", to=True), "spec", "size", to=2)
    written = await world.writer.change(status, before, after)
    assert (written["spec"], written["status"]) == ({"size": 1}, {"ready": True})
    assert written["metadata"]["generation"] == 1
    after = changed(changed(written, "status", "ready", to=False), "spec", "size", to=3)
    written = await world.writer.change(WIDGETS, written, after)
    assert (written["spec"], written["status"]) == ({"size": 3}, {"ready": True})
    assert written["metadata"]["generation"] == 2


async def test_a_scale_subresource_is_read_and_written_as_a_scale(world):
    scale = replace(DEPLOYMENTS, subresource="scale")
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "a"}}, "template": POD}
    await world.create(DEPLOYMENTS, "a", spec=spec, metadata={"annotations": {"keep": "me"}})
    written = None
    while written is None:  # until no write of the deployment controller conflicts
        before = await world.reader.get(scale, world.namespace, "a")
        assert (before["apiVersion"], before["kind"]) == ("autoscaling/v1", "Scale")
        assert before["spec"]["replicas"] == 1
        after = changed(before, "spec", "replicas", to=0)
        with contextlib.suppress(Conflict):
            written = await world.writer.change(scale, before, after)
    assert written["spec"].get("replicas", 0) == 0
    parent = await world.reader.get(DEPLOYMENTS, world.namespace, "a")
    assert parent["spec"]["replicas"] == 0
    assert parent["metadata"]["annotations"]["keep"] == "me"


async def test_where_only_update_is_granted_the_whole_object_is_put(world):
    poor = await world.limited("configmaps", ["get", "list", "create", "update", "delete"])
    before = await world.create(CONFIG_MAPS, "a", data={"x": "1"})
    written = await poor.writer.change(CONFIG_MAPS, before, changed(before, "data", "x", to="2"))
    again = await poor.writer.change(CONFIG_MAPS, written, changed(written, "data", "x", to="3"))
    assert again["data"] == {"x": "3"}
    with pytest.raises(Conflict):
        await poor.writer.change(CONFIG_MAPS, before, changed(before, "data", "x", to="4"))


async def test_a_forbidden_error_names_the_patch_right(world):
    before = await world.create(CONFIG_MAPS, "a", data={"x": "1"})
    poor = await world.limited("configmaps", ["get", "list", "create", "delete"])
    with pytest.raises(Forbidden) as caught:
        await poor.writer.change(CONFIG_MAPS, before, changed(before, "data", "x", to="2"))
    assert caught.value.permission == f"patch configmaps in namespace {world.namespace}"


async def test_a_write_that_another_policy_refuses_is_denied(world):
    before = await world.create(CONFIG_MAPS, "a", data={"x": "1"})
    await world.deny("configmaps", "not on a Friday")
    with pytest.raises(Denied, match="not on a Friday"):
        await world.writer.change(CONFIG_MAPS, before, changed(before, "data", "x", to="2"))
