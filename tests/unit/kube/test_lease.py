"""A leader and a candidate whose API server does not answer."""

import asyncio
import contextlib
import time

import pytest

from reconciler.clock import SystemClock
from reconciler.errors import Restored
from reconciler.kube.lease import Election, Timing

PATH = "/apis/coordination.k8s.io/v1/namespaces/kyverno/leases"
ABSENT = (404, {"kind": "Status", "details": {"name": "kube-retrofit-controller"}})
LEASE = {"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": "me"}}


def candidate(client, timing, warned):
    return Election(
        client,
        SystemClock(),
        namespace="kyverno",
        identity="me",
        timing=timing,
        warn=warned.append,
    )


async def hang(_request):
    await asyncio.Event().wait()


async def test_a_renewal_that_hangs_ends_the_leadership_in_time(api, client):
    reported, warned = asyncio.Queue(), []
    election = candidate(client, Timing(duration=1.5, renew=1.0, retry=0.2), warned)
    election.started.subscribe(lambda: reported.put_nowait("started"))
    election.lost.subscribe(lambda: reported.put_nowait("lost"))
    api.answer(f"GET {PATH}/kube-retrofit-controller", ABSENT)
    api.answer(f"POST {PATH}", LEASE)
    api.answer(f"PUT {PATH}/kube-retrofit-controller", hang)
    task = asyncio.create_task(election.run())
    async with asyncio.timeout(20):
        assert await reported.get() == "started"
        began = time.monotonic()
        assert await reported.get() == "lost"
    assert time.monotonic() - began < 1.5
    assert warned
    assert "does not answer" in warned[0]
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_candidate_survives_errors_of_the_api_server(api, client):
    started, warned = asyncio.Event(), []
    election = candidate(client, Timing(duration=1.5, renew=1.0, retry=0.1), warned)
    election.started.subscribe(started.set)
    route = f"GET {PATH}/kube-retrofit-controller"
    api.answer(route, (500, b""), (403, b""), (401, b""), ABSENT)
    api.answer(f"POST {PATH}", LEASE)
    api.answer(f"PUT {PATH}/kube-retrofit-controller", LEASE)
    task = asyncio.create_task(election.run())
    async with asyncio.timeout(20):
        await started.wait()
    assert election.leading
    assert len(warned) == 3
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    released = api.seen[-1].body["spec"]
    assert "holderIdentity" not in released


@pytest.mark.parametrize("holder", ["me", "you"], ids=["leader", "candidate"])
async def test_a_lease_that_is_older_than_before_ends_the_election(api, client, holder):
    election = candidate(client, Timing(duration=9.0, renew=8.0, retry=0.1), [])

    def stored(version: int):
        return {
            "metadata": {"resourceVersion": str(version)},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 9},
        }

    api.answer(f"GET {PATH}/kube-retrofit-controller", stored(1000), stored(999))
    api.answer(f"PUT {PATH}/kube-retrofit-controller", stored(1001), (409, b""))
    async with asyncio.timeout(20):
        with pytest.raises(Restored, match=r"resourceVersion 999, after 100[01]"):
            await election.run()
    assert not election.leading
    # The Lease is not released, because it belongs to whoever held it when it was backed up.
    assert all(call.body["spec"]["holderIdentity"] for call in api.seen if call.method == "PUT")
