"""List and watch as one stream."""

import asyncio
import contextlib

import orjson
import pytest
from aiohttp import web

from reconciler.api.meta import Kind
from reconciler.kube.watch import Watch

CONFIG_MAPS = Kind(group="", version="v1", kind="ConfigMap", plural="configmaps", namespaced=True)
ROUTE = "GET /api/v1/configmaps"
GONE = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}


def named(name, version, uid="1", **more):
    meta = {"namespace": "a", "name": name, "uid": uid, "resourceVersion": str(version)}
    return {"metadata": meta, **more}


def listed(version, *items, token=""):
    return {"metadata": {"resourceVersion": str(version), "continue": token}, "items": items}


def event(kind, obj):
    return {"type": kind, "object": obj}


def bookmark(version):
    return event("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


def streamed(*events, hold=False, cut=0):
    """Answer a watch with these events; in pieces of some bytes, and held open if asked."""

    async def answer(request):
        response = web.StreamResponse()
        await response.prepare(request)
        data = b"".join(orjson.dumps(item) + b"\n" for item in events)
        size = cut or len(data) or 1
        for start in range(0, len(data), size):
            await response.write(data[start : start + size])
        if hold:
            await asyncio.Event().wait()
        return response

    return answer


@pytest.fixture
async def follow(client, clock):
    """Return a function that follows until so many events came."""

    async def followed(count, **options):
        watch = Watch(client, CONFIG_MAPS, clock, **options)
        seen = []
        async with asyncio.timeout(20), contextlib.aclosing(watch.events()) as events:
            async for kind, obj in events:
                meta = obj["metadata"]
                seen.append((kind, meta["name"], meta["resourceVersion"]))
                assert (obj["apiVersion"], obj["kind"]) == ("v1", "ConfigMap")
                if len(seen) == count:
                    break
        return seen, watch

    return followed


async def test_a_watch_goes_on_where_the_list_ended(api, follow):
    api.answer(
        ROUTE,
        listed(5, named("x", 1), token="more"),
        listed(5, named("y", 2)),
        streamed(event("MODIFIED", named("x", 6)), event("DELETED", named("y", 7)), hold=True),
    )
    seen, watch = await follow(4)
    assert seen == [
        ("ADDED", "x", "1"),
        ("ADDED", "y", "2"),
        ("MODIFIED", "x", "6"),
        ("DELETED", "y", "7"),
    ]
    assert watch.synced.is_set()
    query = api.seen[-1].query
    assert (query["resourceVersion"], query["allowWatchBookmarks"]) == ("5", "true")
    assert int(query["timeoutSeconds"]) > 60


async def test_a_bookmark_moves_the_position(api, follow):
    api.answer(
        ROUTE,
        listed(5),
        streamed(bookmark(9)),
        streamed(event("ADDED", named("x", 10)), hold=True),
    )
    assert (await follow(1))[0] == [("ADDED", "x", "10")]
    assert api.seen[-1].query["resourceVersion"] == "9"


@pytest.mark.parametrize("lost", [streamed(GONE), (410, b"")])
async def test_after_a_lost_position_what_vanished_is_told(api, follow, lost):
    api.answer(
        ROUTE,
        listed(5, named("kept", 1), named("changed", 2), named("gone", 3), named("anew", 4)),
        lost,
        listed(9, named("kept", 1), named("changed", 8), named("anew", 7, uid="2")),
        streamed(hold=True),
    )
    seen, _ = await follow(8)
    assert seen[4:] == [
        ("MODIFIED", "changed", "8"),
        ("DELETED", "anew", "4"),
        ("ADDED", "anew", "7"),
        ("DELETED", "gone", "3"),
    ]


async def test_a_list_that_expires_is_begun_again(api, follow):
    api.answer(
        ROUTE,
        listed(5, named("x", 1), token="more"),
        (410, b""),
        listed(6, named("y", 2)),
        streamed(hold=True),
    )
    seen, _ = await follow(3)
    assert seen == [("ADDED", "x", "1"), ("ADDED", "y", "2"), ("DELETED", "x", "1")]


async def test_a_broken_watch_goes_on_from_where_it_was(api, follow):
    api.answer(
        ROUTE,
        listed(5),
        streamed(event("ADDED", named("x", 6))),
        (500, b""),
        streamed(event("ADDED", named("y", 7)), hold=True),
    )
    seen, watch = await follow(2)
    assert seen == [("ADDED", "x", "6"), ("ADDED", "y", "7")]
    assert [call.query.get("resourceVersion") for call in api.seen] == [None, "5", "6", "6"]
    assert watch.problem == ""


@pytest.mark.parametrize("cut", [1, 7, 100_000])
async def test_lines_may_come_in_any_pieces(api, follow, cut):
    size = 3_000_000 if cut > 7 else 10
    api.answer(
        ROUTE,
        listed(5),
        streamed(
            event("ADDED", named("x", 6, data={"big": "x" * size})),
            event("ADDED", named("y", 7)),
            hold=True,
            cut=cut,
        ),
    )
    assert (await follow(2))[0] == [("ADDED", "x", "6"), ("ADDED", "y", "7")]


async def test_only_metadata_is_asked_for(api, follow):
    partial = {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata"}
    api.answer(
        ROUTE,
        listed(5, named("x", 1) | partial),
        streamed(event("MODIFIED", named("x", 6) | partial), hold=True),
    )
    await follow(2, metadata_only=True, labels="a=b")
    assert ["PartialObjectMetadata" in call.headers["Accept"] for call in api.seen] == [True, True]
    assert all(call.query["labelSelector"] == "a=b" for call in api.seen)


async def test_progress_and_problem_tell_how_it_stands(api, client, clock):
    watch = Watch(client, CONFIG_MAPS, clock)
    start = watch.progress
    clock.seconds += 50
    told = []

    async def second_list(_request):
        told.append((watch.problem, watch.progress, watch.synced.is_set()))
        return web.json_response(listed(5))

    api.answer(ROUTE, (403, b""), second_list, streamed(event("ADDED", named("x", 6)), hold=True))
    async with asyncio.timeout(20), contextlib.aclosing(watch.events()) as events:
        await anext(events)
    ((problem, progress, synced),) = told
    assert "grant: list configmaps" in problem
    assert (progress, synced) == (start, False)
    assert (watch.progress, watch.problem, watch.synced.is_set()) == (start + 50, "", True)
