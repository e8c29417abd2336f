"""Merge keys of group versions that come and go."""

import pytest

from reconciler.engine.patch import SHIPPED
from reconciler.kube.client import Client
from reconciler.kube.mergekeys import KubeMergeKeys
from tests.unit.kube.conftest import Api, StillClock

KEYED = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"]}


def document(group: str) -> object:
    kind = {"group": group, "version": "v1", "kind": "Thing"}
    spec = {"type": "object", "properties": {"items": {**KEYED, "items": {"type": "object"}}}}
    schema = {"type": "object", "properties": {"spec": spec}}
    thing = {**schema, "x-kubernetes-group-version-kind": [kind]}
    return {"components": {"schemas": {"Thing": thing}}}


async def test_only_the_newest_keys_that_are_no_longer_published_are_kept(
    api: Api, client: Client, clock: StillClock
) -> None:
    """A server that has just started publishes custom resources a moment later than the rest."""
    keys = KubeMergeKeys(client, clock, pytest.fail)
    groups = [f"g{number}.example" for number in range(150)]
    for group in groups:
        place = f"apis/{group}/v1"
        paths = {place: {"serverRelativeURL": f"/openapi/v3/{place}?hash=1"}}
        api.answers["GET /openapi/v3"].clear()
        api.answer("GET /openapi/v3", {"paths": paths})
        api.answer(f"GET /openapi/v3/{place}", document(group))
        clock.seconds += 100
        table = await keys.merge_keys(f"{group}/v1")
        assert table.kinds.get((f"{group}/v1", "Thing")) is not None
    api.answers["GET /openapi/v3"].clear()
    api.answer("GET /openapi/v3", {"paths": {}})
    clock.seconds += 100
    kept = [await keys.merge_keys(f"{group}/v1") is not SHIPPED for group in groups]
    assert kept == [False] * 50 + [True] * 100
