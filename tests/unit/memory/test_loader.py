"""Context entries that are read from an in-memory cluster."""

import pytest

from reconciler.engine.loads import ApiLoad, ConfigMapLoad, GlobalLoad, ObjectLoad, ServiceLoad
from reconciler.errors import Invalid, NoKindMatch, NotFound
from reconciler.memory.cluster import MemoryCluster
from reconciler.memory.loader import MemoryLoader

MAPS = "v1 ConfigMapList"
ONE = "/api/v1/namespaces/a/configmaps/one"
UNREADABLE = "only reads of objects work without a cluster"


def config_map(name, namespace="a", **labels):
    meta = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"of": name}}


@pytest.fixture
def loader() -> MemoryLoader:
    cluster = MemoryCluster()
    for obj in (
        # Not in the order of a list, which is by namespace and name.
        config_map("three", "b", team="red"),
        config_map("one", team="red"),
        config_map("two"),
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
    ("path", "kind", "names"),
    [
        ("/api/v1/configmaps", MAPS, ["one", "two", "three"]),
        ("/api/v1/namespaces/a/configmaps", MAPS, ["one", "two"]),
        ("/api/v1/namespaces/a/configmaps?labelSelector=team%3Dred", MAPS, ["one"]),
        ("/api/v1/namespaces/a/configmaps?labelSelector=team=red", MAPS, ["one"]),
        ("/api/v1/configmaps?fieldSelector=metadata.name=two", MAPS, ["two"]),
        ("/api/v1/namespaces/none/configmaps", MAPS, []),
        ("/apis/apps/v1/deployments", "apps/v1 DeploymentList", ["d"]),
    ],
)
async def test_the_path_of_a_collection_returns_a_list(loader, path, kind, names):
    found = await loader.load(get(path))
    assert [item["metadata"]["name"] for item in found["items"]] == names
    assert f"{found['apiVersion']} {found['kind']}" == kind


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
    ("path", "error", "said"),
    [
        ("/api/v1/namespaces/a/configmaps/none", NotFound, 'configmaps "none" not found'),
        ("/api/v1/nothings", NoKindMatch, "/api/v1/nothings: nothings of v1 is not known"),
        (
            "/apis/none.example/v1/nothings",
            NoKindMatch,
            "/apis/none.example/v1/nothings: nothings of none.example/v1 is not known",
        ),
        ("/apis/apps/v1", NoKindMatch, "/apis/apps/v1 names no resource"),
        ("/version", NotFound, "/version is not a path of the API"),
        ("", NotFound, "/ is not a path of the API"),
        (f"{ONE}/proxy", Invalid, f"GET {ONE}/proxy: {UNREADABLE}"),
    ],
)
async def test_a_path_that_does_not_exist_is_an_error_with_a_message(loader, path, error, said):
    with pytest.raises(error) as caught:
        await loader.load(get(path))
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("load", "what"),
    [
        (
            ApiLoad(method="POST", path="/api/v1/configmaps", body='{"p":"secret"}'),
            "POST /api/v1/configmaps",
        ),
        (
            ServiceLoad(
                method="GET",
                url="https://u:secret@host/?token=secret",
                headers=(("Authorization", "secret"),),
            ),
            "service host",
        ),
        (GlobalLoad(name="entry"), "GlobalContextEntry entry"),
    ],
)
async def test_loads_that_need_a_cluster_are_refused_without_showing_secrets(loader, load, what):
    with pytest.raises(Invalid) as caught:
        await loader.load(load)
    assert str(caught.value) == f"{what}: {UNREADABLE}"
    assert "secret" not in repr(load)


async def test_a_config_map_is_loaded_with_data_and_metadata(loader):
    found = await loader.load(ConfigMapLoad(namespace="a", name="one"))
    assert found.keys() == {"data", "metadata"}
    assert found["data"] == {"of": "one"}
    assert found["metadata"]["labels"] == {"team": "red"}
    with pytest.raises(NotFound, match='"none" not found'):
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
    with pytest.raises(NoKindMatch, match=r"serves no \* of v1"):
        await loader.load(named("v1", "*", "one"))
    with pytest.raises(NotFound, match='"none" not found'):
        await loader.load(named("v1", "ConfigMap", "none"))
    with pytest.raises(Invalid, match="in no namespace"):
        await loader.load(named("v1", "Namespace", "a", confined=True))
