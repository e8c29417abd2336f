"""The Leases that record that triggers may be missing, on a real API server."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime

import pytest

from admission.heartbeat import Heartbeat
from devcluster.cluster import Cluster
from reconciler.api.kinds import kinds_of
from reconciler.api.meta import CONFIG_MAPS
from reconciler.clock import SystemClock
from reconciler.installation import REPLACING
from reconciler.kube.client import Client
from reconciler.kube.lease import Timing
from reconciler.kube.leases import ADMISSION_LEASE, KubeCheckpoint, KubeLeases
from reconciler.kube.reader import KubeReader
from reconciler.services.ports.leases import AdmissionHeartbeat, Checkpoint

pytestmark = pytest.mark.cluster

QUICK = Timing(duration=3.0, renew=2.0, retry=0.3)


@pytest.fixture
def place(installed_cluster: Cluster) -> Iterator[str]:
    name = f"marks-{uuid.uuid4().hex[:8]}"
    installed_cluster.kubectl("create", "namespace", name)
    yield name
    installed_cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def leases(client: Client, place: str) -> KubeLeases:
    return KubeLeases(client, place)


@pytest.fixture
async def servers(
    client: Client, place: str
) -> AsyncIterator[tuple[Callable[[], Heartbeat], Callable[[Heartbeat], Awaitable[None]]]]:
    """A function that starts the heartbeat of a server, and one that shuts it down cleanly."""
    tasks = {}

    def start():
        heartbeat = Heartbeat(client, SystemClock(), place, QUICK)
        tasks[id(heartbeat)] = asyncio.create_task(heartbeat.run())
        return heartbeat

    async def end(heartbeat):
        task = tasks.pop(id(heartbeat))
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    yield start, end
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)


async def holder(leases):
    lease = await leases.lease(ADMISSION_LEASE)
    return (lease or {}).get("spec", {}).get("holderIdentity", "")


async def until(condition):
    async with asyncio.timeout(20):
        while not (found := await condition()):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return found


async def test_the_checkpoint_is_stored_and_loaded(leases):
    port = KubeCheckpoint(leases)
    assert await port.load() == Checkpoint()
    assert await port.heartbeat() == AdmissionHeartbeat()
    for minute in (0, 1):
        moment = datetime(2026, 6, 1, 12, minute, 0, 250_000, tzinfo=UTC)
        for checkpoint in (
            Checkpoint(outages="[]"),
            Checkpoint(done=moment, version="7", confirmed=moment, outages='[{"cause": "x"}]'),
            Checkpoint(done=moment, confirmed=moment),
        ):
            await port.store(checkpoint)
            assert (await port.load()).outages == checkpoint.outages
        assert await port.load() == Checkpoint(done=moment, confirmed=moment)


async def test_a_server_that_saw_no_predecessor_reports_possibly_missed_triggers(leases, servers):
    start, _ = servers
    port = KubeCheckpoint(leases)
    killed = {"holderIdentity": "killed", "leaseDurationSeconds": 2}
    await leases.put(ADMISSION_LEASE, {"spec": killed})
    before = await port.heartbeat()
    start()

    async def noted():
        heartbeat = await port.heartbeat()
        return heartbeat if heartbeat.missed != before.missed else None

    heartbeat = await until(noted)
    # A renewal alone does not report missing triggers.
    later = await until(lambda: _renewed(port, heartbeat.renewed))
    assert later.missed == heartbeat.missed


async def _renewed(port, text):
    heartbeat = await port.heartbeat()
    return heartbeat if heartbeat.renewed != text else None


async def test_a_server_that_saw_its_predecessor_reports_no_missed_triggers(leases, servers):
    start, end = servers
    port = KubeCheckpoint(leases)
    first = start()

    async def noted():
        return (await port.heartbeat()).missed

    missed = await until(noted)
    before = await holder(leases)
    start()
    # The second server sees renewals of the first.
    renewed = (await port.heartbeat()).renewed
    for _ in range(4):
        renewed = (await until(lambda text=renewed: _renewed(port, text))).renewed
    await end(first)

    async def followed():
        return await holder(leases) not in {"", before}

    await until(followed)
    await until(lambda: _renewed(port, (renewed)))
    assert (await port.heartbeat()).missed == missed


async def test_a_server_without_the_lease_reports_triggers_that_it_did_not_record(leases, servers):
    start, _ = servers
    port = KubeCheckpoint(leases)
    start()

    async def noted():
        return (await port.heartbeat()).missed

    missed = await until(noted)
    second = start()
    second.missed()

    async def other():
        return await noted() != missed

    await until(other)


async def test_a_metadata_only_list_has_the_kind_and_the_field_manager(client, place):
    body = {"metadata": {"name": "c"}, "data": {"v": "1"}}
    await client.resource(CONFIG_MAPS).create(body, place, field_manager="person")
    reader = KubeReader(client, metadata_only=True)
    page = await reader.list_page(CONFIG_MAPS, namespace=place)
    found = {item["metadata"]["name"]: item for item in page.items}["c"]
    assert (found["apiVersion"], found["kind"]) == ("v1", "ConfigMap")
    assert "data" not in found
    (entry,) = found["metadata"]["managedFields"]
    assert entry["manager"] == "person"
    assert (await reader.list_page(kinds_of(REPLACING).policies, namespace=place)).items == ()
