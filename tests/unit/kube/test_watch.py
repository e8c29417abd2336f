"""List and watch as one stream of events."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import orjson
import pytest
from aiohttp import web

from reconciler.api.meta import Kind
from reconciler.clock import SystemClock
from reconciler.kube.client import Client
from reconciler.kube.watch import Watch
from tests.unit.kube.conftest import StillClock

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
    """Return a handler that streams events, optionally in small pieces and then held open."""

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
async def follow(
    client: Client, clock: StillClock
) -> Callable[..., Awaitable[tuple[list[tuple[str, str, str]], Watch]]]:
    """Return a function that follows a watch until it has the given number of events."""

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


async def test_a_watch_continues_where_the_list_ended(api, follow):
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


async def test_a_bookmark_advances_the_watch_position(api, follow):
    api.answer(
        ROUTE,
        listed(5),
        streamed(bookmark(9)),
        streamed(event("ADDED", named("x", 10)), hold=True),
    )
    assert (await follow(1))[0] == [("ADDED", "x", "10")]
    assert api.seen[-1].query["resourceVersion"] == "9"


@pytest.mark.parametrize("lost", [streamed(GONE), (410, b"")])
async def test_deletions_are_reported_after_the_watch_position_is_lost(api, follow, lost):
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


async def test_a_list_whose_position_expires_is_started_again(api, follow):
    api.answer(
        ROUTE,
        listed(5, named("x", 1), token="more"),
        (410, b""),
        listed(6, named("y", 2)),
        streamed(hold=True),
    )
    seen, _ = await follow(3)
    assert seen == [("ADDED", "x", "1"), ("ADDED", "y", "2"), ("DELETED", "x", "1")]


async def test_a_broken_watch_resumes_at_its_last_position(api, follow):
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


async def test_a_quiet_watch_without_bookmarks_resumes_at_once_and_is_no_problem(api, client):
    watch = Watch(client, CONFIG_MAPS, SystemClock(), idle=0.2)
    api.answer(ROUTE, listed(5, named("x", 5)), streamed(hold=True))
    problems = set()

    def resumed():
        problems.add(watch.problem)
        return len(api.seen) >= 7

    async with contextlib.aclosing(watch.events()) as events:
        assert (await anext(events))[0] == "ADDED"
        waiting = asyncio.create_task(anext(events))
        await until(resumed)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert problems == {""}
    assert {call.query["resourceVersion"] for call in api.seen[1:]} == {"5"}


@pytest.mark.parametrize("cut", [1, 7, 100_000])
async def test_lines_are_read_however_they_are_split(api, follow, cut):
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


async def test_only_metadata_is_requested_if_set(api, follow):
    partial = {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata"}
    api.answer(
        ROUTE,
        listed(5, named("x", 1) | partial),
        streamed(event("MODIFIED", named("x", 6) | partial), hold=True),
    )
    await follow(2, metadata_only=True, labels="a=b")
    assert ["PartialObjectMetadata" in call.headers["Accept"] for call in api.seen] == [True, True]
    assert all(call.query["labelSelector"] == "a=b" for call in api.seen)


async def test_a_watch_reports_its_progress_and_its_problem(api, client, clock):
    watch = Watch(client, CONFIG_MAPS, clock)
    start = watch.progress
    clock.seconds += 50
    reported = []

    async def second_list(_request):
        reported.append((watch.problem, watch.progress, watch.synced.is_set()))
        return web.json_response(listed(5))

    api.answer(ROUTE, (403, b""), second_list, streamed(event("ADDED", named("x", 6)), hold=True))
    async with asyncio.timeout(20), contextlib.aclosing(watch.events()) as events:
        await anext(events)
    ((problem, progress, synced),) = reported
    assert "grant: list configmaps" in problem
    assert (progress, synced) == (start, False)
    assert (watch.progress, watch.problem, watch.synced.is_set()) == (start + 50, "", True)


BEAT = 1.0


@contextlib.asynccontextmanager
async def beating(api, client, *answers):
    """Yield a watch with a beat, which a task follows in the meantime."""
    watch = Watch(client, CONFIG_MAPS, SystemClock(), beat=BEAT)
    api.answer(ROUTE, listed(5), *answers)

    async def run():
        async for _ in watch.events():
            pass

    following = asyncio.create_task(run())
    try:
        yield watch
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def lasting(seconds, *events):
    """Return a handler that streams events and ends the response after some seconds."""

    async def answer(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for item in events:
            await response.write(orjson.dumps(item) + b"\n")
        await asyncio.sleep(seconds)
        return response

    return answer


async def until(condition):
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.02)
    pytest.fail("the condition never held")


async def test_caught_up_waits_for_a_new_list_while_a_watch_is_silent(api, client):
    late = streamed(event("ADDED", named("x", 6)), hold=True)
    answers = [streamed(hold=True), listed(7), late]
    async with beating(api, client, *answers) as watch:
        await until(watch.synced.is_set)
        await until(lambda: not watch.fresh())
        async with asyncio.timeout(10):
            await watch.caught_up()
        assert watch.fresh()
        assert "watch" not in api.seen[2].query


async def test_a_quiet_watch_stays_fresh(api, client):
    beats = [lasting(BEAT)] * 4
    async with beating(api, client, *beats, streamed(hold=True)) as watch:
        await until(lambda: len(api.seen) > 1)
        while len(api.seen) < 5:
            assert watch.fresh()
            await asyncio.sleep(0.05)
        assert {call.query["timeoutSeconds"] for call in api.seen[1:]} == {"1"}


@pytest.mark.parametrize(
    "silence",
    [
        pytest.param((), id="nothing at all"),
        pytest.param((event("ADDED", named("x", 6)),), id="nothing after a line"),
    ],
)
async def test_a_watch_that_is_open_and_silent_is_not_fresh(api, client, silence):
    silent = streamed(*silence, hold=True)
    answers = [silent, silent, lasting(BEAT), streamed(hold=True)]
    async with beating(api, client, *answers) as watch:
        await until(watch.synced.is_set)
        assert watch.fresh()
        await until(lambda: not watch.fresh())
        # A new connection proves freshness only when it ends.
        await until(lambda: len(api.seen) == 3)
        assert not watch.fresh()
        await until(watch.fresh)
        assert len(api.seen) >= 4


async def test_a_broken_watch_is_not_fresh_until_it_has_resumed(api, client):
    answers = [(500, b""), lasting(BEAT), streamed(hold=True)]
    async with beating(api, client, *answers) as watch:
        await until(lambda: len(api.seen) == 3)
        assert not watch.fresh()
        await until(watch.fresh)
        assert len(api.seen) >= 3


class Discovery:
    """A discovery that reports whether the kind is served."""

    def __init__(self, *, served: bool) -> None:
        self.served = served

    async def __call__(self) -> bool:
        return self.served


async def test_objects_of_an_optional_kind_are_deleted_when_it_is_no_longer_served(
    api, client, clock
):
    unserved = (404, b"404 page not found")
    api.answer(ROUTE, listed(5, named("x", 1)), unserved)
    watch = Watch(client, CONFIG_MAPS, clock, served=Discovery(served=True))
    async with asyncio.timeout(20), contextlib.aclosing(watch.events()) as events:
        assert [(await anext(events))[0] for _ in range(2)] == ["ADDED", "DELETED"]
        await watch.caught_up()
    assert (watch.absent, watch.synced.is_set(), watch.problem) == (True, True, "")


async def test_a_kind_that_is_not_served_is_listed_only_after_discovery_finds_it(
    api, client, clock
):
    api.answer(ROUTE, listed(5, named("x", 1)), streamed(hold=True))
    found = Discovery(served=False)
    watch = Watch(client, CONFIG_MAPS, clock, served=found)
    turned = []
    watch.turned.subscribe(lambda: turned.append(watch.absent))
    async with asyncio.timeout(20), contextlib.aclosing(watch.events()) as events:
        coming = asyncio.create_task(anext(events))
        await watch.synced.wait()
        await watch.caught_up()
        assert (watch.absent, api.seen) == (True, [])
        found.served = True
        watch.look()
        kind, obj = await coming
    assert (kind, obj["metadata"]["name"]) == ("ADDED", "x")
    assert (watch.absent, turned) == (False, [False])


async def test_an_optional_kind_that_cannot_be_read_does_not_block_the_caller(api, client, clock):
    api.answer(ROUTE, (403, b"no"))
    watch = Watch(client, CONFIG_MAPS, clock, served=Discovery(served=True))
    async with asyncio.timeout(20), contextlib.aclosing(watch.events()) as events:
        coming = asyncio.create_task(anext(events))
        await watch.synced.wait()
        await watch.caught_up()
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
    assert watch.absent
    assert "configmaps" in watch.problem


async def test_a_required_kind_that_is_not_served_is_a_problem(api, client, clock):
    unserved = (404, b"404 page not found")
    api.answer(ROUTE, listed(5, named("x", 1)), unserved)
    watch = Watch(client, CONFIG_MAPS, clock)
    async with contextlib.aclosing(watch.events()) as events:
        await anext(events)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(events), 1.0)
    assert not watch.absent
    assert "does not serve configmaps" in watch.problem
