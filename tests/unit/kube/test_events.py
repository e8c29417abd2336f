"""Events are coalesced and bounded, and never delay the program."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from reconciler.kube.client import Client
from reconciler.kube.events import KubeEvents
from reconciler.services.ports.reporting import Event
from tests.unit.kube.conftest import Api, StillClock

POLICY = {"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "name": "p", "labels": {}}
ROUTE = "POST /apis/events.k8s.io/v1/namespaces/default/events"


@pytest.fixture
async def events(api: Api, client: Client, clock: StillClock) -> AsyncIterator[KubeEvents]:
    api.answer(ROUTE, {})
    events = KubeEvents(client, clock, instance="controller-1")
    task = asyncio.create_task(events.run())
    yield events
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def emit(events, note="done", regarding=POLICY, related=None, group=""):
    events.emit(
        Event(
            regarding=regarding,
            related=related,
            severity="Normal",
            reason="Patched",
            action="Patch",
            note=note,
            group=group,
        )
    )


async def test_an_event_is_sent(api, events):
    emit(events, related={"kind": "Secret", "namespace": "a", "name": "s", "data": {"x": "y"}})
    await api.until(lambda: bool(api.calls(ROUTE)))
    body = api.seen[0].body
    assert body["regarding"] == {key: POLICY[key] for key in ("apiVersion", "kind", "name")}
    assert body["related"] == {"kind": "Secret", "namespace": "a", "name": "s"}
    assert body["metadata"]["name"].startswith("p.")
    assert (body["type"], body["reason"], body["action"]) == ("Normal", "Patched", "Patch")
    assert body["reportingInstance"] == "controller-1"
    assert body["eventTime"].endswith("Z")


async def test_equal_events_become_one_with_a_series(api, events, clock):
    emit(events)
    await api.until(lambda: bool(api.calls(ROUTE)))
    for _ in range(4):
        emit(events)
    clock.seconds += 31
    emit(events, note="something else")
    name = api.seen[0].body["metadata"]["name"]
    patch = f"PATCH /apis/events.k8s.io/v1/namespaces/default/events/{name}"
    api.answer(patch, {})
    await api.until(lambda: bool(api.calls(patch)))
    assert api.calls(patch)[0].body["series"]["count"] == 5
    assert len(api.calls(ROUTE)) == 2


async def test_after_the_window_an_event_is_new(api, events, clock):
    emit(events)
    await api.until(lambda: len(api.calls(ROUTE)) == 1)
    clock.seconds += 601
    emit(events, note="makes it look through")
    await api.until(lambda: len(api.calls(ROUTE)) == 2)
    emit(events)
    emit(events, note="last")
    await api.until(lambda: len(api.calls(ROUTE)) == 4)
    assert [call.body["note"] for call in api.seen].count("done") == 2


async def test_an_event_is_created_in_the_namespace_of_its_object(api, events):
    api.answer(ROUTE.replace("default", "a"), {})
    emit(events, regarding={"kind": "Secret", "namespace": "a", "name": "s" * 253})
    await api.until(lambda: bool(api.seen))
    assert api.seen[0].path == "/apis/events.k8s.io/v1/namespaces/a/events"
    assert len(api.seen[0].body["metadata"]["name"]) <= 253


async def test_a_long_note_is_cut(api, events):
    emit(events, note="ä" * 2000)
    await api.until(lambda: bool(api.seen))
    assert len(api.seen[0].body["note"].encode()) <= 1024


async def test_events_beyond_the_buffer_are_dropped_and_counted(client, clock):
    events = KubeEvents(client, clock, instance="x")
    for number in range(1010):
        emit(events, note=str(number))
    assert events.dropped == 10


async def test_a_refused_event_does_not_stop_later_events(api, events):
    api.answers.clear()
    api.answer(ROUTE, (403, b""))
    emit(events)
    emit(events, note="other")
    await api.until(lambda: len(api.calls(ROUTE)) == 2)


async def test_a_flush_sends_the_remaining_events(api, client, clock):
    api.answer(ROUTE, {})
    events = KubeEvents(client, clock, instance="x")
    emit(events)
    await events.flush()
    assert len(api.calls(ROUTE)) == 1


async def test_events_of_a_group_become_one_even_if_their_notes_differ(api, events, clock):
    for number in range(5):
        emit(events, note=f"object {number}", group="rule r failed")
    await api.until(lambda: bool(api.calls(ROUTE)))
    emit(events, note="object 5", group="another")
    await api.until(lambda: len(api.calls(ROUTE)) == 2)
    first, second = (call.body for call in api.calls(ROUTE))
    assert (first["note"], first["series"]["count"]) == ("object 0", 5)
    assert second["note"] == "object 5"
