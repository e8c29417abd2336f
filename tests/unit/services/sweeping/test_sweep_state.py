"""The state of a sweep: what a new start forgets, and how its progress is stored."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from reconciler.api.updaterequest import (
    Counts,
    RequestStatus,
    Source,
    SweepProgress,
    UpdateRequest,
)
from reconciler.errors import Conflict, NotFound
from reconciler.services.sweeping.sweep_state import SweepState
from tests.unit.services.conftest import Make, World

BEFORE = SweepProgress(cursor="configmaps@v1:a/5", done=10, total=130)


@pytest.fixture
def begin(world: World, make: type[Make]) -> Callable[..., Awaitable[SweepState]]:
    """Return a function that stores a sweep which was interrupted, and continues it."""

    async def run(**spec: Any) -> SweepState:
        policy = world.install(make.policy())
        facts = {"source": Source.POLICY_CHANGE, "sweep": True, "operation": "", **spec}
        request = await world.ask(policy, policy, name="sweep-1", **facts)
        status = RequestStatus(sweep=BEFORE, counts=Counts(patched=4))
        return SweepState.of(await world.requests.write_status(request, status), now=100.0)

    return run


async def touch(world: World, state: SweepState) -> UpdateRequest:
    """Store another version of the sweep, which the state does not know."""
    status = replace(state.request.status, reason="Paused", message="the policy is paused")
    return await world.requests.write_status(state.request, status)


async def test_a_sweep_that_starts_over_forgets_what_its_former_rule_did(begin):
    state = await begin()
    assert (state.progress, state.counts, state.proven) == (
        BEFORE,
        Counts(patched=4),
        {"configmaps"},
    )
    state.start_over(200.0)
    assert (state.progress, state.counts, state.proven) == (SweepProgress(), Counts(), set())
    assert (state.begun, state.begun_at) == (200.0, 0)


@pytest.mark.parametrize(
    ("done", "now", "eta"),
    [(30, 110.0, "50s"), (10, 110.0, ""), (130, 110.0, ""), (129, 110.0, "1s")],
)
async def test_the_remaining_time_follows_from_the_speed_since_the_start(
    world, begin, done, now, eta
):
    state = await begin()
    state.advance(done=done)
    await state.report(world.requests, now)
    assert (await world.requests.get("sweep-1")).status.sweep.eta == eta


async def test_a_report_ends_the_reason_why_the_sweep_last_stopped(world, begin):
    state = await begin()
    state.request = await world.requests.write_status(
        state.request,
        replace(state.request.status, reason="Paused", message="the policy is paused"),
    )
    await state.report(world.requests, 101.0)
    status = (await world.requests.get("sweep-1")).status
    assert (status.reason, status.message) == ("", "")


async def test_a_write_by_another_client_stops_a_sweep(world, begin):
    state = await begin()
    await touch(world, state)
    with pytest.raises(Conflict):
        await state.report(world.requests, 101.0)


async def test_progress_is_stored_although_a_trigger_raised_the_sequence_meanwhile(world, begin):
    state = await begin(sequence=3)
    state.unstored.append("marker")
    await touch(world, state)
    state.advance(done=20)
    # The markers stay on their targets until a later write.
    assert await state.report(world.requests, 101.0) == []
    assert (await world.requests.get("sweep-1")).status.sweep.done == 20
    state.advance(done=21)
    assert await state.report(world.requests, 102.0) == ["marker"]


async def test_a_sweep_does_not_go_on_with_another_request_of_its_name(world, begin):
    state = await begin(sequence=3)
    state.request = replace(state.request, uid="deleted")
    with pytest.raises(NotFound, match="created again"):
        await state.reread(world.requests)
