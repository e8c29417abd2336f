"""Lists of UpdateRequests, also where the list's position expires."""

import pytest

from reconciler.errors import Gone
from reconciler.kube.requests import KubeRequests

ROUTE = "GET /apis/kyverno.io/v2/namespaces/kyverno/updaterequests"


def listed(*names, token=""):
    meta = {"namespace": "kyverno", "labels": {"kube-retrofit.dev/shard": "1"}}
    items = [{"metadata": {**meta, "name": name}} for name in names]
    return {"metadata": {"continue": token}, "items": items}


async def test_a_list_whose_position_expires_is_started_again(api, client):
    api.answer(ROUTE, listed("a", token="more"), (410, b""), listed("a", "b"))
    requests = KubeRequests(client, "kyverno")
    assert [request.name async for request in requests.waiting()] == ["a", "a", "b"]
    selector = "status.state!=Completed,status.state!=Failed,status.state!=Skip"
    assert all(call.query["fieldSelector"] == selector for call in api.seen)


async def test_requests_of_other_programs_are_skipped_unless_adopted(api, client):
    foreign = {"metadata": {"name": "ur-x7k2p", "namespace": "kyverno"}}
    answer = listed("a")
    answer["items"].append(foreign)
    api.answer(ROUTE, answer)
    for adopt, names in ((False, ["a"]), (True, ["a", "ur-x7k2p"])):
        requests = KubeRequests(client, "kyverno", adopt=adopt)
        assert [request.name async for request in requests.waiting()] == names


async def test_an_expired_position_on_the_first_page_is_an_error(api, client):
    api.answer(ROUTE, (410, b""))
    with pytest.raises(Gone):
        _ = [request async for request in KubeRequests(client, "kyverno").waiting()]


async def test_requests_are_removed_with_an_escaped_field_selector(api, client):
    route = ROUTE.replace("GET", "DELETE")
    api.answer(route, {})
    await KubeRequests(client, "kyverno").remove(remove_after="2026-01-31T10:05:00Z", policy="a,b")
    selector = r"status.removeAfter=2026-01-31T10:05:00Z,spec.policy=a\,b"
    assert api.seen[0].query == {"fieldSelector": selector}
