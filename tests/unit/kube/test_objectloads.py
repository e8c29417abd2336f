"""Objects that rules name by kind, over HTTP, with a local stand-in for the API server."""

import pytest

from reconciler.engine.loads import ObjectLoad
from reconciler.errors import Invalid, NoKindMatch, NotFound
from reconciler.kube.client import Client
from reconciler.kube.loader import KubeLoader
from reconciler.memory.cluster import MemoryCluster
from tests.unit.kube.conftest import Api

ALL = "/apis/apps/v1/deployments"


@pytest.fixture
def loader(client: Client) -> KubeLoader:
    # The in-memory cluster serves the same kinds as a real API server.
    return KubeLoader(client, (), timeout=5.0, kinds=MemoryCluster())


def deployment(namespace: str = "n", name: str = "", labels: str = "") -> ObjectLoad:
    return ObjectLoad(
        api_version="apps/v1", kind="Deployment", namespace=namespace, name=name, labels=labels
    )


def item(name: str, namespace: str = "n") -> dict[str, dict[str, str]]:
    return {"metadata": {"name": name, "namespace": namespace}}


async def test_a_load_by_name_reads_one_object(api: Api, loader):
    path = "/apis/apps/v1/namespaces/n/deployments/d"
    api.answer(f"GET {path}", item("d"))
    assert await loader.load(deployment(name="d")) == item("d")
    assert [seen.path for seen in api.seen] == [path]


async def test_the_namespace_is_ignored_for_cluster_scoped_kinds(api: Api, loader):
    api.answer("GET /api/v1/nodes/a", {"metadata": {"name": "a"}})
    load = ObjectLoad(api_version="v1", kind="Node", namespace="n", name="a")
    assert await loader.load(load) == {"metadata": {"name": "a"}}


async def test_a_load_by_labels_lists_at_most_one_object(api: Api, loader):
    api.answer("GET /apis/apps/v1/namespaces/n/deployments", {"items": [item("d")]})
    found = await loader.load(deployment(labels="app in (web)"))
    assert found == {"apiVersion": "apps/v1", "kind": "Deployment", **item("d")}
    (seen,) = api.seen
    assert seen.query == {"labelSelector": "app in (web)", "limit": "1"}


async def test_labels_that_match_no_object_return_nothing(api: Api, loader):
    api.answer(f"GET {ALL}", {"items": []})
    assert await loader.load(deployment("", labels="a=b")) is None


async def test_objects_of_the_own_namespace_are_skipped(api: Api, loader):
    first = {"items": [item("d", "kyverno")], "metadata": {"continue": "more"}}
    api.answer(f"GET {ALL}", first, {"items": [item("d", "kyverno"), item("d")]})
    found = await loader.load(deployment("", labels="a=b"))
    assert found["metadata"]["namespace"] == "n"
    assert [seen.query["limit"] for seen in api.seen] == ["1", "500"]


async def test_secrets_of_the_own_namespace_are_not_read(api: Api, loader):
    load = ObjectLoad(api_version="v1", kind="Secret", namespace="kyverno", name="ca")
    with pytest.raises(Invalid, match="only ConfigMaps there"):
        await loader.load(load)
    assert not api.seen


@pytest.mark.parametrize("kind", ["Deploy*", "*", "Deployment/scale", "deployment", "Nothing"])
async def test_a_kind_must_be_named_exactly(api: Api, loader, kind):
    with pytest.raises(NoKindMatch, match="the cluster serves no"):
        await loader.load(ObjectLoad(api_version="apps/v1", kind=kind, namespace="n", name="a"))
    assert not api.seen


async def test_a_confined_load_cannot_read_cluster_scoped_objects(api: Api, loader):
    load = ObjectLoad(api_version="v1", kind="Node", namespace="n", name="a", confined=True)
    with pytest.raises(Invalid, match="a Node is in no namespace"):
        await loader.load(load)
    assert not api.seen


async def test_a_missing_object_is_reported_as_not_found(api: Api, loader):
    absent = {"kind": "Status", "reason": "NotFound", "details": {"name": "none"}, "code": 404}
    api.answer("GET /apis/apps/v1/namespaces/n/deployments/none", (404, absent))
    with pytest.raises(NotFound):
        await loader.load(deployment(name="none"))


@pytest.mark.parametrize("name", ["", "a/b", "..", "a?b"])
async def test_a_name_cannot_change_the_path(api: Api, loader, name):
    with pytest.raises((NotFound, NoKindMatch, Invalid)):
        await loader.load(deployment(name=name))
    assert all(
        seen.path.startswith("/apis/apps/v1/namespaces/n/deployments/") for seen in api.seen
    )
