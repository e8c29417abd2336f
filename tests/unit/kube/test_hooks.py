"""The hooks of a program, as the API server stores them."""

import asyncio

import pytest
from aiohttp import web

from reconciler.api.meta import PolicyRef
from reconciler.errors import Forbidden, NoKindMatch, Unavailable
from reconciler.hooks.declared import HOOKS
from reconciler.kube.client import Client
from reconciler.kube.hooks import KubeHooks, KubeWatching
from reconciler.memory.cluster import MemoryCluster
from reconciler.services.ports.watching import WatchScope
from tests.unit.kube.conftest import StillClock
from tests.unit.kube.test_deep_objects import deep
from tests.unit.kube.test_deep_objects import listed as deep_list
from tests.unit.kube.test_watch import CONFIG_MAPS, event, listed, named, streamed

ROUTE = "GET /apis/kube-retrofit.dev/v1alpha1/namespaces/shop/hooks"
DEFINITIONS = "GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def hooks(client: Client, clock: StillClock, said: list[str]) -> KubeHooks:
    kinds = MemoryCluster()
    kinds.serve(HOOKS)
    return KubeHooks(client, kinds, clock, "shop", warn=said.append)


def ref(kind="Hook", name="a"):
    return PolicyRef(api_version=HOOKS.api_version, kind=kind, namespace="shop", name=name)


async def test_a_hook_is_known_not_to_exist_only_after_the_api_server_said_so(api, hooks):
    api.answer(ROUTE, listed(5, named("a", 1)), listed(6), (403, b"no"), (404, b"404 not found"))
    found = await hooks.find(ref())
    assert found is not None
    assert found["metadata"]["name"] == "a"
    assert await hooks.find(ref()) is None
    api.answer(DEFINITIONS, (403, b"no"))
    for error in (Forbidden, NoKindMatch):
        with pytest.raises(error):
            await hooks.find(ref())
    assert {item.query["fieldSelector"] for item in api.calls(ROUTE)} == {"metadata.name=a"}


async def test_a_hook_does_not_exist_once_the_definition_of_its_kind_is_deleted(api, hooks):
    api.answer(DEFINITIONS, listed(5))
    assert await hooks.find(ref()) is None
    assert api.seen[-1].query["fieldSelector"] == "metadata.name=hooks.kube-retrofit.dev"


@pytest.mark.parametrize("answer", [listed(5, {"metadata": {"name": "hooks"}}), (403, b"no")])
async def test_a_kind_may_have_hooks_while_its_definition_may_exist(api, hooks, answer):
    api.answer(DEFINITIONS, answer)
    with pytest.raises(NoKindMatch):
        await hooks.find(ref())


async def test_a_hook_that_is_nested_too_deeply_to_be_followed_exists(api, hooks):
    api.answer(ROUTE, deep_list(deep("a")))
    found = await hooks.find(ref())
    assert found is not None
    assert found["metadata"]["uid"] == "a"


async def test_a_hook_of_a_kind_that_the_program_does_not_run_does_not_exist(api, hooks):
    assert await hooks.find(ref(kind="ClusterHook")) is None
    assert not api.seen


async def test_hooks_that_can_no_longer_be_read_are_reported(api, hooks, clock, said):
    async def refused(_request):
        clock.seconds += 6.0
        return web.Response(status=403, body=b"no")

    api.answer(ROUTE, listed(5, named("a", 1)), refused)
    seen = asyncio.Queue()

    async def follow():
        async for change, _ in hooks.events():
            seen.put_nowait(change)

    following = asyncio.create_task(follow())
    async with asyncio.timeout(20):
        assert [await seen.get() for _ in range(2)] == ["ADDED", "DELETED"]
    following.cancel()
    await asyncio.wait({following})
    (line,) = said
    assert line.startswith("hooks cannot be read, so none of them runs: ")


async def test_a_watch_without_bookmarks_that_is_quiet_ends_as_if_the_server_ended_it(api, client):
    api.answer("GET /api/v1/configmaps", streamed(event("ADDED", named("a", 6)), hold=True))
    events = KubeWatching(client, idle=0.2).follow(WatchScope(kind=CONFIG_MAPS), "5")
    async with asyncio.timeout(20):
        assert [item.version async for item in events] == ["6"]


async def test_a_watch_that_never_begins_is_a_problem(api, client):
    async def never(_request):
        await asyncio.Event().wait()

    api.answer("GET /api/v1/configmaps", never)
    events = KubeWatching(client, idle=0.2).follow(WatchScope(kind=CONFIG_MAPS), "5")
    async with asyncio.timeout(20):
        with pytest.raises(Unavailable, match="no answer in time"):
            assert [item async for item in events] == []
