"""The dynamic client: the requests of its verbs, and names that cannot change the path."""

from dataclasses import replace

import pytest

from reconciler.api.meta import CONFIG_MAPS, Kind
from reconciler.errors import Invalid, NoKindMatch, NotFound
from reconciler.kube.decoding import JSON, MERGE_PATCH

ROLES = Kind(
    group="rbac.authorization.k8s.io",
    version="v1",
    kind="ClusterRole",
    plural="clusterroles",
    namespaced=False,
)
DEPLOYMENTS = Kind(
    group="apps", version="v1", kind="Deployment", plural="deployments", namespaced=True
)
SCALE = replace(DEPLOYMENTS, subresource="scale")
STRATEGIC = "application/strategic-merge-patch+json"
PATH = "/api/v1/namespaces/a/configmaps/b"
GONE = (404, {"kind": "Status", "reason": "NotFound", "details": {"name": "b"}})


async def test_a_path_is_built_from_kind_namespace_and_escaped_name(client):
    roles, scale = client.resource(ROLES), client.resource(SCALE)
    assert scale.path("b", "a") == "/apis/apps/v1/namespaces/a/deployments/b/scale"
    assert scale.path(namespace="a") == "/apis/apps/v1/namespaces/a/deployments"
    assert client.resource(DEPLOYMENTS).path(namespace="") == "/apis/apps/v1/deployments"
    assert roles.path("system:a b?c{d}", "ignored") == (
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:a%20b%3Fc%7Bd%7D"
    )


@pytest.mark.parametrize(
    ("namespace", "name"),
    [("", "a"), ("a", ""), ("a", ".."), ("..", "a"), ("a", "b/c"), ("a/b", "c"), ("a", "%2e")],
)
async def test_a_name_that_would_change_the_path_is_refused(api, client, namespace, name):
    for kind in (DEPLOYMENTS, SCALE):
        with pytest.raises(Invalid):
            await client.resource(kind).get(name, namespace)
    assert not api.seen


@pytest.mark.parametrize(("namespace", "name"), [("a", "\ud800"), ("\udfff", "a")])
async def test_a_name_that_is_no_text_is_refused(api, client, namespace, name):
    with pytest.raises(Invalid, match="is not a name"):
        await client.resource(DEPLOYMENTS).get(name, namespace)
    assert not api.seen


async def test_verbs_of_the_dynamic_client_send_the_expected_requests(api, client):
    for verb in ("GET", "PUT", "PATCH", "DELETE"):
        api.answer(f"{verb} {PATH}", {"data": {}})
    api.answer("POST /api/v1/namespaces/a/configmaps", {"data": {"new": "1"}})
    maps = client.resource(CONFIG_MAPS)
    body = {"metadata": {"name": "b", "namespace": "a"}}
    ours = {"fieldManager": "kube-retrofit"}

    assert await maps.create(body, field_manager="me") == {"data": {"new": "1"}}
    await maps.patch(
        [], "b", "a", content_type=STRATEGIC, dry_run="All", field_validation="Strict"
    )
    await maps.merge({"data": None}, "b", "a")
    await maps.replace(body)
    await maps.server_side_apply(body, force_conflicts="true")
    await maps.delete("b", "a", body={"preconditions": {"uid": "1"}})

    assert [(item.method, item.query, item.body) for item in api.seen] == [
        ("POST", {"fieldManager": "me"}, body),
        ("PATCH", {**ours, "dryRun": "All", "fieldValidation": "Strict"}, {}),
        ("PATCH", ours, {"data": None}),
        ("PUT", ours, body),
        ("PATCH", {**ours, "force": "true"}, body),
        ("DELETE", {}, {"preconditions": {"uid": "1"}}),
    ]
    types = [item.headers.get("Content-Type") for item in api.seen]
    assert types == [JSON, STRATEGIC, MERGE_PATCH, JSON, "application/apply-patch+yaml", JSON]


async def test_a_list_can_be_limited_by_selectors_and_returned_as_bytes(api, client):
    api.answer("GET /api/v1/namespaces/a/configmaps", {"items": []})
    answer = await client.resource(CONFIG_MAPS).get(
        namespace="a", label_selector="x=1", field_selector="", limit=5, serialize=False
    )
    assert answer == b'{"items":[]}'
    assert api.seen[0].query == {"labelSelector": "x=1", "limit": "5"}


async def test_failures_are_raised_as_own_errors(api, client):
    api.answer(f"GET {PATH}", GONE, (404, b"404 page not found"))
    maps = client.resource(CONFIG_MAPS)
    with pytest.raises(NotFound):
        await maps.get("b", "a")
    with pytest.raises(NoKindMatch):
        await maps.get("b", "a")
