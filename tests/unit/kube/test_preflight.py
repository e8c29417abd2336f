"""The conditions that a program waits for before it starts."""

import pytest

from reconciler.api.meta import CONFIG_MAPS, NAMESPACES
from reconciler.errors import ClusterError, Unauthorized
from reconciler.kube.preflight import wait_for_kinds
from reconciler.kube.retrying import until_done

LISTED: dict[str, list[object]] = {"items": []}
NOT_SERVED = (404, b"404 page not found")
REFUSED = {
    "kind": "Status",
    "message": 'namespaces is forbidden: User "u" cannot list resource "namespaces"',
}


async def test_obstacles_are_reported_until_all_kinds_can_be_listed(api, client):
    api.answer("GET /api/v1/configmaps", NOT_SERVED, LISTED)
    api.answer("GET /api/v1/namespaces", (403, REFUSED), LISTED)
    said: list[str] = []
    await wait_for_kinds(client, said.append, (CONFIG_MAPS, NAMESPACES))
    assert said[0].startswith("the cluster does not serve configmaps: apply crds/")
    assert said[1].startswith("no right to list namespaces: apply manifests/")
    assert all("; trying again in " in sentence for sentence in said)
    assert [item.query for item in api.seen] == [{"limit": "1"}] * 5


async def test_a_permanent_error_is_raised_at_once():
    tried: list[str] = []

    async def refuse() -> None:
        tried.append("once")
        raise Unauthorized("wrong")

    with pytest.raises(Unauthorized):
        await until_done(
            refuse, tried.append, passes=lambda error: not isinstance(error, Unauthorized)
        )
    assert tried == ["once"]


async def test_an_internal_error_is_raised_without_waiting():
    async def fail() -> None:
        raise KeyError("no error of the cluster")

    with pytest.raises(KeyError):
        await until_done(fail, print)


async def test_a_wait_with_a_limit_ends():
    async def fail() -> None:
        raise ClusterError("no answer")

    with pytest.raises(ClusterError, match="no answer"):
        await until_done(fail, print, limit=0.01)
