"""The operations in a hook's answer on every adapter, with the public conformance cases."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from reconciler.api.meta import CONFIG_MAPS, Kind
from reconciler.errors import AlreadyExists, Conflict, Invalid, NotFound, Unavailable
from reconciler.isolation.jq import JqWorkers
from reconciler.services.catalog.protection import Protection
from reconciler.services.hooks.operations import OperationRunner
from reconciler.services.ports.objects import Propagation
from tests.conformance.dialects.cases import CASES, Case
from tests.conformance.dialects.shell_operator import own_part
from tests.contract.conftest import World
from tests.operations import parse_operations

EXECUTED = [
    pytest.param(param.values[1], id=param.id)
    for param in CASES
    if param.values[0] == "shell-operator/operations" and param.values[1]["kind"] == "execute"
]


@asynccontextmanager
async def runner_of(world: World) -> AsyncIterator[OperationRunner]:
    jq = JqWorkers(workers=1)
    collecting = asyncio.create_task(_collect(world))
    try:
        yield OperationRunner(
            kinds=world.kinds,
            reader=world.reader,
            writer=world.writer,
            operations=world.operations,
            jq=jq,
        )
    finally:
        collecting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await collecting
        await jq.close()


async def _collect(world: World) -> None:
    """Finish foreground deletions: the local control plane has no garbage collector."""
    while True:
        page = await world.reader.list_page(CONFIG_MAPS, namespace=world.namespace)
        for obj in page.items:
            if "foregroundDeletion" in (obj["metadata"].get("finalizers") or ()):
                patch = {"metadata": {"finalizers": None}}
                with contextlib.suppress(NotFound):
                    name = obj["metadata"]["name"]
                    await world.operations.merge_patch(CONFIG_MAPS, world.namespace, name, patch)
        await asyncio.sleep(0.05)


async def errors_of(world: World, text: str) -> list[Any]:
    async with runner_of(world) as runner:
        results = await runner.run(parse_operations(text.replace("NAMESPACE", world.namespace)))
        return [result.error for result in results]


async def data_of(world: World, name: str) -> Any:
    return (await world.reader.get(CONFIG_MAPS, world.namespace, name))["data"]


async def test_an_object_without_a_name_gets_one_that_begins_as_it_says(world: World) -> None:
    meta = {"generateName": "made-", "namespace": world.namespace}
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}
    names = {
        (await world.operations.create(CONFIG_MAPS, obj))["metadata"]["name"] for _ in range(2)
    }
    assert len(names) == 2
    assert all(len(name) > len("made-") == name.index("-") + 1 for name in names)


@pytest.mark.parametrize("case", EXECUTED)
async def test_a_public_conformance_case_leaves_the_expected_objects(
    world: World, case: Case
) -> None:
    here = json.loads(json.dumps(case).replace("default", world.namespace))
    given, wanted = here["input"], here["expected"]
    for obj in given["stored"]:
        await world.create(CONFIG_MAPS, obj["metadata"]["name"], data=obj["data"])
    if wanted["accepted"]:
        errors = await errors_of(world, given["text"])
        assert any(errors) is wanted["error"]
    page = await world.reader.list_page(CONFIG_MAPS, namespace=world.namespace)
    found = [own_part(obj) for obj in page.items if obj["metadata"]["name"] != "kube-root-ca.crt"]
    assert found == sorted(wanted["stored"], key=lambda obj: str(obj["metadata"]["name"]))


@pytest.mark.parametrize("name", ["ConfigMap", "configmap", "CONFIGMAPS", "cm"])
@pytest.mark.parametrize("api_version", ["", "v1"])
async def test_a_kind_is_found_by_its_kind_plural_or_short_name(
    world: World, api_version: str, name: str
) -> None:
    assert await world.kinds.named(api_version, name) == CONFIG_MAPS


async def test_a_kind_name_without_a_version_means_the_preferred_version(world: World) -> None:
    deployments = Kind(
        group="apps", version="v1", kind="Deployment", plural="deployments", namespaced=True
    )
    assert await world.kinds.named("", "deploy") == deployments
    assert await world.kinds.named("", "Events") == Kind(
        group="", version="v1", kind="Event", plural="events", namespaced=True
    )
    assert await world.kinds.named("", "nothing") is None
    assert await world.kinds.named("apps/v2", "Deployment") is None


async def test_creating_an_existing_and_patching_a_missing_object_are_refused(
    world: World,
) -> None:
    obj = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": world.namespace},
        "data": {"x": "1"},
    }
    stored = await world.operations.create(CONFIG_MAPS, obj)
    assert stored["metadata"]["uid"]
    with pytest.raises(AlreadyExists):
        await world.operations.create(CONFIG_MAPS, obj)
    with pytest.raises(NotFound):
        await world.operations.merge_patch(CONFIG_MAPS, world.namespace, "b", {})
    step = {"op": "test", "path": "/data/x", "value": "2"}
    with pytest.raises(Invalid):
        await world.operations.json_patch(CONFIG_MAPS, world.namespace, "a", [step])
    with pytest.raises(NotFound):
        await world.operations.delete(CONFIG_MAPS, world.namespace, "b", Propagation.FOREGROUND)


async def test_a_foreground_deletion_fails_while_a_finalizer_remains(world: World) -> None:
    await world.create(CONFIG_MAPS, "a", metadata={"finalizers": ["example.com/stays"]})
    with pytest.raises(Unavailable, match=r"still exists|finalizer"):
        await world.operations.delete(CONFIG_MAPS, world.namespace, "a", Propagation.FOREGROUND)
    await world.operations.delete(CONFIG_MAPS, world.namespace, "a", Propagation.BACKGROUND)


async def test_a_jq_patch_keeps_integers_beyond_double_precision(world: World) -> None:
    kind = Kind(
        group="contract.example", version="v1", kind="Widget", plural="widgets", namespaced=True
    )
    await world.create(kind, "a", spec={"size": 9007199254740993})
    text = """
operation: JQPatch
apiVersion: contract.example/v1
kind: widget
namespace: NAMESPACE
name: a
jqFilter: .spec.note = "seen"
"""
    assert await errors_of(world, text) == [None]
    found = await world.reader.get(kind, world.namespace, "a")
    assert found["spec"] == {"size": 9007199254740993, "note": "seen"}


async def test_a_status_is_patched_as_a_subresource(world: World) -> None:
    kind = Kind(
        group="contract.example", version="v1", kind="Widget", plural="widgets", namespaced=True
    )
    await world.create(kind, "a", spec={"size": 1})
    text = """
{operation: MergePatch, kind: Widget, namespace: NAMESPACE, name: a, subresource: /status,
 mergePatch: {status: {ready: true}, spec: {size: 2}}}
---
{operation: JQPatch, kind: Widget, namespace: NAMESPACE, name: a, subresource: status,
 jqFilter: '.status.ready |= not | .spec.size = 3'}
"""
    assert await errors_of(world, text) == [None, None]
    found = await world.reader.get(kind, world.namespace, "a")
    assert (found["spec"], found["status"]) == ({"size": 1}, {"ready": False})


async def test_a_failed_operation_does_not_stop_the_later_ones(world: World) -> None:
    text = """
{operation: Create, object: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}}
---
{operation: Create, object: "kind: ["}
---
{operation: MergePatch, kind: Nothing, namespace: NAMESPACE, name: a, mergePatch: {data: {}}}
---
{operation: JQPatch, kind: cm, namespace: NAMESPACE, name: a, jqFilter: input}
---
operation: CreateOrUpdate
object:
  apiVersion: v1
  kind: ConfigMap
  metadata: {name: b, namespace: NAMESPACE}
  data: {x: "1"}
"""
    errors = await errors_of(world, text)
    assert [error is None for error in errors] == [False, False, False, False, True]
    assert await data_of(world, "b") == {"x": "1"}


async def test_create_or_update_removes_the_old_labels_annotations_and_data(world: World) -> None:
    before = await world.create(
        CONFIG_MAPS,
        "a",
        metadata={"labels": {"old": "1"}, "annotations": {"old": "1"}},
        data={"old": "1"},
    )
    text = """
operation: CreateOrUpdate
object:
  apiVersion: v1
  kind: ConfigMap
  metadata: {name: a, namespace: NAMESPACE, resourceVersion: "1", labels: {new: "1"}}
  data: {new: "1"}
"""
    assert await errors_of(world, text) == [None]
    after = await world.reader.get(CONFIG_MAPS, world.namespace, "a")
    assert after["data"] == {"new": "1"}
    assert after["metadata"]["labels"] == {"new": "1"}
    assert not after["metadata"].get("annotations")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


async def test_concurrent_jq_patches_of_one_object_lose_no_change(world: World) -> None:
    await world.create(CONFIG_MAPS, "a", data={"count": "0"})
    text = """
operation: JQPatch
kind: ConfigMap
namespace: NAMESPACE
name: a
jqFilter: .data.count |= (tonumber + 1 | tostring)
"""
    both = await asyncio.gather(*(errors_of(world, text) for _ in range(4)))
    done = [errors for errors in both if errors == [None]]
    assert all(isinstance(error, Conflict) for errors in both for error in errors if error)
    assert await data_of(world, "a") == {"count": str(len(done))}


HELD = {"finalizers": ["example.com/held"]}
AT = "kind: cm, namespace: NAMESPACE, name: a"
MOVE = "{op: move, from: any/metadata/finalizers, path: /metadata/labels, value: ''}"
FREEING = [
    f"{{operation: MergePatch, {AT}, mergePatch: {{metadata: {{finalizers: null}}}}}}",
    f"{{operation: MergePatch, {AT}, mergePatch: '{{metadata: null}}'}}",
    f"{{operation: JSONPatch, {AT}, jsonPatch: '[{{op: remove, path: /metadata/finalizers/0}}]'}}",
    f"{{operation: JSONPatch, {AT}, jsonPatch: [{MOVE}]}}",
    f"{{operation: JSONPatch, {AT}, jsonPatch: '[{{op: add, path: /metadata, value: {{}}}}]'}}",
    f"{{operation: JQPatch, {AT}, jqFilter: del(.metadata.finalizers)}}",
    """
    operation: CreateOrUpdate
    object:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: a, namespace: NAMESPACE, finalizers: []}
    """,
]


@pytest.mark.parametrize("text", FREEING)
async def test_no_operation_changes_protected_finalizers(world: World, text: str) -> None:
    await world.create(CONFIG_MAPS, "a", metadata=HELD)
    operations = parse_operations(text.replace("NAMESPACE", world.namespace))
    async with runner_of(world) as runner:
        (result,) = await replace(runner, protection=Protection()).run(operations)
        assert "no patch changes metadata." in str(result.error)
        kept = await world.reader.get(CONFIG_MAPS, world.namespace, "a")
        assert kept["metadata"]["finalizers"] == HELD["finalizers"]
    freed = {"metadata": {"finalizers": None}}
    await world.operations.merge_patch(CONFIG_MAPS, world.namespace, "a", freed)


async def test_create_or_update_without_finalizers_keeps_the_protected_ones(world: World) -> None:
    await world.create(CONFIG_MAPS, "a", metadata=HELD, data={"old": "1"})
    text = """
operation: CreateOrUpdate
object:
  apiVersion: v1
  kind: ConfigMap
  metadata: {name: a, namespace: NAMESPACE}
  data: {n: "1"}
"""
    operations = parse_operations(text.replace("NAMESPACE", world.namespace))
    async with runner_of(world) as runner:
        (result,) = await replace(runner, protection=Protection()).run(operations)
    assert result.error is None
    after = await world.reader.get(CONFIG_MAPS, world.namespace, "a")
    assert after["data"] == {"n": "1"}
    assert after["metadata"]["finalizers"] == HELD["finalizers"]
    freed = {"metadata": {"finalizers": None}}
    await world.operations.merge_patch(CONFIG_MAPS, world.namespace, "a", freed)
