"""Hooks of a tenant do not act outside their namespace, whatever rights the controller has."""

import json
import uuid
from collections.abc import AsyncIterator, Sequence

import pytest

from reconciler.api.meta import Object
from reconciler.errors import ClusterError
from tests.faults.hooked import create, following, hook, seed, seeds, status_of, with_hooks
from tests.faults.rig import Rig, config_map

pytestmark = pytest.mark.cluster


@pytest.fixture
async def rig(rig: Rig) -> AsyncIterator[Rig]:
    """The rig of a cluster that serves Hooks."""
    async with with_hooks(rig) as found:
        yield found


def elsewhere(place: str) -> list[Object]:
    """Return operations whose text does not show that they affect another namespace."""
    quoted = f"{{{{ '{place}' }}}}"
    named = create("stolen")
    named["object"]["metadata"]["namespace"] = quoted
    text = f"{{apiVersion: v1, kind: ConfigMap, metadata: {{name: x, namespace: {place}}}}}"
    kept = {"kind": "ConfigMap", "namespace": quoted, "name": "kept"}
    return [
        named,
        {"operation": "Create", "object": text},
        {**named, "operation": "CreateOrUpdate"},
        {**kept, "operation": "MergePatch", "mergePatch": {"data": {"a": "b"}}},
        {**kept, "operation": "JQPatch", "kind": "cm", "jqFilter": '.data.a = "b"'},
        {**kept, "operation": "Delete"},
        {"operation": "DeleteInBackground", "kind": "{{ 'Namespace' }}", "name": place},
    ]


async def tried(rig: Rig, name: str, operations: Sequence[Object]) -> list[str]:
    """Run a hook per operation for one event, each in its own queue, and return their names."""
    names = [f"{name}-{index}" for index in range(len(operations))]
    for own, operation in zip(names, operations, strict=True):
        run = {"foreach": "contexts[?type=='Event']", "operations": [operation]}
        binding = seeds(queue=own)
        await rig.create(hook(rig.namespace, own, kubernetes=[binding], run=run))
    await following(rig, *names)
    await rig.create(seed(rig.namespace, "go"))
    return names


async def test_no_operation_of_a_hook_affects_another_namespace(rig: Rig) -> None:
    place = f"other-{uuid.uuid4().hex[:8]}"
    await rig.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}})
    await rig.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept", "namespace": place}}
    )
    names = await tried(rig, "thief", elsewhere(place))

    async def silent() -> list[str]:
        found = {name: await status_of(rig, name) for name in names}
        return [
            name
            for name, status in found.items()
            if "use a ClusterHook" not in status.get("message", "")
        ]

    await rig.settle(silent, within=30.0)
    left = await rig.items("ConfigMap", place)
    there = {item["metadata"]["name"]: item.get("data") for item in left}
    assert there.pop("kept", "gone") is None
    assert not {"stolen", "x"} & there.keys()
    assert await rig.find("Namespace", place, "") is not None


async def test_a_hook_cannot_create_objects_in_the_namespace_of_kube_retrofit(rig: Rig) -> None:
    own = create("intruder")
    own["object"]["metadata"]["namespace"] = "{{ 'kyverno' }}"
    run = {"operations": [own]}
    name = f"intruder-{uuid.uuid4().hex[:8]}"
    await rig.create(hook("", name, onStartup=1, run=run))

    async def silent() -> object:
        status = (await rig.get("ClusterHook", name, "")).get("status") or {}
        return "" if "belongs to kube-retrofit" in status.get("message", "") else status

    await rig.settle(silent, within=30.0)
    assert await rig.find("ConfigMap", "intruder", "kyverno") is None
    await rig.delete("ClusterHook", name, "")


HELD = {"kind": "ConfigMap", "name": "held"}
FREED = "{{ `[]` }}"
FREEING: list[Object] = [
    {**HELD, "operation": "MergePatch", "mergePatch": "metadata:\n  {{ 'finalizers' }}: null\n"},
    {
        **HELD,
        "operation": "JSONPatch",
        "jsonPatch": [{"op": "remove", "path": "{{ '/metadata/finalizers' }}", "value": ""}],
    },
    {**HELD, "operation": "JQPatch", "jqFilter": "del(.metadata.finalizers)"},
    {
        "operation": "CreateOrUpdate",
        "object": {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "held", "finalizers": FREED, "ownerReferences": FREED},
        },
    },
]
"""Operations by which the controller's rights would delete, or keep, another user's object."""


async def test_a_hook_cannot_remove_finalizers_and_owners(rig: Rig) -> None:
    await rig.create(config_map(rig.namespace, "owner"))
    owner = await rig.get("ConfigMap", "owner")
    uid = owner["metadata"]["uid"]
    owners = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}]
    held = config_map(rig.namespace, "held")
    held["metadata"] |= {"finalizers": ["example.com/held"], "ownerReferences": owners}
    await rig.create(held)
    names = await tried(rig, "free", FREEING)

    async def silent() -> list[str]:
        found = [(await status_of(rig, name)).get("message", "") for name in names]
        return [said for said in found if "no patch changes metadata.finalizers" not in said]

    await rig.settle(silent, within=30.0)
    kept = (await rig.get("ConfigMap", "held"))["metadata"]
    assert (kept["finalizers"], kept["ownerReferences"]) == (["example.com/held"], owners)
    await rig.merge("ConfigMap", "held", {"metadata": {"finalizers": None}})


async def test_a_hook_that_names_another_namespace_is_refused_with_the_field(rig: Rig) -> None:
    named = create("stolen")
    named["object"]["metadata"]["namespace"] = "default"
    with pytest.raises(ClusterError) as caught:
        await rig.create(
            hook(rig.namespace, "thief", kubernetes=[seeds()], run={"operations": [named]})
        )
    assert "spec.run.operations[0].object.metadata.namespace" in str(caught.value)


async def test_a_hook_does_nothing_that_its_author_may_not_do(rig: Rig) -> None:
    rules = [{"apiGroups": ["kube-retrofit.dev"], "resources": ["hooks"], "verbs": ["create"]}]
    meta = {"name": "writes-hooks", "namespace": rig.namespace}
    rig.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(_role(meta, rules)))
    written = json.dumps(
        hook(rig.namespace, "thief", kubernetes=[seeds()], run={"operations": [create("made")]})
    )
    with pytest.raises(ClusterError, match="'mallory' may not list configmaps") as caught:
        rig.cluster.kubectl("create", "--as", "mallory", "-f", "-", stdin=written)
    assert "may not create configmaps" in str(caught.value)


def _role(meta: Object, rules: list[Object]) -> Object:
    group = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": meta, "rules": rules}
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": group, "kind": "Role", "name": meta["name"]},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "mallory"}],
    }
    return {"apiVersion": "v1", "kind": "List", "items": [role, binding]}
