"""The API calls that a change results in."""

import asyncio

import pytest

from reconciler.api.meta import Kind
from reconciler.errors import Conflict, Forbidden, Invalid
from reconciler.kube.client import Client
from reconciler.kube.decoding import encode
from reconciler.kube.writer import KubeWriter
from tests.holding import holds
from tests.unit.kube.conftest import StillClock

CONFIG_MAPS = Kind(group="", version="v1", kind="ConfigMap", plural="configmaps", namespaced=True)
PATH = "/api/v1/namespaces/a/configmaps/b"
BEFORE = {"metadata": {"namespace": "a", "name": "b", "resourceVersion": "7"}, "data": {"x": "1"}}
AFTER = {**BEFORE, "data": {"x": "2"}}
NULL = {**BEFORE, "data": {"x": None}}
NOT_ALLOWED = 'configmaps "b" is forbidden: User "u" cannot patch resource "configmaps"'
FORBIDDEN = (403, {"kind": "Status", "message": NOT_ALLOWED})
NEW = {"metadata": {"resourceVersion": "8"}}


@pytest.fixture
def writer(client: Client, clock: StillClock) -> KubeWriter:
    return KubeWriter(client, clock)


async def test_a_merge_patch_contains_the_resource_version(api, writer):
    api.answer(f"PATCH {PATH}", NEW)
    assert await writer.change(CONFIG_MAPS, BEFORE, AFTER) == NEW
    (seen,) = api.seen
    assert seen.body == {"metadata": {"resourceVersion": "7"}, "data": {"x": "2"}}
    assert seen.headers["Content-Type"] == "application/merge-patch+json"
    assert seen.query == {"fieldManager": "kube-retrofit", "fieldValidation": "Strict"}


async def test_a_null_is_sent_as_a_json_patch_that_replaces_the_version_first(api, writer):
    api.answer(f"PATCH {PATH}", NEW)
    await writer.change(CONFIG_MAPS, BEFORE, NULL)
    (seen,) = api.seen
    assert seen.body == [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "replace", "path": "/data/x", "value": None},
    ]
    assert seen.headers["Content-Type"] == "application/json-patch+json"


@pytest.mark.parametrize(("stored", "error"), [("7", Invalid), ("8", Conflict)])
async def test_a_refused_json_patch_is_a_conflict_if_the_object_changed(
    api, writer, stored, error
):
    api.answer(f"PATCH {PATH}", (422, b""))
    api.answer(f"GET {PATH}", {"metadata": {"resourceVersion": stored}})
    with pytest.raises(error):
        await writer.change(CONFIG_MAPS, BEFORE, NULL)


async def test_update_is_used_for_a_while_after_patch_was_forbidden(api, writer, clock):
    api.answer(f"PATCH {PATH}", FORBIDDEN)
    api.answer(f"PUT {PATH}", NEW)
    for _ in range(3):
        await writer.change(CONFIG_MAPS, BEFORE, AFTER)
    assert [call.method for call in api.seen] == ["PATCH", "PUT", "PUT", "PUT"]
    assert api.seen[-1].body == AFTER
    clock.seconds += 301
    await writer.change(CONFIG_MAPS, BEFORE, AFTER)
    assert [call.method for call in api.seen[4:]] == ["PATCH", "PUT"]


async def test_patch_is_tried_again_after_update_is_forbidden(api, writer):
    api.answer(f"PATCH {PATH}", FORBIDDEN, NEW)
    api.answer(f"PUT {PATH}", NEW, FORBIDDEN)
    await writer.change(CONFIG_MAPS, BEFORE, AFTER)
    assert await writer.change(CONFIG_MAPS, BEFORE, AFTER) == NEW
    assert [call.method for call in api.seen] == ["PATCH", "PUT", "PUT", "PATCH"]


async def test_two_updates_that_are_forbidden_at_the_same_time_are_both_tried_as_patches(
    api, writer
):
    api.answer(f"PATCH {PATH}", FORBIDDEN, NEW)
    api.answer(f"PUT {PATH}", NEW, FORBIDDEN)
    await writer.change(CONFIG_MAPS, BEFORE, AFTER)
    changes = (writer.change(CONFIG_MAPS, BEFORE, AFTER) for _ in range(2))
    assert await asyncio.gather(*changes) == [NEW, NEW]


async def test_no_deleted_namespace_is_remembered(api, writer, clock):
    for namespace in ("gone", "a"):
        path = PATH.replace("/a/", f"/{namespace}/")
        api.answer(f"PATCH {path}", FORBIDDEN)
        api.answer(f"PUT {path}", NEW)
        before, after = (
            {**obj, "metadata": {**obj["metadata"], "namespace": namespace}}
            for obj in (BEFORE, AFTER)
        )
        await writer.change(CONFIG_MAPS, before, after)
        clock.seconds += 301
    assert holds(writer, "a")
    assert not holds(writer, "gone")


async def test_the_patch_permission_is_named_if_neither_verb_is_granted(api, writer):
    api.answer(f"PATCH {PATH}", FORBIDDEN)
    api.answer(f"PUT {PATH}", FORBIDDEN)
    with pytest.raises(Forbidden) as caught:
        await writer.change(CONFIG_MAPS, BEFORE, AFTER)
    assert caught.value.permission == "patch configmaps in namespace a"


@pytest.mark.parametrize("value", [2**64, "\udc2a", {1: 2}])
def test_a_value_that_json_cannot_represent_is_invalid(value):
    with pytest.raises(Invalid, match="cannot be written as JSON"):
        encode({"a": value})
