"""Merge keys from the API server's documents, from CRDs, and from the shipped table."""

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from devcluster import schemas
from devcluster.cluster import Cluster
from reconciler.api.meta import Kind
from reconciler.clock import SystemClock
from reconciler.engine.patch import SHIPPED, keytable, merge
from reconciler.engine.patch.openapi import read_definitions, read_document
from reconciler.errors import NoKindMatch
from reconciler.kube.client import Client, connect
from reconciler.kube.mergekeys import KubeMergeKeys
from reconciler.memory.kinds import MemoryKinds

CRDS = Kind(
    group="apiextensions.k8s.io",
    version="v1",
    kind="CustomResourceDefinition",
    plural="customresourcedefinitions",
    namespaced=False,
)


def definition(group: str, *keys: str) -> dict[str, Any]:
    """Return a CRD with a list of routes, keyed as given, that contain another keyed list."""
    texts = {name: {"type": "string"} for name in ("host", "path", "note")}
    plain = {"type": "array", "items": {"type": "object", "properties": texts}}
    headers = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string"}, "value": {"type": "string"}},
        },
    }
    routes = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": list(keys),
        "items": {
            "type": "object",
            "required": list(keys),
            "properties": {**texts, "headers": headers},
        },
    }
    spec = {"type": "object", "properties": {"routes": routes, "plain": plain}}
    root = {"type": "object", "properties": {"spec": spec}}
    version = {"served": True, "storage": True, "schema": {"openAPIV3Schema": root}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"gates.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "Gate", "plural": "gates", "singular": "gate"},
            "versions": [{"name": "v1", **version}],
        },
    }


GATE: dict[str, Any] = {
    "kind": "Gate",
    "metadata": {"name": "g", "finalizers": ["example.org/a"]},
    "spec": {
        "routes": [
            {"host": "a", "path": "/", "headers": [{"name": "x", "value": "1"}]},
            {"host": "a", "path": "/in"},
            {"host": "b", "path": "/"},
        ],
        "plain": [{"host": "a"}],
    },
}
PATCH = {
    "metadata": {"finalizers": ["example.org/b"]},
    "spec": {
        "routes": [{"host": "a", "path": "/", "headers": [{"name": "y", "value": "2"}]}],
        "plain": [{"host": "b"}],
    },
}
MERGED = {
    "metadata": {"name": "g", "finalizers": ["example.org/b", "example.org/a"]},
    "spec": {
        "routes": [
            {
                "host": "a",
                "path": "/",
                "headers": [{"name": "y", "value": "2"}, {"name": "x", "value": "1"}],
            },
            {"host": "a", "path": "/in"},
            {"host": "b", "path": "/"},
        ],
        "plain": [{"host": "b"}],
    },
}


@dataclass
class Moved:
    """The system clock, which a test can advance."""

    by: float = 0.0

    def now(self) -> Any:
        return SystemClock().now()

    def monotonic(self) -> float:
        return SystemClock().monotonic() + self.by


@pytest.fixture
async def client(control_plane: Cluster) -> AsyncIterator[Client]:
    client = await connect(str(control_plane.kubeconfig))
    yield client
    await client.close()


@pytest.fixture
async def group(client: Client) -> AsyncIterator[str]:
    name = f"g{uuid.uuid4().hex[:8]}.example"
    definitions = client.resource(CRDS)
    await definitions.create(definition(name, "host", "path"))
    yield name
    await definitions.delete(f"gates.{name}")


async def published(client, api_version: str, contains: bytes) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                if contains in await client.request("GET", f"/openapi/v3/apis/{api_version}"):
                    return
            except NoKindMatch:
                pass
            await asyncio.sleep(0.1)


async def hash_of(client, api_version: str) -> str:
    index = await client.json("GET", "/openapi/v3")
    return str(index["paths"][f"apis/{api_version}"]["serverRelativeURL"])


def test_definitions_served_from_memory_provide_the_merge_keys():
    cluster = MemoryKinds()
    cluster.serve_definition(definition("desk.example", "host", "path"))
    keys = asyncio.run(cluster.merge_keys("desk.example/v1"))
    gate = {**GATE, "apiVersion": "desk.example/v1"}
    assert merge(gate, PATCH, keys) == {**gate, **MERGED}
    # The shipped table does not have this kind, so its lists are replaced.
    assert merge(gate, PATCH, SHIPPED)["spec"]["routes"] == PATCH["spec"]["routes"]


async def test_the_cluster_provides_the_same_merge_keys_as_the_definition(client, group):
    api_version = f"{group}/v1"
    await published(client, api_version, b"list-map-keys")
    keys = await KubeMergeKeys(client, SystemClock(), pytest.fail).merge_keys(api_version)
    gate = {**GATE, "apiVersion": api_version}
    assert merge(gate, PATCH, keys) == {**gate, **MERGED}
    desk = read_definitions([definition(group, "host", "path")])
    assert keys.kinds.get((api_version, "Gate")) == desk[api_version, "Gate"]


async def test_an_openapi_document_is_read_once_until_a_definition_changes(client, group):
    clock, calls = Moved(), Counter()
    client.on_call = lambda _verb, resource, _status, _seconds: calls.update([resource])
    api_version = f"{group}/v1"
    document = f"/openapi/v3/apis/{api_version}"
    await published(client, api_version, b"list-map-keys")
    calls.clear()
    source = KubeMergeKeys(client, clock, pytest.fail)
    found = await asyncio.gather(*(source.merge_keys(api_version) for _ in range(50)))
    assert all(table is found[0] for table in found)
    assert calls == {"/openapi/v3": 1, document: 1}
    await source.merge_keys("apps/v1")
    clock.by += 61
    await source.merge_keys(api_version)
    await source.merge_keys("apps/v1")
    assert calls == {"/openapi/v3": 2, document: 1, "/openapi/v3/apis/apps/v1": 1}
    before = await hash_of(client, api_version)
    changed = definition(group, "host", "note")["spec"]
    await client.resource(CRDS).patch(
        {"spec": changed}, f"gates.{group}", content_type="application/merge-patch+json"
    )
    await published(client, api_version, b'"note"]')
    async with asyncio.timeout(30):
        while True:
            if await hash_of(client, api_version) != before:
                break
            await asyncio.sleep(0.1)
    calls.clear()
    clock.by += 61
    schema = (await source.merge_keys(api_version)).kinds.get((api_version, "Gate"))
    assert schema.field("spec").field("routes").merge_keys == ("host", "note")
    assert calls == {"/openapi/v3": 1, document: 1}


async def test_an_absent_group_version_is_looked_up_again_later(client):
    clock, calls = Moved(), Counter()
    client.on_call = lambda _verb, resource, _status, _seconds: calls.update([resource])
    source = KubeMergeKeys(client, clock, pytest.fail)
    for _ in range(3):
        assert await source.merge_keys("absent.example/v1") is SHIPPED
    assert calls == {"/openapi/v3": 1}
    clock.by += 3
    assert await source.merge_keys("absent.example/v1") is SHIPPED
    assert calls == {"/openapi/v3": 2}


async def test_the_shipped_table_is_used_where_the_documents_cannot_be_read(
    control_plane, tmp_path: Path
):
    config = yaml.safe_load(Path(control_plane.kubeconfig).read_text())
    config["users"] = [{"name": user["name"], "user": {}} for user in config["users"]]
    anonymous = tmp_path / "anonymous"
    anonymous.write_text(yaml.safe_dump(config))
    said: list[str] = []
    clock, client = Moved(), await connect(str(anonymous))
    source = KubeMergeKeys(client, clock, said.append)
    assert await source.merge_keys("apps/v1") is SHIPPED
    clock.by += 10
    assert await source.merge_keys("apps/v1") is SHIPPED
    await client.close()
    (text,) = said
    assert text.startswith("merge keys: /openapi/v3 cannot be read")
    assert keytable.VERSION in text


async def test_every_built_in_document_matches_the_shipped_table(client):
    """The control plane must have the version of the table, and may serve any of its APIs."""
    version = (await client.json("GET", "/version"))["gitVersion"]
    if not version.startswith(f"v{keytable.VERSION}."):
        pytest.skip(f"the control plane is {version}, the table of {keytable.VERSION}")
    for place in (await client.json("GET", "/openapi/v3"))["paths"]:
        kind, _, group = place.partition("/")
        group = group.partition("/")[0] if kind == "apis" else ""
        # The CRDs of other tests are not built in.
        if kind not in {"api", "apis"} or ("." in group and not group.endswith(".k8s.io")):
            continue
        kinds = read_document(await client.json("GET", f"/openapi/v3/{place}"))
        assert {key: SHIPPED.kinds.get(key) for key in kinds} == kinds


def test_make_schemas_generates_the_committed_table(binaries):
    if isinstance(binaries, Path):
        pytest.skip("RETROFIT_CONTROL_PLANE names a cluster, which need not serve every API")
    document = orjson.loads(schemas.published())
    if document["info"]["version"] != keytable.VERSION:
        pytest.skip(f"the control plane is {document['info']['version']}")
    assert schemas.render(document) == Path(keytable.__file__).read_text()
