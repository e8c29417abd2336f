"""Context entries that are read from an in-memory cluster."""

import pytest

from reconciler.engine.loads import ApiLoad, ConfigMapLoad, GlobalLoad, ObjectLoad, ServiceLoad
from reconciler.errors import Invalid, NoKindMatch, NotFound
from reconciler.memory.cluster import MemoryCluster
from reconciler.memory.loader import MemoryLoader


def config_map(name, namespace="a", **labels):
    meta = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"of": name}}


@pytest.fixture
def loader() -> MemoryLoader:
    cluster = MemoryCluster()
    for obj in (
        config_map("one", team="red"),
        config_map("two"),
        config_map("three", "b"),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "d", "namespace": "a"},
            "spec": {"replicas": 2},
        },
    ):
        cluster.add(obj)
    return MemoryLoader(cluster)


def get(path):
    return ApiLoad(method="GET", path=path)


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/api/v1/configmaps", {"one", "two", "three"}),
        ("/api/v1/namespaces/a/configmaps", {"one", "two"}),
        ("/api/v1/namespaces/a/configmaps?labelSelector=team%3Dred", {"one"}),
        ("/api/v1/namespaces/a/configmaps?labelSelector=team=red", {"one"}),
        ("/api/v1/configmaps?fieldSelector=metadata.name=two", {"two"}),
        ("/api/v1/namespaces/none/configmaps", set()),
        ("/apis/apps/v1/deployments", {"d"}),
    ],
)
async def test_the_path_of_a_collection_returns_a_list(loader, path, names):
    found = await loader.load(get(path))
    assert {item["metadata"]["name"] for item in found["items"]} == names
    assert found["kind"].endswith("List")


@pytest.mark.parametrize(
    ("path", "kind", "name"),
    [
        ("/api/v1/namespaces/a", "Namespace", "a"),
        ("/api/v1/namespaces/a/configmaps/one", "ConfigMap", "one"),
        ("/apis/apps/v1/namespaces/a/deployments/d/", "Deployment", "d"),
    ],
)
async def test_the_path_of_an_object_returns_the_object(loader, path, kind, name):
    found = await loader.load(get(path))
    assert (found["kind"], found["metadata"]["name"]) == (kind, name)


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/api/v1/namespaces/a/configmaps/none", NotFound),
        ("/api/v1/nothings", NoKindMatch),
        ("/apis/none.example/v1/nothings", NoKindMatch),
        ("/apis/apps/v1", NoKindMatch),
        ("/version", NotFound),
        ("", NotFound),
        ("/api/v1/namespaces/a/configmaps/one/proxy", Invalid),
    ],
)
async def test_a_path_that_does_not_exist_is_an_error_with_a_message(loader, path, error):
    with pytest.raises(error) as caught:
        await loader.load(get(path))
    assert str(caught.value)


@pytest.mark.parametrize(
    "load",
    [
        ApiLoad(method="POST", path="/api/v1/configmaps", body='{"p":"secret"}'),
        ServiceLoad(
            method="GET",
            url="https://u:secret@host/?token=secret",
            headers=(("Authorization", "secret"),),
        ),
        GlobalLoad(name="entry"),
    ],
)
async def test_loads_that_need_a_cluster_are_refused_without_showing_secrets(loader, load):
    with pytest.raises(Invalid, match="only reads of objects") as caught:
        await loader.load(load)
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(load)


async def test_a_config_map_is_loaded_with_data_and_metadata(loader):
    found = await loader.load(ConfigMapLoad(namespace="a", name="one"))
    assert found["data"] == {"of": "one"}
    assert found["metadata"]["labels"] == {"team": "red"}
    with pytest.raises(NotFound):
        await loader.load(ConfigMapLoad(namespace="a", name="none"))


def named(api_version, kind, name="", labels="", namespace="a", **more):
    return ObjectLoad(
        api_version=api_version, kind=kind, namespace=namespace, name=name, labels=labels, **more
    )


async def test_an_object_is_loaded_by_kind_and_name(loader):
    found = await loader.load(named("apps/v1", "Deployment", "d"))
    assert found["spec"] == {"replicas": 2}
    assert (await loader.load(named("v1", "Namespace", "a")))["kind"] == "Namespace"


async def test_labels_select_the_first_object(loader):
    load = named("v1", "ConfigMap", labels="team in (red)", namespace="")
    assert (await loader.load(load))["metadata"]["name"] == "one"
    assert await loader.load(named("v1", "ConfigMap", labels="team in (blue)")) is None


async def test_wildcards_missing_objects_and_confined_cluster_kinds_are_errors(loader):
    with pytest.raises(NoKindMatch):
        await loader.load(named("v1", "*", "one"))
    with pytest.raises(NotFound):
        await loader.load(named("v1", "ConfigMap", "none"))
    with pytest.raises(Invalid, match="in no namespace"):
        await loader.load(named("v1", "Namespace", "a", confined=True))
