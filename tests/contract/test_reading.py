"""Reading objects and finding kinds, in every adapter."""

import pytest

from reconciler.api.meta import Kind
from reconciler.errors import Forbidden, Invalid, NoKindMatch, NotFound

CONFIG_MAPS = Kind(group="", version="v1", kind="ConfigMap", plural="configmaps", namespaced=True)
NOTHINGS = Kind(group="", version="v1", kind="Nothing", plural="nothings", namespaced=True)


async def test_get_returns_the_object(world):
    created = await world.create(CONFIG_MAPS, "a", data={"x": "1"})
    found = await world.reader.get(CONFIG_MAPS, world.namespace, "a")
    assert found == created
    assert found["metadata"]["uid"]
    assert found["metadata"]["resourceVersion"]


async def test_get_of_an_absent_object_is_not_found(world):
    with pytest.raises(NotFound, match="missing"):
        await world.reader.get(CONFIG_MAPS, world.namespace, "missing")


async def test_get_in_an_absent_namespace_is_not_found(world):
    with pytest.raises(NotFound):
        await world.reader.get(CONFIG_MAPS, "no-such-namespace", "missing")


async def test_a_kind_that_is_not_served_is_unknown(world):
    with pytest.raises(NoKindMatch):
        await world.reader.get(NOTHINGS, world.namespace, "a")
    with pytest.raises(NoKindMatch):
        await world.reader.list_page(NOTHINGS)


@pytest.mark.parametrize(("namespace", "name"), [("", "a"), ("some", "")])
async def test_an_empty_name_or_namespace_is_invalid_for_get(world, namespace, name):
    with pytest.raises(Invalid, match="empty"):
        await world.reader.get(CONFIG_MAPS, namespace, name)


async def test_pages_follow_each_other(world):
    for name in "abcde":
        await world.create(CONFIG_MAPS, name, metadata={"labels": {"of": "pages"}})
    names, token, pages = [], "", 0
    while True:
        page = await world.reader.list_page(
            CONFIG_MAPS, namespace=world.namespace, labels="of=pages", limit=2, token=token
        )
        assert all((o["apiVersion"], o["kind"]) == ("v1", "ConfigMap") for o in page.items)
        assert page.resource_version
        names += [obj["metadata"]["name"] for obj in page.items]
        pages, token = pages + 1, page.token
        if not token:
            break
    assert names == list("abcde")
    assert pages == 3


async def test_an_empty_namespace_lists_all_namespaces(world):
    await world.create(CONFIG_MAPS, "everywhere", metadata={"labels": {"in": world.namespace}})
    page = await world.reader.list_page(CONFIG_MAPS, labels=f"in={world.namespace}")
    assert [obj["metadata"]["name"] for obj in page.items] == ["everywhere"]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("", "abc"),
        ("tier=web", "a"),
        ("tier==web", "a"),
        ("tier!=web", "bc"),
        ("tier", "ab"),
        ("!tier", "c"),
        ("tier in (web, db)", "ab"),
        ("tier notin (web),tier", "b"),
        ("tier,zone=eu", "b"),
    ],
)
async def test_a_label_selector_selects_the_matching_objects(world, selector, names):
    labels = {"a": {"tier": "web"}, "b": {"tier": "db", "zone": "eu"}, "c": {}}
    for name, own in labels.items():
        await world.create(CONFIG_MAPS, name, metadata={"labels": own | {"mine": "yes"}})
    wanted = f"mine,{selector}" if selector else "mine"
    page = await world.reader.list_page(CONFIG_MAPS, namespace=world.namespace, labels=wanted)
    assert "".join(obj["metadata"]["name"] for obj in page.items) == names


async def test_a_field_selector_selects_the_matching_object(world):
    for name in "ab":
        await world.create(CONFIG_MAPS, name)
    page = await world.reader.list_page(
        CONFIG_MAPS, fields=f"metadata.name=b,metadata.namespace={world.namespace}"
    )
    assert [obj["metadata"]["name"] for obj in page.items] == ["b"]


@pytest.mark.parametrize("selector", [{"labels": "a b"}, {"fields": "data.x=1"}])
async def test_a_selector_that_cannot_be_used_is_invalid(world, selector):
    with pytest.raises(Invalid):
        await world.reader.list_page(CONFIG_MAPS, namespace=world.namespace, **selector)


async def test_a_forbidden_error_names_the_right_to_grant(world):
    poor = await world.limited("configmaps", ["create"])
    with pytest.raises(Forbidden) as caught:
        await poor.reader.get(CONFIG_MAPS, world.namespace, "a")
    assert caught.value.permission == f"get configmaps in namespace {world.namespace}"
    with pytest.raises(Forbidden) as caught:
        await poor.reader.list_page(CONFIG_MAPS)
    assert caught.value.permission == "list configmaps"


def kind(api_version, name, plural, subresource="", *, namespaced=True):
    group, _, version = api_version.rpartition("/")
    return Kind(
        group=group,
        version=version,
        kind=name,
        plural=plural,
        namespaced=namespaced,
        subresource=subresource,
    )


@pytest.mark.parametrize(
    ("api_version", "name", "found"),
    [
        ("v1", "ConfigMap", [kind("v1", "ConfigMap", "configmaps")]),
        ("v1", "Event", [kind("v1", "Event", "events")]),
        ("v1", "Deployment", []),
        ("apps/v1", "Nothing", []),
        ("nowhere.example/v1", "Deployment", []),
        ("*", "Deployment", [kind("apps/v1", "Deployment", "deployments")]),
        ("apps/*", "Deployment", [kind("apps/v1", "Deployment", "deployments")]),
        ("apps/v1", "Deployment/scale", [kind("apps/v1", "Deployment", "deployments", "scale")]),
        ("v1", "Node/status", [kind("v1", "Node", "nodes", "status", namespaced=False)]),
        (
            "*",
            "Event",
            [
                kind("v1", "Event", "events"),
                kind("events.k8s.io/v1", "Event", "events"),
            ],
        ),
        (
            "*",
            "HorizontalPodAutoscaler",
            [
                kind(
                    "autoscaling/v2",
                    "HorizontalPodAutoscaler",
                    "horizontalpodautoscalers",
                )
            ],
        ),
        (
            "autoscaling/v1",
            "HorizontalPodAutoscaler",
            [kind("autoscaling/v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers")],
        ),
        (
            "v1",
            "Pod*",
            [kind("v1", "Pod", "pods"), kind("v1", "PodTemplate", "podtemplates")],
        ),
        (
            "apps/v1",
            "*",
            [
                kind("apps/v1", "ControllerRevision", "controllerrevisions"),
                kind("apps/v1", "DaemonSet", "daemonsets"),
                kind("apps/v1", "Deployment", "deployments"),
                kind("apps/v1", "ReplicaSet", "replicasets"),
                kind("apps/v1", "StatefulSet", "statefulsets"),
            ],
        ),
        (
            "apps/v1",
            "*/scale",
            [
                kind("apps/v1", "Deployment", "deployments", "scale"),
                kind("apps/v1", "ReplicaSet", "replicasets", "scale"),
                kind("apps/v1", "StatefulSet", "statefulsets", "scale"),
            ],
        ),
        (
            "contract.example/v1",
            "Widget/status",
            [kind("contract.example/v1", "Widget", "widgets", "status")],
        ),
    ],
)
async def test_kinds_are_found_by_name(world, api_version, name, found):
    assert set(await world.kinds.find(api_version, name)) == set(found)


async def test_kinds_are_found_by_resource(world):
    assert await world.kinds.of_resource("apps", "v1", "deployments") == kind(
        "apps/v1", "Deployment", "deployments"
    )
    assert await world.kinds.of_resource("apps", "v1", "deployments/scale") == kind(
        "apps/v1", "Deployment", "deployments", "scale"
    )
    assert await world.kinds.of_resource("apps", "v1", "pods") is None
