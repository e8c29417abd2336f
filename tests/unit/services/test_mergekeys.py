"""The source of the merge keys that the processing of a request uses."""

from dataclasses import dataclass

import pytest

from reconciler.api.meta import Object
from reconciler.engine.patch import KeyTable
from reconciler.memory.cluster import MemoryCluster
from tests.unit.services.conftest import World

DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "gates.acme.io"},
    "spec": {
        "group": "acme.io",
        "scope": "Namespaced",
        "names": {"kind": "Gate", "plural": "gates"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "properties": {
                            "routes": {
                                "type": "array",
                                "x-kubernetes-list-type": "map",
                                "x-kubernetes-list-map-keys": ["host"],
                                "items": {"type": "object"},
                            }
                        }
                    }
                },
            }
        ],
    },
}
TARGET = {"apiVersion": "acme.io/v1", "kind": "Gate", "namespace": "a", "name": "g"}
PATCH = {"routes": [{"host": "two", "open": True}]}


@dataclass
class Asked:
    """The merge keys of the cluster, and the number of calls for them."""

    cluster: MemoryCluster
    times: int = 0

    async def merge_keys(self, api_version: str) -> KeyTable:
        self.times += 1
        assert api_version == "acme.io/v1"
        return await self.cluster.merge_keys(api_version)


@pytest.fixture
def asked(world: World) -> Asked:
    world.cluster.add(DEFINITION)
    world.lanes.keys = Asked(world.cluster)
    return world.lanes.keys


@pytest.fixture
def gate(world: World, asked: Asked) -> Object:
    meta = {"name": "g", "namespace": "a"}
    routes = [{"host": "one"}, {"host": "two"}]
    return world.cluster.add(
        {"apiVersion": "acme.io/v1", "kind": "Gate", "metadata": meta, "routes": routes}
    )


async def process(world, make, policy):
    trigger = world.cluster.add(make.object())
    world.dispatcher.on_stored(await world.ask(world.install(policy), trigger))
    await world.settle()
    assert (await world.status()).state == "Completed", await world.status()


async def test_lists_of_a_custom_resource_merge_by_the_keys_of_its_definition(
    world, make, asked, gate
):
    await process(world, make, make.policy(targets=[TARGET], patch=PATCH))
    expected = [{"host": "two", "open": True}, {"host": "one"}]
    assert (await world.read(gate))["routes"] == expected
    assert asked.times == 1


async def test_merge_keys_are_not_read_for_a_json_patch(world, make, asked, gate):
    json = "- {op: add, path: /routes/0/open, value: true}"
    await process(world, make, make.policy(targets=[TARGET], json=json))
    assert (await world.read(gate))["routes"][0] == {"host": "one", "open": True}
    assert asked.times == 0
