"""The waiting limit, above which a rule's triggers share one request, and the hard limit."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from devcluster.binaries import Binaries
from devcluster.install import NAMESPACE, install
from devcluster.programs import ADMISSION, CONTROLLER, Programs, start_programs
from reconciler.api.meta import Object
from reconciler.api.updaterequest import Source, State, UpdateRequest
from reconciler.cli.main import retrofit
from reconciler.errors import ClusterError
from tests.faults.rig import FINAL, SHORT_LEASE, Rig, config_map, open_rig, rule, target
from tests.usedrights import audited

pytestmark = pytest.mark.cluster

LIMIT, HARD, PARALLEL = 50, 80, 16
SHARES = ("--namespace-share=100", "--policy-share=100")
"""Shares of 100 percent, because a test has only one namespace and one policy."""
LIMITS = (f"--waiting-limit={LIMIT}", f"--hard-limit={HARD}", *SHARES)
UNTOLD = 10  # The leader does not publish changes by fewer requests than this.
SETTLE = 2.0
GOT = {"data": {"got": "{{ request.object.metadata.name }}"}}
OLD = {"data": {"old": "{{ request.oldObject.data.n || 'none' }}"}}


@pytest.fixture(scope="module")
def overloaded(binaries: Binaries | Path) -> Iterator[Programs]:
    """Both programs with low limits; the controller's request timeout is two seconds."""
    if isinstance(binaries, Path):
        pytest.skip("RETROFIT_CONTROL_PLANE names a cluster, which no test may break")
    with audited(binaries) as plane:
        settings = install(plane, "demo")
        more = {
            ADMISSION: LIMITS,
            CONTROLLER: (*LIMITS, *SHORT_LEASE, f"--request-timeout={SETTLE:g}s"),
        }
        for name, flags in more.items():
            settings[name] = replace(settings[name], flags=(*settings[name].flags, *flags))
        with start_programs(plane, settings=settings) as programs:
            yield programs


@pytest.fixture
async def rig(overloaded: Programs, request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    """A rig with both programs running, a namespace of the test's own and no waiting requests."""
    name = f"overload-{abs(hash(request.node.name)) % 10**8}"
    async with open_rig(overloaded.cluster, overloaded, name) as rig:
        await until_recording(rig)
        yield rig


async def until_recording(rig: Rig) -> None:
    """Wait until triggers are recorded one by one."""

    async def waiting() -> str:
        seen = await counted(rig, "waiting_seen")
        if seen <= UNTOLD and not await counted(rig, "diverting"):
            return ""
        return f"{seen} seem to wait"

    await rig.settle(waiting, within=30)


async def counted(rig: Rig, name: str, **labels: str) -> float:
    """Return the sum of the samples of a metric of the admission server."""
    return await rig.metric(ADMISSION, name, **labels)


async def aggregates(rig: Rig) -> list[UpdateRequest]:
    return [item for item in await rig.requests() if item.spec.sequence]


async def events(rig: Rig) -> set[str]:
    found = await rig.items("Event", "default")
    return {
        item["reason"]
        for item in found
        if (item.get("involvedObject") or {}).get("name") == rig.namespace
    }


async def settling(rig: Rig) -> None:
    """Wait until the statuses of policy and aggregate request report why the request waits."""

    async def unsaid() -> Any:
        policy = await rig.get("ClusterPolicy", rig.namespace, "")
        message = policy["status"]["mutateExisting"].get("message", "")
        reasons = {item.status.reason for item in await aggregates(rig)}
        good = "Settling" in reasons and "one stands for all triggers" in message
        return "" if good else (reasons, message)

    await rig.settle(unsaid, within=10)


def one_to_one(rig: Rig) -> Object:
    to = "target-{{ request.object.data.n }}"
    return rule(rig.namespace, [target(rig.namespace, to)], GOT)


def triggers(rig: Rig, count: int) -> list[Object]:
    return [config_map(rig.namespace, f"trigger-{n}", n=str(n)) for n in range(count)]


def wanted(names: list[str]) -> dict[str, dict[str, str]]:
    return {f"target-{name.rpartition('-')[2]}": {"got": name} for name in names}


async def test_an_edit_that_would_lose_diverted_triggers_is_refused(rig: Rig) -> None:
    count = 3 * LIMIT
    await rig.apply(one_to_one(rig))
    await rig.create_all(config_map(rig.namespace, f"target-{n}") for n in range(count))
    await rig.pause()
    sent = triggers(rig, count)
    await rig.create_all(sent)
    (aggregate,) = await aggregates(rig)
    edited = one_to_one(rig)
    edited["match"]["any"][0]["resources"]["operations"] = ["CREATE"]
    with pytest.raises(ClusterError, match=f"{aggregate.name} represents admitted triggers"):
        await rig.apply(edited)
    await rig.resume()
    await rig.applied(wanted([item["metadata"]["name"] for item in sent]), within=60)
    await rig.finish(count=1, within=60)
    await rig.apply(edited)


async def test_a_burst_creates_a_bounded_number_of_requests(rig: Rig) -> None:
    count = 250
    await rig.apply(one_to_one(rig))
    await rig.create_all(config_map(rig.namespace, f"target-{n}") for n in range(count))
    await rig.pause()
    sent = triggers(rig, count)
    await rig.create_all(sent)
    found = await rig.requests()
    assert LIMIT <= len(found) <= LIMIT + PARALLEL + 1
    (aggregate,) = await aggregates(rig)
    assert aggregate.spec.source is Source.CATCH_UP
    assert aggregate.spec.sweep
    diverted = await counted(rig, "triggers_diverted_total", policy=rig.namespace)
    assert diverted == count - (len(found) - 1)
    # The aggregate request is written less often than once per trigger.
    assert aggregate.spec.sequence < diverted / 2
    assert await counted(rig, "diverting") == 1

    address = ("--kubeconfig", str(rig.cluster.kubeconfig))
    said = await asyncio.to_thread(CliRunner().invoke, retrofit, ["status", *address])
    assert aggregate.name in said.stdout

    await rig.resume()
    await settling(rig)
    await rig.applied(wanted([item["metadata"]["name"] for item in sent]), within=60)
    await rig.finish(count=2, within=30)
    (aggregate,) = await aggregates(rig)
    assert aggregate.status.state is State.COMPLETED
    await until_recording(rig)

    async def untold() -> Any:
        reported = await events(rig)
        return {"RecordingDiverted", "RecordingResumed"} - reported

    await rig.settle(untold, within=15)
    before = {item.name for item in await rig.requests()}
    await rig.create(config_map(rig.namespace, "trigger-last", n="0"))
    await rig.applied({"target-0": {"got": "trigger-last"}}, within=15)
    (new,) = (item for item in await rig.requests() if item.name not in before)
    assert new.spec.source is Source.ADMISSION


async def test_a_burst_after_a_completed_aggregate_request_creates_another(rig: Rig) -> None:
    await rig.apply(one_to_one(rig))
    await rig.create_all(config_map(rig.namespace, f"target-{n}") for n in range(140))
    for begin in (0, 70):
        await rig.pause()
        sent = triggers(rig, begin + 70)[begin:]
        await rig.create_all(sent)
        await rig.resume()
        await rig.applied(wanted([item["metadata"]["name"] for item in sent]), within=60)
        await rig.finish(within=30)
        await until_recording(rig)
    states = [item.status.state for item in await aggregates(rig)]
    assert states == [State.COMPLETED, State.COMPLETED]


async def test_a_diverted_burst_is_applied_although_both_programs_are_killed(rig: Rig) -> None:
    count = 300
    await rig.apply(one_to_one(rig))
    await rig.create_all(config_map(rig.namespace, f"target-{n}") for n in range(count))
    await rig.pause()
    sending = asyncio.create_task(rig.burst(triggers(rig, count), per_second=40))

    async def none_diverted() -> str:
        return "" if await aggregates(rig) else "no aggregate request yet"

    await rig.settle(none_diverted, within=20)
    await rig.kill(ADMISSION, CONTROLLER)
    await rig.restart(ADMISSION, CONTROLLER)
    await rig.resume()

    async def not_begun() -> Any:
        found = await aggregates(rig)
        return "" if any(item.status.sweep for item in found) else found

    await rig.settle(not_begun, within=30)
    await rig.kill(CONTROLLER)
    await rig.restart(CONTROLLER)
    burst = await sending
    assert burst.refused
    assert len(burst.accepted) > LIMIT
    await rig.applied(wanted(burst.accepted), within=60)

    async def open_requests() -> list[str]:
        found = await rig.requests()
        return [
            f"{item.name} {item.status.reason}"
            for item in found
            if item.status.state not in FINAL and item.spec.resource.name not in burst.refused
        ]

    await rig.settle(open_requests, within=30)


async def test_triggers_that_catch_up_cannot_rebuild_are_refused_at_the_hard_limit(
    rig: Rig,
) -> None:
    await rig.apply(rule(rig.namespace, [target(rig.namespace, "target")], OLD))
    await rig.pause()
    burst = await rig.burst(triggers(rig, HARD + 5), per_second=50)
    assert HARD - UNTOLD <= len(await rig.requests()) == len(burst.accepted) <= HARD
    assert not await aggregates(rig)
    with pytest.raises(ClusterError) as refused:
        await rig.create(config_map(rig.namespace, "trigger-more", n="more"))
    for part in (rig.namespace, f"{HARD} requests wait", "--hard-limit", "retrofit status"):
        assert part in str(refused.value)
    assert await rig.find("ConfigMap", "trigger-more") is None


async def test_under_ignore_triggers_lost_at_the_hard_limit_are_counted(rig: Rig) -> None:
    await rig.apply(
        rule(rig.namespace, [target(rig.namespace, "target")], OLD), failurePolicy="Ignore"
    )
    await rig.pause()
    before = await counted(rig, "requests_lost_total", reason="overload")
    burst = await rig.burst(triggers(rig, HARD + 5), per_second=50)
    assert not burst.refused
    recorded = len(await rig.requests())
    # A replica's estimate may lack requests that the leader saw in a different order.
    assert HARD - UNTOLD <= recorded < HARD + 5
    lost = await counted(rig, "requests_lost_total", reason="overload") - before
    assert recorded + lost == HARD + 5


async def test_the_leader_publishes_the_backlog_only_when_it_changes_enough(rig: Rig) -> None:
    lease = await rig.get("Lease", "kube-retrofit-backlog", NAMESPACE)
    assert int(lease["metadata"]["annotations"]["kube-retrofit.dev/seen"]) > 0
    version = lease["metadata"]["resourceVersion"]
    await rig.apply(one_to_one(rig))
    await rig.create_all([config_map(rig.namespace, f"target-{n}") for n in range(2)])
    await rig.create_all(triggers(rig, 2))
    await rig.finish(count=2)
    lease = await rig.get("Lease", "kube-retrofit-backlog", NAMESPACE)
    assert lease["metadata"]["resourceVersion"] == version
