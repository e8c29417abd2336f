"""When discovery is repeated, and how the API server's responses are read."""

import asyncio
import tracemalloc

import pytest
from aiohttp import web

from reconciler.errors import NoKindMatch, Unavailable
from reconciler.kube.client import Client
from reconciler.kube.discovery import KubeKinds
from tests.unit.kube.conftest import StillClock

CORE = {
    "kind": "APIGroupDiscoveryList",
    "items": [
        {
            "metadata": {},
            "versions": [
                {
                    "version": "v1",
                    "resources": [
                        {
                            "resource": "pods",
                            "responseKind": {"kind": "Pod"},
                            "scope": "Namespaced",
                            "verbs": ["get", "list", "patch", "create"],
                            "subresources": [{"subresource": "status", "verbs": ["get", "patch"]}],
                        },
                        {
                            "resource": "bindings",
                            "responseKind": {"kind": "Binding"},
                            "scope": "Namespaced",
                            "verbs": ["create"],
                        },
                    ],
                }
            ],
        }
    ],
}
NONE = {"kind": "APIGroupDiscoveryList", "items": []}


def widgets(*versions):
    resource = {
        "resource": "widgets",
        "responseKind": {"kind": "Widget"},
        "scope": "Namespaced",
        "verbs": ["get", "list", "update"],
    }
    found = [{"version": version, "resources": [resource]} for version in versions]
    group = {"metadata": {"name": "x.example"}, "versions": found}
    return {"kind": "APIGroupDiscoveryList", "items": [group]}


@pytest.fixture
def kinds(client: Client, clock: StillClock) -> KubeKinds:
    return KubeKinds(client, clock)


def names(found):
    return [(kind.api_version, kind.kind) for kind in found]


async def test_known_kinds_are_discovered_again_only_after_some_minutes(api, kinds, clock):
    api.answer("GET /api", CORE)
    api.answer("GET /apis", NONE)
    for _ in range(3):
        assert names(await kinds.find("v1", "Pod")) == [("v1", "Pod")]
        clock.seconds += 60
    assert len(api.calls("GET /apis")) == 1
    clock.seconds += 300
    await kinds.find("v1", "Pod")
    assert len(api.calls("GET /apis")) == 2


async def test_a_new_kind_is_found_at_the_next_lookup(api, kinds, clock):
    api.answer("GET /api", CORE)
    api.answer("GET /apis", NONE, widgets("v1"))
    assert await kinds.find("x.example/v1", "Widget") == ()
    clock.seconds += 3
    assert names(await kinds.find("x.example/v1", "Widget")) == [("x.example/v1", "Widget")]


async def test_a_kind_that_is_no_longer_served_is_discovered_again(api, client, kinds, clock):
    api.answer("GET /api", CORE)
    api.answer("GET /apis", widgets("v1"), widgets("v2"))
    assert names([await kinds.named("", "widget")]) == [("x.example/v1", "Widget")]
    clock.seconds += 3
    for _ in range(5):
        with pytest.raises(NoKindMatch):
            await client.json("GET", "/apis/x.example/v1/widgets")
        assert names([await kinds.named("", "widget")]) == [("x.example/v2", "Widget")]
    assert len(api.calls("GET /apis")) == 2


async def test_an_unknown_kind_does_not_cause_many_discovery_requests(api, kinds, clock):
    api.answer("GET /api", CORE)
    api.answer("GET /apis", NONE)
    for _ in range(600):
        assert await kinds.find("x.example/v1", "Widget") == ()
        clock.seconds += 0.1
    assert 5 <= len(api.calls("GET /apis")) <= 9


@pytest.mark.parametrize(("count", "length"), [(20_000, 50), (500, 100_000)])
async def test_unknown_names_do_not_accumulate(api, kinds, count, length):
    api.answer("GET /api", CORE)
    api.answer("GET /apis", NONE)
    tracemalloc.start()
    try:
        for number in range(count):
            assert await kinds.of_resource("x.example", "v1", f"{number:0{length}}") is None
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 2_000_000
    assert len(api.calls("GET /apis")) <= 2


async def test_an_invalidated_result_is_not_returned(api, kinds):
    api.answer("GET /api", CORE)
    api.answer("GET /apis", widgets("v1"), widgets("v2", "v1"))
    assert names(await kinds.find("*", "Widget")) == [("x.example/v1", "Widget")]
    kinds.invalidate()
    assert names(await kinds.find("*", "Widget")) == [("x.example/v2", "Widget")]


async def test_known_kinds_are_returned_while_the_server_fails(api, kinds, clock):
    api.answer("GET /api", CORE)
    api.answer("GET /apis", NONE, (500, b""))
    await kinds.find("v1", "Pod")
    clock.seconds += 1000
    assert names(await kinds.find("v1", "Pod")) == [("v1", "Pod")]
    kinds.invalidate()
    with pytest.raises(Unavailable):
        await kinds.find("v1", "Pod")


async def test_a_wildcard_finds_only_kinds_that_can_be_changed(api, kinds):
    api.answer("GET /api", CORE)
    api.answer("GET /apis", NONE)
    assert names(await kinds.find("*", "*")) == [("v1", "Pod")]
    assert [kind.subresource for kind in await kinds.find("*", "*/*")] == ["status"]
    assert names(await kinds.find("v1", "Binding")) == [("v1", "Binding")]


async def test_a_server_without_aggregated_discovery_is_reported_as_too_old(api, kinds):
    api.answer("GET /api", {"kind": "APIVersions", "versions": ["v1"]})
    api.answer("GET /apis", NONE)
    with pytest.raises(Unavailable, match=r"get /api: .*Kubernetes 1\.31 or newer"):
        await kinds.find("v1", "Pod")


async def test_a_cancelled_lookup_does_not_end_discovery_for_other_callers(api, kinds):
    go_on = asyncio.Event()

    async def slowly(_request):
        await go_on.wait()
        return web.json_response(CORE)

    api.answer("GET /api", slowly)
    api.answer("GET /apis", NONE)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await kinds.find("v1", "Pod")
    waiting = asyncio.create_task(kinds.find("v1", "Pod"))
    go_on.set()
    assert names(await waiting) == [("v1", "Pod")]
    assert len(api.calls("GET /api")) == 1
