"""Objects nested as deeply as the API server allows: reviews are answered, no trigger is lost."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from reconciler.api.meta import Object
from reconciler.api.updaterequest import State
from reconciler.errors import ClusterError
from tests.faults.rig import Rig, config_map, rule, target

pytestmark = pytest.mark.cluster


def definition(group: str) -> Object:
    """Return the CRD of a kind without a schema."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"gadgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"},
            "versions": [version],
        },
    }


@pytest.fixture
async def group(rig: Rig) -> AsyncIterator[str]:
    """The API group of a kind without a schema, which the controller may read."""
    name = f"{rig.namespace}.example"
    await rig.create(definition(name))
    await rig.learn(f"{name}/v1", "Gadget")
    async with rig.granted(f"gadgets.{name}"):
        yield name
    await rig.delete("CustomResourceDefinition", f"gadgets.{name}", "")


async def gadget(rig: Rig, group: str, name: str, levels: int) -> None:
    """Create an object whose spec is nested to ``levels`` levels."""
    meta = {"name": name, "namespace": rig.namespace}
    shown = {"apiVersion": f"{group}/v1", "kind": "Gadget", "metadata": meta, "spec": "DEEP"}
    deep = '{"a":' * levels + "1" + "}" * levels
    text = json.dumps(shown).replace('"DEEP"', deep)
    words = ("create", "--validate=false", "-f", "-")
    await asyncio.to_thread(rig.cluster.kubectl, *words, stdin=text)


async def test_triggers_below_the_depth_limit_are_applied_and_deeper_ones_fail(
    rig: Rig, group: str
) -> None:
    place = rig.namespace
    got = {"data": {"got": "{{ request.object.metadata.name }}"}}
    shown = target(place, "target-{{ request.object.metadata.name }}")
    await rig.apply(rule(place, [shown], got, kinds=[f"{group}/v1/Gadget"]))
    names = {"trigger-300": 300, "trigger-450": 450, "trigger-2000": 2_000, "trigger-9000": 9_000}
    await rig.create_all(config_map(place, f"target-{name}") for name in names)
    for name, levels in names.items():
        await gadget(rig, group, name, levels)
    read = {f"target-{name}": {"got": name} for name in ("trigger-300", "trigger-450")}
    await rig.applied(read, within=20)
    await rig.finish(len(names))
    failed = await rig.requests(state=State.FAILED)
    assert {item.spec.resource.name for item in failed} == {"trigger-2000", "trigger-9000"}
    for item in failed:
        assert item.status.reason == "TooDeep"
        assert "nested deeper than 500 levels" in item.status.message


async def test_a_deletion_that_would_record_too_deep_fields_is_refused_with_advice(
    rig: Rig, group: str
) -> None:
    place = rig.namespace
    got = {"data": {"got": "{{ to_string(request.object.spec) }}"}}
    on: dict[str, Any] = {"kinds": [f"{group}/v1/Gadget"], "operations": ["DELETE"]}
    await rig.apply(rule(place, [target(place, "target")], got, **on))
    await gadget(rig, group, "trigger-300", 300)
    with pytest.raises(ClusterError, match=r"nested more deeply than 250 levels.*exclude"):
        await rig.delete("Gadget", "trigger-300")
    assert await rig.find("Gadget", "trigger-300")
    assert await rig.requests() == []
    await rig.apply(rule(place, [target(place, "target")], {"data": {"got": "it"}}, **on))

    async def kept() -> str:
        try:
            await rig.delete("Gadget", "trigger-300")
        except ClusterError as error:
            return str(error)
        return ""

    await rig.settle(kept, within=20)
    await rig.finish()
