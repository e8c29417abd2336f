"""Functions of the in-memory cluster beyond the contract tests."""

import pytest

from reconciler.api.meta import Kind
from reconciler.errors import AlreadyExists, Gone, Invalid
from reconciler.memory.cluster import MemoryCluster
from reconciler.memory.selectors import compile_fields, compile_labels
from reconciler.services.ports.reporting import Event
from tests.rigged import RiggedCluster
from tests.stored import MemoryEvents

CONFIG_MAPS = Kind(group="", version="v1", kind="ConfigMap", plural="configmaps", namespaced=True)


def config_map(name, **meta):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": "a", "name": name, **meta},
    }


async def test_an_added_object_gets_the_defaults_of_the_api_server():
    cluster = MemoryCluster()
    stored = cluster.add({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}})
    assert stored["metadata"]["namespace"] == "default"
    assert stored["metadata"]["generation"] == 1
    with pytest.raises(AlreadyExists):
        cluster.add(config_map("x", namespace="default"))


@pytest.mark.parametrize("namespace", ["", "a"])
async def test_an_unknown_kind_is_served_after_an_object_is_added(namespace):
    cluster = MemoryCluster()
    meta = {"name": "x"} | ({"namespace": namespace} if namespace else {})
    cluster.add({"apiVersion": "x.example/v1", "kind": "Widget", "metadata": meta})
    (kind,) = await cluster.find("x.example/v1", "Widget")
    assert (kind.plural, kind.namespaced) == ("widgets", bool(namespace))
    assert (await cluster.get(kind, namespace, "x"))["kind"] == "Widget"


async def test_a_custom_resource_definition_serves_its_versions():
    cluster = MemoryCluster()
    versions = [
        {"name": "v1beta1", "served": True},
        {"name": "v1alpha1", "served": False},
        {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}},
    ]
    names = {"kind": "Policy", "plural": "policies"}
    spec = {"group": "x.example", "names": names, "scope": "Cluster", "versions": versions}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "policies.x.example"},
        "spec": spec,
    }
    cluster.add(definition)
    assert [kind.version for kind in await cluster.find("x.example/*", "Policy")] == ["v1"]
    assert len(await cluster.find("x.example/v1beta1", "Policy")) == 1
    assert await cluster.find("x.example/v1alpha1", "Policy") == ()
    assert len(await cluster.find("x.example/v1", "Policy/status")) == 1


async def test_callers_cannot_change_stored_objects():
    cluster = MemoryCluster()
    cluster.add(config_map("x"))
    (await cluster.get(CONFIG_MAPS, "a", "x"))["metadata"]["labels"] = {"x": "y"}
    assert "labels" not in (await cluster.get(CONFIG_MAPS, "a", "x"))["metadata"]


async def test_a_continue_token_expires_after_compaction():
    cluster = RiggedCluster()
    for name in "xyz":
        cluster.add(config_map(name))
    page = await cluster.list_page(CONFIG_MAPS, limit=1)
    assert page.remaining == 2
    cluster.compact()
    with pytest.raises(Gone):
        await cluster.list_page(CONFIG_MAPS, limit=1, token=page.token)


async def test_a_finalizer_keeps_an_object_until_it_is_removed():
    cluster = MemoryCluster()
    cluster.add(config_map("x", finalizers=["example/one"]))
    cluster.delete(CONFIG_MAPS, "a", "x")
    stored = await cluster.get(CONFIG_MAPS, "a", "x")
    assert stored["metadata"]["deletionTimestamp"]
    after = {**stored, "metadata": {**stored["metadata"], "finalizers": []}}
    await cluster.change(CONFIG_MAPS, stored, after)
    assert (await cluster.list_page(CONFIG_MAPS)).items == ()


async def test_identity_survives_every_write():
    cluster = MemoryCluster()
    stored = cluster.add(config_map("x"))
    after = {**stored, "metadata": {"namespace": "a", "name": "x", "uid": "other"}, "data": {}}
    written = await cluster.change(CONFIG_MAPS, stored, after)
    for field in ("uid", "creationTimestamp"):
        assert written["metadata"][field] == stored["metadata"][field]


async def test_a_forbidden_right_can_be_granted_again():
    cluster = RiggedCluster()
    stored = cluster.add(config_map("x"))
    cluster.forbid("get", "configmaps")
    cluster.permit("get", "configmaps")
    assert await cluster.get(CONFIG_MAPS, "a", "x") == stored


@pytest.mark.parametrize("text", ["a in", "=b", "a=b c", "a in (x", "!"])
def test_an_invalid_label_selector_is_refused(text):
    with pytest.raises(Invalid):
        compile_labels(text)


def test_values_in_field_selectors_can_be_escaped():
    test = compile_fields(r"spec.policy=a\,b\=c", frozenset({"spec.policy"}))
    assert test({"spec": {"policy": "a,b=c"}})
    assert not test({})


def test_emitted_events_are_kept():
    events = MemoryEvents()
    events.emit(
        Event(regarding={"kind": "Secret"}, severity="Normal", reason="R", action="A", note="n")
    )
    assert events.emitted[0].reason == "R"
