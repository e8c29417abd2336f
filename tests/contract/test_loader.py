"""Loads of context entries from the API server, in every adapter."""

from collections.abc import AsyncIterator

import pytest

from devcluster.cluster import Cluster
from reconciler.api.meta import Kind
from reconciler.clock import SystemClock
from reconciler.engine.loads import ApiLoad, ConfigMapLoad, ObjectLoad
from reconciler.errors import Invalid, NoKindMatch, NotFound
from reconciler.kube.client import connect
from reconciler.kube.discovery import KubeKinds
from reconciler.kube.loader import KubeLoader
from reconciler.memory.loader import MemoryLoader
from reconciler.services.ports.objects import RuleLoader
from tests.contract.conftest import MemoryBackend, World

CONFIG_MAPS = Kind(group="", version="v1", kind="ConfigMap", plural="configmaps", namespaced=True)


@pytest.fixture
async def loader(world: World, cluster: Cluster | None) -> AsyncIterator[RuleLoader]:
    if cluster is None:
        assert isinstance(world.backend, MemoryBackend)
        yield MemoryLoader(world.backend.cluster)
        return
    client = await connect(str(cluster.kubeconfig))
    yield KubeLoader(client, (), kinds=KubeKinds(client, SystemClock()))
    await client.close()


async def names(loader, path):
    found = await loader.load(ApiLoad(method="GET", path=path))
    assert found["kind"] == "ConfigMapList"
    return {item["metadata"]["name"] for item in found["items"]} - {"kube-root-ca.crt"}


async def test_a_config_map_is_loaded_as_its_data_and_metadata(world, loader):
    created = await world.create(CONFIG_MAPS, "c", data={"a": "1", "b.c": "2"})
    found = await loader.load(ConfigMapLoad(namespace=world.namespace, name="c"))
    assert found == {"data": {"a": "1", "b.c": "2"}, "metadata": created["metadata"]}


async def test_a_config_map_without_data_is_loaded_with_empty_data(world, loader):
    await world.create(CONFIG_MAPS, "c")
    found = await loader.load(ConfigMapLoad(namespace=world.namespace, name="c"))
    assert found["data"] == {}


async def test_a_missing_config_map_is_not_found(world, loader):
    with pytest.raises(NotFound):
        await loader.load(ConfigMapLoad(namespace=world.namespace, name="none"))


async def test_an_empty_name_never_selects_all_objects(world, loader):
    with pytest.raises(Invalid, match="empty"):
        await loader.load(ConfigMapLoad(namespace=world.namespace, name=""))


async def test_the_path_of_an_object_returns_the_object(world, loader):
    created = await world.create(CONFIG_MAPS, "c", data={"a": "1"})
    path = f"/api/v1/namespaces/{world.namespace}/configmaps/c"
    assert await loader.load(ApiLoad(method="GET", path=path)) == created


async def test_the_path_of_a_collection_returns_a_list(world, loader):
    for name in ("one", "two"):
        await world.create(CONFIG_MAPS, name, metadata={"labels": {"of": name}})
    path = f"/api/v1/namespaces/{world.namespace}/configmaps"
    assert await names(loader, path) == {"one", "two"}
    assert await names(loader, f"{path}?labelSelector=of%3Done") == {"one"}
    assert await names(loader, f"{path}?labelSelector=of=two") == {"two"}
    assert await names(loader, f"{path}?fieldSelector=metadata.name=one") == {"one"}


async def test_paths_without_an_object_or_a_kind_are_not_found(world, loader):
    place = f"/api/v1/namespaces/{world.namespace}"
    for path in (f"{place}/configmaps/none", f"{place}/nothings", "/apis/none.example/v1/x"):
        with pytest.raises((NotFound, NoKindMatch)):
            await loader.load(ApiLoad(method="GET", path=path))


def config_map(world, **selected):
    return ObjectLoad(api_version="v1", kind="ConfigMap", namespace=world.namespace, **selected)


async def test_an_object_is_read_by_its_kind(world, loader):
    created = await world.create(CONFIG_MAPS, "c", metadata={"labels": {"of": "c"}})
    assert await loader.load(config_map(world, name="c")) == created
    assert await loader.load(config_map(world, labels="of in (c)")) == created
    assert await loader.load(config_map(world, labels="of in (d)")) is None
    with pytest.raises(NotFound):
        await loader.load(config_map(world, name="none"))


async def test_the_first_of_several_selected_objects_is_returned(world, loader):
    for name in ("two", "one"):
        await world.create(CONFIG_MAPS, name, metadata={"labels": {"of": "several"}})
    found = await loader.load(config_map(world, labels="of in (several)"))
    assert found["metadata"]["name"] == "one"


async def test_a_kind_that_is_not_served_is_named_in_the_error(world, loader):
    load = ObjectLoad(api_version="none.example/v1", kind="Nothing", namespace="", name="a")
    with pytest.raises(NoKindMatch, match="the cluster serves no Nothing"):
        await loader.load(load)
