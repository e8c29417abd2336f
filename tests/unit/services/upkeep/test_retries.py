from collections.abc import Awaitable, Callable

import pytest

from reconciler.api.meta import ANNOTATION_RETRIED, ANNOTATION_RETRY_FAILED
from reconciler.api.updaterequest import RequestStatus, Source, State, UpdateRequest
from reconciler.errors import NotFound, Unavailable
from reconciler.requests.naming import recorded_name, retry_name
from reconciler.services.upkeep.retries import Retries
from tests.unit.services.conftest import START, Make, World

POLICY = {
    "kind": "ClusterPolicy",
    "metadata": {"name": "p", "uid": "u", "generation": 1},
}


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def retries(world: World, warnings: list[str]) -> Retries:
    return Retries(requests=world.requests, warn=warnings.append)


@pytest.fixture
def ended(world: World, make: type[Make]) -> Callable[..., Awaitable[UpdateRequest]]:
    """Return a function that stores an ended request, by default annotated for a retry."""

    async def store(name="ur-1", *, state=State.FAILED, asked=True, **spec):
        request = await world.ask(POLICY, make.object(), name=name, **spec)
        await world.requests.write_status(request, RequestStatus(state=state, finished=START))
        if asked:
            await world.requests.annotate(name, {ANNOTATION_RETRY_FAILED: "now"})
        return await world.requests.get(name)

    return store


async def waiting(world):
    return {item.name: item async for item in world.requests.waiting()}


async def test_a_failed_request_is_retried_by_a_new_request(world, retries, ended):
    failed = await ended(operation="DELETE", recorded={"object": {"data": {"k": "v"}}})
    retries.on_stored(failed)
    await retries.settle()
    name = retry_name(failed.uid, sweep=False)
    found = await waiting(world)
    assert set(found) == {name}
    spec = found[name].spec
    assert (spec.source, spec.operation) == (Source.MANUAL, "DELETE")
    assert spec.recorded == failed.spec.recorded
    assert spec.resource == failed.spec.resource
    stored = await world.requests.get(failed.name)
    assert (stored.retried, stored.status.state) == (name, State.FAILED)


async def test_a_failed_request_is_retried_once_however_often_it_is_seen(world, retries, ended):
    failed = await ended()
    retries.on_stored(failed)
    await retries.settle()
    retries.on_stored(await world.requests.get(failed.name))
    (first,) = (await waiting(world)).values()
    # The new request ended and was removed; a new leader first sees the failed one now.
    kind = world.cluster.exact("kyverno.io/v2", "UpdateRequest")
    world.cluster.delete(kind, "kyverno", first.name)
    later = Retries(requests=world.requests, warn=pytest.fail)
    later.on_stored(await world.requests.get(failed.name))
    await retries.settle()
    await later.settle()
    assert await waiting(world) == {}


@pytest.mark.parametrize("state", [State.COMPLETED, State.SKIP])
async def test_only_failed_requests_with_the_annotation_are_retried(world, retries, ended, state):
    retries.on_stored(await ended("ur-1", state=state))
    retries.on_stored(await ended("ur-2", asked=False))
    await retries.settle()
    assert await waiting(world) == {}


async def test_the_recorded_secret_is_copied_for_the_retry(world, retries, ended):
    await world.requests.create_recorded("ur-1", {}, b'{"object": {}}')
    failed = await ended(recorded_secret="ur-1-recorded")
    retries.on_stored(failed)
    await retries.settle()
    (again,) = (await waiting(world)).values()
    assert again.spec.recorded_secret == recorded_name(again.name)
    # Each copy is deleted with its own request.
    await world.requests.delete_recorded("ur-1")
    assert await world.requests.read_recorded(again.name) == b'{"object": {}}'


async def test_a_retry_is_stored_although_the_recorded_secret_is_gone(world, retries, ended):
    retries.on_stored(await ended(recorded_secret="ur-1-recorded"))
    await retries.settle()
    (again,) = (await waiting(world)).values()
    with pytest.raises(NotFound):
        await world.requests.read_recorded(again.name)


async def test_a_retry_that_cannot_be_stored_is_repeated_without_blocking_others(
    world, retries, ended, warnings
):
    refused, other = await ended("ur-1"), await ended("ur-2")
    create, failing = world.requests.create, True

    async def refuse(name, labels, spec):
        if failing and name == retry_name(refused.uid, sweep=False):
            raise Unavailable("no answer")
        return await create(name, labels, spec)

    world.requests.create = refuse
    retries.on_stored(refused)
    retries.on_stored(other)
    await retries.settle()
    await retries.settle()
    assert set(await waiting(world)) == {retry_name(other.uid, sweep=False)}
    assert warnings == ["ur-1 cannot be retried yet: no answer"]
    failing = False
    await retries.settle()
    assert len(await waiting(world)) == 2


async def test_a_deleted_request_is_not_retried(world, retries, ended):
    failed = await ended()
    retries.on_stored(failed)
    retries.on_deleted(failed)
    await retries.settle()
    assert await waiting(world) == {}


async def test_a_request_marked_as_retried_is_not_retried_again(world, retries, ended):
    failed = await ended()
    await world.requests.annotate(failed.name, {ANNOTATION_RETRIED: "ur-other"})
    retries.on_stored(failed)
    retries.on_stored(await world.requests.get(failed.name))
    await retries.settle()
    assert await waiting(world) == {}
