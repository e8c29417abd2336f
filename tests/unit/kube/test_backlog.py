"""The Lease that publishes the number of waiting requests."""

import pytest

from reconciler.kube.backlog import KubeBacklogStore, backlog_handler
from reconciler.kube.client import Client
from reconciler.kube.leases import KubeLeases
from reconciler.requests.overload import Backlog
from tests.unit.kube.conftest import StillClock

COLLECTION = "/apis/coordination.k8s.io/v1/namespaces/kyverno/leases"
LEASE = f"{COLLECTION}/kube-retrofit-backlog"

ABSENT = (404, {"kind": "Status", "reason": "NotFound", "details": {"name": "it"}})


def lease(**marks):
    annotations = {f"kube-retrofit.dev/{name}": value for name, value in marks.items()}
    return {"metadata": {"name": "kube-retrofit-backlog", "annotations": annotations}}


@pytest.fixture
def store(client: Client) -> KubeBacklogStore:
    return KubeBacklogStore(KubeLeases(client, "kyverno"), StillClock())


async def test_the_backlog_is_published_with_one_patch(api, store):
    api.answer(f"PATCH {LEASE}", lease())
    await store.write(Backlog(waiting=12, seen=345, of={"namespace/a": 7}))
    (call,) = api.seen
    marks = call.body["metadata"]["annotations"]
    assert marks == {
        "kube-retrofit.dev/waiting": "12",
        "kube-retrofit.dev/seen": "345",
        "kube-retrofit.dev/waiting-of": '{"namespace/a":7}',
    }
    assert call.body["spec"]["renewTime"].endswith("Z")


async def test_a_missing_lease_is_created(api, store):
    api.answer(f"PATCH {LEASE}", ABSENT)
    api.answer(f"POST {COLLECTION}", (201, lease()))
    await store.write(Backlog(waiting=1))
    made = api.calls(f"POST {COLLECTION}")[0].body
    assert made["metadata"]["name"] == "kube-retrofit-backlog"
    assert made["metadata"]["annotations"]["kube-retrofit.dev/waiting"] == "1"


async def test_an_absent_lease_is_read_as_an_empty_backlog(api, store):
    api.answer(f"GET {LEASE}", ABSENT)
    assert await store.read() == Backlog()


async def test_the_backlog_is_read_as_it_was_published(api, store):
    api.answer(f"GET {LEASE}", lease(**{"waiting": "12", "seen": "345", "waiting-of": '{"a":7}'}))
    assert await store.read() == Backlog(waiting=12, seen=345, of={"a": 7})


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"a":"many"}'])
async def test_invalid_shares_in_the_lease_are_ignored(api, store, text):
    api.answer(f"GET {LEASE}", lease(**{"waiting": "12", "waiting-of": text}))
    assert await store.read() == Backlog(waiting=12)


def test_invalid_numbers_in_the_lease_are_read_as_an_empty_backlog():
    taken = []
    on_event = backlog_handler(taken.append)
    on_event("MODIFIED", lease(waiting="many", seen="-3"))
    on_event("ADDED", {"metadata": {"name": "kube-retrofit-backlog"}})
    on_event("DELETED", lease(waiting="5"))
    assert taken == [Backlog(), Backlog()]
