"""Storing requests and the status of policies, in every adapter."""

import asyncio
from dataclasses import replace

import pytest

from reconciler.api.kinds import policy_named
from reconciler.api.meta import Kind, ObjectRef
from reconciler.api.updaterequest import Counts, RequestSpec, RequestStatus, State
from reconciler.clock import SystemClock
from reconciler.dialects.registry import compile_policy
from reconciler.errors import Conflict, Invalid, NotFound
from reconciler.services.recording.diversion import Diversion

CLUSTER_POLICIES = Kind(
    group="kyverno.io",
    version="v1",
    kind="ClusterPolicy",
    plural="clusterpolicies",
    namespaced=False,
)
REQUESTS = Kind(
    group="kyverno.io",
    version="v2",
    kind="UpdateRequest",
    plural="updaterequests",
    namespaced=True,
)
TRIGGER = ObjectRef(api_version="v1", kind="ConfigMap", namespace="some", name="trigger")
POLICY_SPEC = {
    "rules": [
        {
            "name": "rule",
            "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
            "mutate": {
                "targets": [{"apiVersion": "v1", "kind": "Secret", "name": "a"}],
                "patchStrategicMerge": {"metadata": {"labels": {"a": "b"}}},
            },
        }
    ]
}


def request_spec(policy="policy"):
    return RequestSpec(
        policy=policy_named(policy), rule="rule", resource=TRIGGER, operation="CREATE"
    )


async def names_of(requests):
    return {request.name async for request in requests}


async def test_a_request_is_stored_as_it_was_given(world):
    await world.requests.create("ur-a", {"some": "label"}, request_spec())
    stored = await world.requests.get("ur-a")
    assert stored.spec == request_spec()
    assert stored.labels == {"some": "label"}
    assert stored.namespace == world.namespace
    assert stored.status.state is State.PENDING
    assert stored.uid


async def test_creating_twice_is_success_and_changes_nothing(world):
    await world.requests.create("ur-a", {}, request_spec())
    first = await world.requests.get("ur-a")
    await world.requests.create("ur-a", {}, request_spec())
    assert await world.requests.get("ur-a") == first


async def test_creating_returns_a_version_only_for_a_new_request(world):
    version = await world.requests.create("ur-a", {}, request_spec())
    assert version == (await world.requests.get("ur-a")).resource_version
    assert await world.requests.create("ur-a", {}, request_spec()) == ""


async def test_a_sequence_is_raised_once_per_version(world):
    await world.requests.create("sweep-a", {}, replace(request_spec(), sweep=True, sequence=1))
    first = await world.requests.get("sweep-a")
    second = await world.requests.raise_sequence(first)
    assert second.spec == replace(first.spec, sequence=2)
    assert second.resource_version != first.resource_version
    with pytest.raises(Conflict):
        await world.requests.raise_sequence(first)
    assert await world.requests.get("sweep-a") == second


async def test_replicas_that_raise_one_aggregate_request_lose_no_raise(world):
    meta = {"name": "policy", "uid": "uid", "generation": 1}
    api = {"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy"}
    policy = compile_policy({**api, "metadata": meta, "spec": POLICY_SPEC})
    replicas = [Diversion(requests=world.requests, clock=SystemClock()) for _ in range(3)]
    for _ in range(4):
        await asyncio.gather(*(item.divert(policy, policy.programs[0]) for item in replicas))
    (aggregate,) = [request async for request in world.requests.waiting()]
    assert aggregate.spec.sequence == 12


async def test_a_stale_status_does_not_complete_a_request_with_a_raised_sequence(world):
    await world.requests.create("sweep-a", {}, replace(request_spec(), sweep=True, sequence=1))
    seen = await world.requests.get("sweep-a")
    await world.requests.raise_sequence(seen)
    with pytest.raises(Conflict):
        await world.requests.write_status(seen, RequestStatus(state=State.COMPLETED))


async def test_raising_the_sequence_of_a_deleted_request_is_not_found(world):
    await world.requests.create("sweep-a", {}, replace(request_spec(), sweep=True, sequence=1))
    request = await world.requests.get("sweep-a")
    await world.delete(REQUESTS, "sweep-a")
    with pytest.raises(NotFound):
        await world.requests.raise_sequence(request)


async def test_an_absent_request_is_not_found(world):
    with pytest.raises(NotFound):
        await world.requests.get("ur-missing")


async def test_writing_a_status_replaces_all_its_fields(world):
    await world.requests.create("ur-a", {}, request_spec())
    request = await world.requests.get("ur-a")
    first = RequestStatus(attempts=1, message="later", reason="Conflict", counts=Counts(failed=1))
    request = await world.requests.write_status(request, first)
    assert request.status == first
    final = RequestStatus(state=State.COMPLETED, attempts=2, counts=Counts(patched=1))
    request = await world.requests.write_status(request, final)
    assert request.status == final
    assert await world.requests.get("ur-a") == request


async def test_a_late_status_writer_conflicts(world):
    await world.requests.create("ur-a", {}, request_spec())
    request = await world.requests.get("ur-a")
    await world.requests.write_status(request, RequestStatus(state=State.COMPLETED))
    with pytest.raises(Conflict):
        await world.requests.write_status(request, RequestStatus(message="again"))
    assert (await world.requests.get("ur-a")).status.state is State.COMPLETED


async def test_writing_the_status_of_a_deleted_request_is_not_found(world):
    await world.requests.create("ur-a", {}, request_spec())
    request = await world.requests.get("ur-a")
    await world.delete(REQUESTS, "ur-a")
    with pytest.raises(NotFound):
        await world.requests.write_status(request, RequestStatus(state=State.SKIP))


async def test_waiting_and_finished_requests_are_distinguished(world):
    states = [None, State.PENDING, State.COMPLETED, State.FAILED, State.SKIP]
    for number, state in enumerate(states):
        await world.requests.create(f"ur-{number}", {}, request_spec())
        if state is not None:
            request = await world.requests.get(f"ur-{number}")
            await world.requests.write_status(request, RequestStatus(state=state, message="x"))
    assert await names_of(world.requests.waiting()) == {"ur-0", "ur-1"}
    assert await names_of(world.requests.finished()) == {"ur-2", "ur-3", "ur-4"}


async def test_waiting_requests_come_from_all_pages(world):
    wanted = {f"ur-{number}" for number in range(5)}
    for name in wanted:
        await world.requests.create(name, {}, request_spec())
    assert await names_of(world.requests.waiting()) == wanted


async def test_one_call_removes_the_requests_that_expire_at_the_same_time(world):
    soon, later = "2026-01-31T10:05:00Z", "2026-01-31T10:06:00Z"
    for name, expiry, policy in [
        ("ur-a", soon, "one"),
        ("ur-b", soon, "ns/two"),
        ("ur-c", later, "one"),
        ("ur-d", "", "one"),
    ]:
        await world.requests.create(name, {}, request_spec(policy))
        request = await world.requests.get(name)
        if expiry:
            status = RequestStatus(state=State.COMPLETED, remove_after=expiry)
            await world.requests.write_status(request, status)
    await world.requests.remove(remove_after=soon, policy="ns/two")
    assert await names_of(world.requests.finished()) == {"ur-a", "ur-c"}
    await world.requests.remove(remove_after=soon)
    assert await names_of(world.requests.finished()) == {"ur-c"}
    assert await names_of(world.requests.waiting()) == {"ur-d"}


async def test_removing_without_an_expiry_is_refused(world):
    await world.requests.create("ur-a", {}, request_spec())
    with pytest.raises(Invalid):
        await world.requests.remove(remove_after="")
    assert await names_of(world.requests.waiting()) == {"ur-a"}


async def test_recorded_fields_are_created_once_and_deleted_idempotently(world):
    await world.requests.create_recorded("ur-a", {"a": "b"}, b'{"object": {}}')
    await world.requests.create_recorded("ur-a", {"a": "b"}, b'{"other": {}}')
    assert await world.requests.read_recorded("ur-a") == b'{"object": {}}'
    await world.requests.delete_recorded("ur-a")
    await world.requests.delete_recorded("ur-a")
    with pytest.raises(NotFound):
        await world.requests.read_recorded("ur-a")


async def test_the_status_of_a_policy_is_merged(world):
    name = f"policy-{world.namespace}"
    await world.create(CLUSTER_POLICIES, name, spec=POLICY_SPEC)
    policy = await world.policies.get(policy_named(name))
    await world.policies.write_status(policy, {"mutateExisting": {"pending": 3}})
    with pytest.raises(Conflict):
        await world.policies.write_status(policy, {"mutateExisting": {"pending": 4}})
    policy = await world.policies.get(policy_named(name))
    await world.policies.write_status(policy, {"mutateExisting": {"patched": 1}})
    stored = await world.policies.get(policy_named(name))
    assert stored["status"]["mutateExisting"] == {"pending": 3, "patched": 1}
    with pytest.raises(NotFound):
        await world.policies.get(policy_named(f"{world.namespace}/{name}"))
