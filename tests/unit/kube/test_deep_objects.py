"""Objects nested too deeply to be parsed are named, and all others are read."""

import json

import orjson
import pytest
from aiohttp import web

from reconciler.api.meta import Kind
from reconciler.clock import SystemClock
from reconciler.errors import Invalid
from reconciler.kube.hooks import KubeWatching
from reconciler.kube.reader import KubeReader
from reconciler.kube.watch import Watch
from reconciler.services.ports.watching import WatchScope

CONFIG_MAPS = Kind(group="", version="v1", kind="ConfigMap", plural="configmaps", namespaced=True)
ROUTE = "GET /api/v1/configmaps"
LEVELS = 3_000


def deep(name: str, version: int = 5) -> bytes:
    spec = b'{"a":' * LEVELS + b"1" + b"}" * LEVELS
    meta = {"namespace": "n", "name": name, "uid": name, "resourceVersion": str(version)}
    return b'{"metadata":%s,"spec":%s}' % (orjson.dumps(meta), spec)


def plain(name: str, version: int = 4) -> bytes:
    meta = {"namespace": "n", "name": name, "uid": name, "resourceVersion": str(version)}
    return orjson.dumps({"metadata": meta})


def listed(*items: bytes) -> bytes:
    return b'{"metadata":{"resourceVersion":"9"},"items":[%s]}' % b",".join(items)


def event(kind: str, obj: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), obj)


def names(objects):
    return [obj["metadata"]["name"] for obj in objects]


async def test_a_list_leaves_out_only_the_deeply_nested_object(api, client):
    said = []
    client.tell_left_out(said.append)
    api.answer(ROUTE, listed(plain("one"), deep("evil"), plain("two")))
    page = await KubeReader(client).list_page(CONFIG_MAPS)
    assert names(page.items) == ["one", "two"]
    assert said == ["list configmaps: left out, because nested deeper than 500 levels: n/evil"]


async def test_a_deeply_nested_object_is_invalid(api, client):
    api.answer("GET /api/v1/namespaces/n/configmaps/evil", deep("evil"))
    with pytest.raises(Invalid, match="nested deeper than 500 levels"):
        await KubeReader(client).get(CONFIG_MAPS, "n", "evil")


async def test_a_watch_of_a_hook_names_the_object_whose_event_is_left_out(api, client):
    said = []
    client.tell_left_out(said.append)
    lines = event("MODIFIED", deep("evil", 10)) + event("ADDED", plain("two", 11))
    api.answer(ROUTE, lines)
    scope = WatchScope(kind=CONFIG_MAPS)
    assert [item.version async for item in KubeWatching(client).follow(scope, "9")] == ["11"]
    text = "watch configmaps: the event of n/evil is left out, because it is nested too deeply"
    assert said == [text]


async def test_a_watch_reports_an_object_that_became_too_deep_as_deleted(api, client):
    async def follow(_request):
        lines = event("MODIFIED", deep("one", 10)) + event("ADDED", plain("two", 11))
        return web.Response(body=lines)

    api.answer(ROUTE, listed(plain("one")), follow)
    watch = Watch(client, CONFIG_MAPS, SystemClock())
    seen = []
    async for change, obj in watch.events():
        seen.append((change, obj["metadata"]["name"]))
        if len(seen) == 3:
            break
    assert seen == [("ADDED", "one"), ("DELETED", "one"), ("ADDED", "two")]


async def test_another_library_receives_deep_objects_in_a_parsable_form(api, client):
    api.answer(ROUTE, listed(plain("one"), deep("evil")))
    api.answer("GET /watch", event("ADDED", deep("evil")) + event("ADDED", plain("one")))
    async with client.open_session(lambda *_: None) as session:
        async with session.get(f"{api.address}/api/v1/configmaps") as response:
            assert names((await response.json(content_type=None))["items"]) == ["one", "evil"]
        async with session.get(f"{api.address}/watch") as response:
            read = b"".join([chunk async for chunk in response.content.iter_chunked(100)])
    events = [json.loads(line) for line in read.splitlines()]
    assert names(item["object"] for item in events) == ["evil", "one"]
