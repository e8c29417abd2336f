"""Who leads, on a Lease that is stored as the API server stores it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
import pytest
from aiohttp import web

from reconciler.api.meta import Object
from reconciler.kube.client import Client
from reconciler.kube.lease import Election, Timing
from tests.unit.kube.conftest import Api, StillClock

PATH = "/apis/coordination.k8s.io/v1/namespaces/kyverno/leases"
TIMING = Timing(duration=9.0, renew=6.0, retry=0.01)


class StoredLease:
    """Answers reads and writes of one Lease; a write must carry the version that it replaces."""

    def __init__(self, api: Api, **spec: Any) -> None:
        self.version = 1
        self.spec: Object | None = spec or None
        api.answer(f"POST {PATH}", self.create)
        api.answer(f"GET {PATH}/kube-retrofit-controller", self.read)
        api.answer(f"PUT {PATH}/kube-retrofit-controller", self.replace)

    def store(self, **spec):
        self.version, self.spec = self.version + 1, spec

    async def read(self, _request) -> web.Response:
        if self.spec is None:
            details = {"name": "kube-retrofit-controller"}
            return web.json_response({"kind": "Status", "details": details}, status=404)
        meta = {"name": "kube-retrofit-controller", "resourceVersion": str(self.version)}
        return web.json_response({"metadata": meta, "spec": self.spec})

    async def create(self, request) -> web.Response:
        self.store(**orjson.loads(await request.read())["spec"])
        return await self.read(request)

    async def replace(self, request) -> web.Response:
        body = orjson.loads(await request.read())
        if self.spec is not None and body["metadata"]["resourceVersion"] != str(self.version):
            return web.json_response({"kind": "Status", "reason": "Conflict"}, status=409)
        if self.spec is not None:
            self.store(**body["spec"])
        return await self.read(request)


class Candidate:
    """A running election, and what it announced."""

    def __init__(self, api: Api, client: Client, pod: str = ""):
        self.api, self.clock = api, StillClock()
        self.announced, self.warned = list[str](), list[str]()
        self.election = Election(
            client,
            self.clock,
            namespace="kyverno",
            identity="me",
            timing=TIMING,
            pod=pod,
            warn=self.warned.append,
        )
        self.election.started.subscribe(lambda: self.announced.append("started"))
        self.election.lost.subscribe(lambda: self.announced.append("lost"))
        self.task = asyncio.create_task(self.election.run())

    async def rounds(self, count: int = 3) -> None:
        """Wait until it has called the API server some times more."""
        calls = len(self.api.seen) + count
        await self.api.until(lambda: len(self.api.seen) >= calls)

    async def until(self, *announced: str) -> None:
        async with asyncio.timeout(20):
            while tuple(self.announced) != announced:
                await self.rounds(1)

    async def end(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


@pytest.fixture
async def candidate(api: Api, client: Client) -> AsyncIterator[Callable[..., Candidate]]:
    begun = list[Candidate]()

    def make(**fields):
        begun.append(Candidate(api, client, **fields))
        return begun[-1]

    yield make
    for each in begun:
        await each.end()


async def test_a_silent_holder_is_replaced_after_the_duration_in_its_record(api, candidate):
    lease = StoredLease(api, holderIdentity="you", leaseDurationSeconds=30, leaseTransitions=4)
    mine = candidate()
    await mine.rounds()
    mine.clock.seconds += 29
    await mine.rounds()
    assert (mine.announced, mine.election.leading, mine.election.holder) == ([], False, "you")
    mine.clock.seconds += 1
    await mine.until("started")
    assert mine.election.leading
    assert (mine.election.abandoned, mine.election.witnessed, mine.election.term) == (
        True,
        False,
        5,
    )
    assert (lease.spec["holderIdentity"], lease.spec["leaseDurationSeconds"]) == ("me", 9)
    assert lease.spec["acquireTime"]


async def test_a_holder_that_renews_is_never_replaced(api, candidate):
    lease = StoredLease(api, holderIdentity="you", leaseDurationSeconds=9, renewTime="0")
    mine = candidate()
    await mine.rounds()
    assert not mine.election.witnessed
    for number in range(1, 4):
        lease.store(holderIdentity="you", leaseDurationSeconds=9, renewTime=str(number))
        await mine.rounds()
        mine.clock.seconds += 8
        await mine.rounds()
    assert (mine.announced, mine.election.witnessed) == ([], True)


@pytest.mark.parametrize(
    ("holder", "leads"),
    [("", True), ("node_pod-1_x", True), ("node_pod-12_x", False), ("node_pod-2_x", False)],
)
async def test_a_released_lease_and_that_of_the_same_pod_are_taken_at_once(
    api, candidate, holder, leads
):
    StoredLease(api, holderIdentity=holder, leaseDurationSeconds=30)
    mine = candidate(pod="pod-1")
    await mine.rounds()
    assert mine.announced == ["started"] * leads
    assert mine.election.abandoned is (leads and holder != "")


async def test_without_a_pod_no_holder_is_taken_for_an_earlier_process(api, candidate):
    StoredLease(api, holderIdentity="node__x", leaseDurationSeconds=30)
    mine = candidate()
    await mine.rounds()
    assert mine.announced == []


async def test_a_leader_keeps_its_term_and_does_not_lead_beyond_its_renewals(api, candidate):
    lease = StoredLease(api)
    mine = candidate()
    await mine.until("started")
    taken = lease.spec["acquireTime"]
    for _ in range(3):
        mine.clock.seconds += 5
        await mine.rounds()
        assert mine.election.leading
    assert (lease.spec["acquireTime"], mine.election.term) == (taken, 0)
    assert lease.spec["renewTime"] != taken
    mine.clock.seconds += 6
    # No renewal was sent since.
    assert not mine.election.leading


async def test_a_renewal_that_fails_once_ends_no_leadership(api, candidate):
    lease = StoredLease(api)
    mine = candidate()
    await mine.until("started")
    api.answers[f"PUT {PATH}/kube-retrofit-controller"].appendleft((403, {"kind": "Status"}))
    await mine.rounds(4)
    assert (mine.announced, mine.election.leading) == (["started"], True)
    assert (len(mine.warned), lease.spec["holderIdentity"]) == (1, "me")


async def test_a_renewal_without_an_answer_is_not_taken_for_that_of_another(api, candidate):
    lease = StoredLease(api)
    mine = candidate()
    await mine.until("started")
    lease.store(**{**lease.spec, "renewTime": "2026-06-01T00:00:00.000000Z"})
    await mine.rounds(4)
    assert (mine.announced, mine.election.witnessed) == (["started"], False)


async def test_a_leader_whose_lease_is_taken_stops(api, candidate):
    lease = StoredLease(api)
    mine = candidate()
    await mine.until("started")
    lease.store(holderIdentity="you", leaseDurationSeconds=30)
    await mine.until("started", "lost")
    await mine.rounds()
    assert (mine.election.leading, mine.election.holder) == (False, "you")
    await mine.end()
    assert lease.spec["holderIdentity"] == "you"


async def test_a_leader_whose_lease_is_deleted_stores_it_again(api, candidate):
    lease = StoredLease(api)
    mine = candidate()
    await mine.until("started")
    lease.spec = None
    api.answers[f"PUT {PATH}/kube-retrofit-controller"].appendleft(lease.read)
    await mine.rounds(4)
    assert (mine.announced, lease.spec["holderIdentity"]) == (["started"], "me")


async def test_a_leader_that_ends_releases_the_lease_although_a_renewal_came_between(
    api, candidate
):
    lease = StoredLease(api)
    mine = candidate()
    await mine.until("started")
    lease.store(**lease.spec)  # A renewal that the API server stored without an answer.
    await mine.end()
    assert "holderIdentity" not in lease.spec
    assert (lease.spec["leaseDurationSeconds"], mine.election.holder) == (1, "")
    assert mine.announced == ["started"]
