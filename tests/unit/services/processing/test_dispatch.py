import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import orjson
import pytest

from reconciler.api.kinds import policy_named
from reconciler.api.meta import ANNOTATION_RETRY, Object, ref_of
from reconciler.api.updaterequest import RequestStatus, State, TriggerRecord, UpdateRequest
from reconciler.errors import Forbidden, Unavailable
from reconciler.memory.kinds import REQUESTS
from reconciler.requests.background_drafts import retry_draft
from reconciler.requests.naming import recorded_name
from tests.unit.services.conftest import START, Make, World, until

APPEND = "- {op: add, path: /spec/list/-, value: x}"


@pytest.fixture
def target(world: World, make: type[Make]) -> Object:
    return world.cluster.add(make.object("Secret", "s", spec={"list": []}))


@pytest.fixture
def trigger(world: World, make: type[Make]) -> Object:
    return world.cluster.add(make.object(data={"v": "1"}))


@pytest.fixture
def policy(world: World, make: type[Make]) -> Object:
    return world.install(make.policy())


async def look_again(world, seconds):
    """Advance the clock, and run the dispatcher until no request is due."""
    world.clock.tick(seconds)
    await world.settle()


class TestWatch:
    async def test_a_stored_request_is_processed_to_completion(
        self, world, policy, trigger, target
    ):
        world.dispatcher.on_stored(await world.ask(policy, trigger))
        assert world.dispatcher.waiting == 1
        await world.settle()
        status = await world.status()
        assert (status.state, status.counts.patched) == (State.COMPLETED, 1)
        assert status.finished == START
        assert world.dispatcher.waiting == 0
        assert [item.state for _, item, _ in world.observed] == [State.COMPLETED]

    async def test_a_request_with_repeated_events_is_processed_once(
        self, world, policy, trigger, target
    ):
        request = await world.ask(policy, trigger)
        for _ in range(3):
            world.dispatcher.on_stored(request)
        await world.settle()
        assert len(world.observed) == 1

    async def test_a_late_event_does_not_start_the_work_again(
        self, world, policy, trigger, target
    ):
        request = await world.ask(policy, trigger)
        world.dispatcher.on_stored(request)
        await world.settle()
        world.wire.calls.clear()
        world.dispatcher.on_stored(request)
        await world.settle()
        assert not world.wire.calls
        assert world.dispatcher.waiting == 0

    async def test_an_older_version_of_a_request_does_not_replace_a_newer_one(
        self, world, policy, trigger
    ):
        for verb in ("get", "list"):
            world.cluster.forbid(verb, "configmaps")
        request = await world.ask(policy, trigger)
        world.dispatcher.on_stored(request)
        await world.settle()
        world.dispatcher.on_stored(request)
        await world.settle()
        assert len(world.observed) == 1

    async def test_a_final_request_is_forgotten(self, world, policy, trigger):
        request = await world.ask(policy, trigger)
        world.dispatcher.on_stored(request)
        ended = RequestStatus(state=State.SKIP)
        world.dispatcher.on_stored(await world.requests.write_status(request, ended))
        assert world.dispatcher.waiting == 0
        await world.settle()
        assert not world.observed

    async def test_a_deleted_request_is_not_processed(self, world, policy, trigger):
        world.dispatcher.on_stored(await world.ask(policy, trigger))
        world.dispatcher.on_deleted("ur-1")
        await world.settle()
        assert not world.wire.calls

    async def test_a_late_deletion_of_an_earlier_request_does_not_remove_a_new_one(
        self, world, policy, trigger, target
    ):
        request = await world.ask(policy, trigger)
        world.dispatcher.on_stored(request)
        world.dispatcher.on_deleted(request.name, "uid-of-an-earlier-one")
        assert world.dispatcher.waiting == 1
        world.dispatcher.on_deleted(request.name, request.uid)
        assert world.dispatcher.waiting == 0

    async def test_a_request_is_unfinished_until_its_final_status_is_stored(
        self, world, policy, trigger, target
    ):
        await world.dispatcher.resync()
        world.dispatcher.on_stored(await world.ask(policy, trigger))
        assert world.dispatcher.known.unfinished("ur-1")
        assert world.dispatcher.known.unfinished("ur-1/some-trigger")
        assert not world.dispatcher.known.unfinished("ur-2")
        await world.settle()
        assert not world.dispatcher.known.unfinished("ur-1")

    def test_before_the_first_list_every_request_may_be_unfinished(self, world):
        assert world.dispatcher.known.unfinished("ur-of-an-earlier-process")

    async def test_oldest_age_is_the_age_of_the_oldest_waiting_request(
        self, world, policy, trigger
    ):
        assert world.dispatcher.known.oldest_age(world.clock.now()) == 0
        world.dispatcher.on_stored(await world.ask(policy, trigger))
        world.clock.tick(42)
        assert world.dispatcher.known.oldest_age(world.clock.now()) == 42


@pytest.mark.parametrize("turns", range(5))
async def test_a_cancelled_dispatcher_ends_whatever_wakes_it_at_that_moment(
    world, policy, trigger, turns
):
    for verb in ("get", "list"):
        world.cluster.forbid(verb, "configmaps")
    world.dispatcher.on_stored(await world.ask(policy, trigger))
    # From here on the request waits for the time of its next attempt, or for a change.
    await world.settle()
    work = asyncio.create_task(world.dispatcher.run())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    world.dispatcher.hold(held=False)
    for _ in range(turns):
        await asyncio.sleep(0)
    work.cancel()
    done, _ = await asyncio.wait({work}, timeout=2.0)
    work.cancel()
    assert done


class TestList:
    async def test_requests_that_the_watch_missed_are_found_by_the_list(
        self, world, policy, trigger, target
    ):
        await world.ask(policy, trigger)
        await world.dispatcher.resync()
        await world.settle()
        assert (await world.status()).state is State.COMPLETED

    async def test_requests_that_are_no_longer_listed_are_forgotten(self, world, policy, trigger):
        request = await world.ask(policy, trigger)
        world.dispatcher.on_stored(request)
        kind = world.cluster.exact("kyverno.io/v2", "UpdateRequest")
        world.cluster.delete(kind, "kyverno", request.name)
        await world.dispatcher.resync()
        assert world.dispatcher.waiting == 0

    async def test_parked_requests_keep_their_time_over_a_restart(
        self, world, policy, trigger, target
    ):
        for verb in ("patch", "update"):
            world.cluster.forbid(verb, "secrets")
        world.dispatcher.on_stored(await world.ask(policy, trigger))
        await world.settle()
        due = (await world.status()).next_attempt
        assert due == START + timedelta(seconds=5)
        world.cluster.permit("patch", "secrets")
        world.restart()
        world.index.apply(policy)
        await world.dispatcher.resync()
        await look_again(world, 4.9)
        assert (await world.status()).state is State.PENDING
        await look_again(world, 0.2)
        assert (await world.status()).state is State.COMPLETED

    @pytest.mark.parametrize("ahead", [-86_400, 86_400])
    async def test_setting_the_clock_delays_no_request_for_long(
        self, world, policy, trigger, target, ahead
    ):
        for verb in ("patch", "update"):
            world.cluster.forbid(verb, "secrets")
        world.clock.ahead = timedelta(seconds=ahead)
        world.dispatcher.on_stored(await world.ask(policy, trigger))
        await world.settle()
        world.cluster.permit("patch", "secrets")
        world.clock.ahead = timedelta()
        world.restart()
        world.index.apply(policy)
        await world.dispatcher.resync()
        await look_again(world, world.processor.backoff.ceiling)
        assert (await world.status()).state is State.COMPLETED

    async def test_a_step_of_the_clock_does_not_move_the_next_attempt(
        self, world, policy, trigger, target
    ):
        for verb in ("patch", "update"):
            world.cluster.forbid(verb, "secrets")
        world.dispatcher.on_stored(await world.ask(policy, trigger))
        await world.settle()
        world.cluster.permit("patch", "secrets")
        world.clock.ahead = timedelta(hours=-1)
        await look_again(world, 5.0)
        assert (await world.status()).state is State.COMPLETED


class TestUnconfirmed:
    @pytest.fixture
    def absent(self, make: type[Make]) -> Object:
        obj = make.object()
        obj["metadata"]["uid"] = "u"
        return obj

    async def test_an_unconfirmed_request_is_checked_again_soon_and_then_processed(
        self, world, make, policy, absent, target
    ):
        world.dispatcher.on_stored(await world.ask(policy, absent))
        await world.settle()
        assert (await world.status()).attempts == 0
        world.cluster.add(absent)
        await look_again(world, 0.02)
        assert (await world.status()).state is State.COMPLETED

    async def test_after_a_while_the_status_reports_what_the_request_waits_for(
        self, world, policy, absent
    ):
        world.dispatcher.on_stored(await world.ask(policy, absent))
        for _ in range(12):
            await look_again(world, 1.0)
        status = await world.status()
        assert (status.state, status.reason) == (State.PENDING, "Unconfirmed")
        assert "ConfigMap a/c" in status.message
        assert status.attempts == 1

    async def test_an_unconfirmed_trigger_counts_as_refused_at_the_deadline(
        self, world, policy, absent
    ):
        world.dispatcher.on_stored(await world.ask(policy, absent))
        looks = 0
        while (await world.status()).state is State.PENDING:
            await look_again(world, 2.0)
            looks += 1
            assert looks < 80
        status = await world.status()
        assert (status.state, status.reason) == (State.SKIP, "NotStored")
        assert "was not stored" in status.message
        assert world.clock.now() - START >= timedelta(seconds=world.dispatcher.confirmation)

    @pytest.mark.parametrize("ahead", [-86_400, 600, 86_400])
    async def test_a_wrong_clock_does_not_make_a_trigger_count_as_refused(
        self, world, policy, absent, target, ahead
    ):
        world.dispatcher.on_stored(await world.ask(policy, absent))
        world.clock.ahead = timedelta(seconds=ahead)
        for _ in range(50):
            await look_again(world, 2.0)
        assert (await world.status()).state is State.PENDING
        world.cluster.add(absent)
        await look_again(world, 2.0)
        assert (await world.status()).state is State.COMPLETED

    async def test_a_new_leader_waits_the_full_time_for_confirmation(
        self, world, policy, absent, target
    ):
        world.dispatcher.on_stored(await world.ask(policy, absent))
        for _ in range(50):
            await look_again(world, 2.0)
        world.restart()
        world.index.apply(policy)
        await world.dispatcher.resync()
        for _ in range(50):
            await look_again(world, 2.0)
        assert (await world.status()).state is State.PENDING
        world.cluster.add(absent)
        await look_again(world, 2.0)
        assert (await world.status()).state is State.COMPLETED

    async def test_a_trigger_that_was_stored_and_deleted_does_not_count_as_refused(
        self, world, policy, absent, target
    ):
        request = await world.ask(policy, absent)
        world.remove(world.cluster.add(absent))
        world.dispatcher.on_stored(request)
        for _ in range(12):
            await look_again(world, 1.0)
        status = await world.status()
        assert (status.state, status.reason) == (State.SKIP, "TriggerGone")
        assert status.message == (
            "ConfigMap a/c with uid u is gone: it was deleted before this request was done"
        )

    async def test_a_trigger_that_was_stored_late_and_deleted_does_not_count_as_refused(
        self, world, policy, absent, target
    ):
        world.dispatcher.on_stored(await world.ask(policy, absent))
        for _ in range(12):
            await look_again(world, 1.0)
        world.remove(world.cluster.add(absent))
        for _ in range(70):
            await look_again(world, 2.0)
        assert (await world.status()).reason == "TriggerGone"

    async def test_the_status_says_if_the_trigger_may_have_been_deleted_immediately(
        self, world, policy, absent, monkeypatch
    ):
        async def unknown(*_):
            return None

        monkeypatch.setattr(world.cluster, "stored", unknown)
        world.dispatcher.on_stored(await world.ask(policy, absent))
        for _ in range(70):
            await look_again(world, 2.0)
        status = await world.status()
        assert (status.state, status.reason) == (State.SKIP, "NotStored")
        assert status.message.endswith("or the object was deleted again immediately")

    async def test_a_trigger_that_vanishes_after_it_was_seen_does_not_count_as_refused(
        self, world, make, policy, trigger
    ):
        world.dispatcher.on_stored(await world.ask(policy, trigger))
        world.cluster.add(make.object("Secret", "s"))
        for verb in ("patch", "update"):
            world.cluster.forbid(verb, "secrets")
        await world.settle()
        world.remove(trigger)
        for _ in range(100):
            await look_again(world, 2.0)
        status = await world.status()
        assert (status.state, status.reason) == (State.SKIP, "TriggerGone")
        assert [item.ref.name for item in status.targets] == ["s"]


class TestSameWork:
    """Requests of colliding writers: the API server calls again, with another uid."""

    @pytest.fixture
    def policy(self, world: World, make: type[Make]) -> Object:
        return world.install(make.policy(json=APPEND))

    @pytest.fixture
    def ask(
        self, world: World, policy: Object, trigger: Object
    ) -> Callable[..., Awaitable[UpdateRequest]]:
        async def run(name, **changes):
            record = TriggerRecord(resource_version="0", **changes.pop("record", {}))
            return await world.ask(
                policy, trigger, name=name, operation="UPDATE", record=record, **changes
            )

        return run

    async def test_identical_concurrent_requests_are_processed_once(self, world, ask, target):
        for name in ("ur-1", "ur-2", "ur-3"):
            world.dispatcher.on_stored(await ask(name))
        await world.settle()
        assert (await world.read(target))["spec"]["list"] == ["x"]
        states = [(await world.status(name)).state for name in ("ur-1", "ur-2", "ur-3")]
        assert states == [State.COMPLETED, State.SKIP, State.SKIP]
        assert (await world.status("ur-3")).message == "same as ur-1"

    async def test_identical_consecutive_requests_are_processed_once(self, world, ask, target):
        for name in ("ur-1", "ur-2"):
            world.dispatcher.on_stored(await ask(name))
            await world.settle()
        assert (await world.read(target))["spec"]["list"] == ["x"]
        assert (await world.status("ur-2")).reason == "SameAsOther"

    async def test_a_request_is_not_a_duplicate_of_itself(self, world, ask, target):
        world.cluster.forbid("patch", "secrets")
        world.cluster.forbid("update", "secrets")
        world.dispatcher.on_stored(await ask("ur-1"))
        await world.settle()
        world.cluster.permit("patch", "secrets")
        await look_again(world, 10)
        assert (await world.status("ur-1")).state is State.COMPLETED

    async def test_a_duplicate_of_a_deleted_request_is_processed(self, world, ask, target):
        world.cluster.forbid("get", "secrets")
        world.dispatcher.on_stored(await ask("ur-1"))
        await world.settle()
        world.dispatcher.on_deleted("ur-1")
        world.cluster.permit("get", "secrets")
        world.dispatcher.on_stored(await ask("ur-2"))
        await world.settle()
        assert (await world.status("ur-2")).state is State.COMPLETED

    @pytest.mark.parametrize(
        "changes",
        [
            {"user": {"userInfo": {"username": "jane"}}},
            {"record": {"unchanged": True}},
            {"recorded": {"oldObject": {"data": {"v": "other"}}}},
            {"user": {"userInfo": {"username": ""}, "clusterRoles": ["cluster-admin"]}},
            {"request": {"options": {"fieldManager": "forged"}}},
        ],
    )
    async def test_requests_that_differ_are_not_duplicates(self, world, ask, target, changes):
        world.dispatcher.on_stored(await ask("ur-1"))
        world.dispatcher.on_stored(await ask("ur-2", **changes))
        await world.settle()
        assert (await world.read(target))["spec"]["list"] == ["x", "x"]

    async def test_requests_with_a_recorded_object_are_never_duplicates(self, world, ask, target):
        # It is unknown which of two scalings was stored: each is processed as it was sent.
        for name, replicas in (("ur-1", 5), ("ur-2", 7)):
            recorded = {"object": {"apiVersion": "v1", "kind": "Scale", "spec": replicas}}
            record = {"subresource": "scale"}
            world.dispatcher.on_stored(await ask(name, record=record, recorded=recorded))
        await world.settle()
        ends = {(await world.status(name)).reason for name in ("ur-1", "ur-2")}
        assert "SameAsOther" not in ends

    async def test_requests_recorded_in_a_secret_are_never_duplicates(self, world, ask, target):
        # One of them may be forged, and the requests do not show which one.
        for name, value in (("ur-1", "forged"), ("ur-2", "real")):
            content = {"oldObject": {"data": {"v": value}}}
            hidden = recorded_name(name)
            await world.requests.create_recorded(hidden, {}, orjson.dumps(content))
            world.dispatcher.on_stored(await ask(name, recorded_secret=hidden))
        await world.settle()
        ends = {(await world.status(name)).reason for name in ("ur-1", "ur-2")}
        assert "SameAsOther" not in ends

    async def test_creations_are_never_duplicates(self, world, policy, trigger, target):
        for name in ("ur-1", "ur-2"):
            world.dispatcher.on_stored(await world.ask(policy, trigger, name=name))
        await world.settle()
        assert (await world.read(target))["spec"]["list"] == ["x", "x"]


class TestStatus:
    async def test_a_status_that_another_client_wrote_is_read_again(
        self, world, policy, trigger, target
    ):
        request = await world.ask(policy, trigger)
        await world.requests.write_status(request, RequestStatus(message="by somebody else"))
        world.dispatcher.on_stored(request)
        await world.settle()
        assert (await world.status()).state is State.COMPLETED

    async def test_a_final_status_is_not_reopened(self, world, policy, trigger, target):
        request = await world.ask(policy, trigger)
        final = RequestStatus(state=State.FAILED, message="by somebody else")
        await world.requests.write_status(request, final)
        world.dispatcher.on_stored(request)
        await world.settle()
        assert await world.status() == final
        assert world.dispatcher.waiting == 0

    @pytest.mark.parametrize("state", [State.COMPLETED, State.FAILED, State.SKIP])
    async def test_a_final_state_that_another_client_wrote_is_taken_back(
        self, world, policy, trigger, target, state
    ):
        request = await world.ask(policy, trigger)
        world.dispatcher.on_stored(request)
        ended = await world.requests.write_status(request, RequestStatus(state=state))
        world.dispatcher.on_stored(replace(ended, ended_by="kubectl-edit"))
        assert world.dispatcher.waiting == 1
        await world.settle()
        first, last = (status for _, status, _ in world.observed)
        assert (first.state, first.reason) == (State.PENDING, "TakenBack")
        assert first.message == (
            f"kubectl-edit set the state {state}, which was taken back: the work continues;"
            " to cancel it, delete the request"
        )
        assert (last.state, last.counts.patched) == (State.COMPLETED, 1)

    async def test_a_final_state_is_taken_back_although_a_list_comes_first(
        self, world, policy, trigger, target
    ):
        request = await world.ask(policy, trigger)
        ended = await world.requests.write_status(request, RequestStatus(state=State.COMPLETED))
        world.dispatcher.on_stored(replace(ended, ended_by="kubectl-edit"))
        await world.dispatcher.resync()
        await world.settle()
        first, *_ = (status for _, status, _ in world.observed)
        assert first.reason == "TakenBack"
        assert (await world.status()).counts.patched == 1

    async def test_a_completed_request_is_not_repeated_after_another_client_edits_it(
        self, world, policy, trigger, target
    ):
        world.dispatcher.on_stored(await world.ask(policy, trigger))
        await world.settle()
        edited = replace(await world.requests.get("ur-1"), ended_by="kubectl-edit")
        world.dispatcher.on_stored(replace(edited, resource_version="999999"))
        await world.settle()
        assert len(world.observed) == 1

    async def test_a_status_that_cannot_be_stored_is_tried_again(
        self, world, policy, trigger, target
    ):
        world.cluster.forbid("patch", "updaterequests.kyverno.io/status")
        world.cluster.forbid("update", "updaterequests.kyverno.io/status")
        world.dispatcher.on_stored(await world.ask(policy, trigger))
        await world.settle()
        assert (await world.status()).attempts == 0
        world.cluster.permit("patch", "updaterequests.kyverno.io/status")
        await look_again(world, 2.0)
        assert (await world.status()).state is State.COMPLETED

    async def test_the_log_says_that_statuses_cannot_be_stored_once_between_two_lists(
        self, world, policy, trigger, target
    ):
        said: list[str] = []
        world.dispatcher.warn = said.append
        world.cluster.forbid("patch", "updaterequests.kyverno.io/status")
        world.cluster.forbid("update", "updaterequests.kyverno.io/status")
        world.dispatcher.on_stored(await world.ask(policy, trigger, name="ur-1"))
        world.dispatcher.on_stored(await world.ask(policy, trigger, name="ur-2"))
        await look_again(world, 5.0)
        (line,) = said
        assert line.startswith("the work of a request is done again, as its status cannot be stor")
        assert "updaterequests.kyverno.io/status" in line
        await world.dispatcher.resync()
        await look_again(world, 5.0)
        assert len(said) == 2

    async def test_a_request_deleted_while_it_is_processed_is_forgotten(
        self, world, policy, trigger, target
    ):
        def vanish(_before, _after):
            world.cluster.delete(
                world.cluster.exact("kyverno.io/v2", "UpdateRequest"), "kyverno", "ur-1"
            )

        world.wire.before_change = vanish
        world.dispatcher.on_stored(await world.ask(policy, trigger))
        await world.settle()
        assert world.dispatcher.waiting == 0


class TestFault:
    """A bug in the controller is reported, and loses no request."""

    @pytest.fixture
    async def reported(self) -> list[BaseException]:
        found = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: found.append(context["exception"]))
        return found

    @pytest.fixture
    async def broken(self, world: World) -> Callable[[], None]:
        def fault(_verb, _kind):
            raise ZeroDivisionError

        world.wire.before_read = fault

        def mend():
            world.wire.before_read = lambda *_: None

        return mend

    async def test_a_request_is_tried_again_after_an_internal_error(
        self, world, policy, trigger, target, reported, broken
    ):
        world.dispatcher.on_stored(await world.ask(policy, trigger))
        await world.settle()
        assert [type(error) for error in reported] == [ZeroDivisionError]
        broken()
        await look_again(world, 60)
        assert (await world.status()).state is State.COMPLETED

    async def test_a_request_is_not_tried_again_soon_after_an_internal_error(
        self, world, policy, trigger, target, reported, broken
    ):
        world.dispatcher.on_stored(await world.ask(policy, trigger))
        await world.settle()
        for _ in range(9):
            await look_again(world, 1)
        assert len(reported) == 1

    async def test_an_observer_that_fails_does_not_repeat_the_work(
        self, world, policy, trigger, target, reported
    ):
        def fault(*_):
            raise ZeroDivisionError

        world.dispatcher.observe = fault
        world.dispatcher.on_stored(await world.ask(policy, trigger))
        await world.settle()
        assert (await world.status()).state is State.COMPLETED
        assert world.dispatcher.waiting == 0
        assert len(reported) == 1


class TestWake:
    async def test_parked_requests_of_the_policy_are_tried_at_once(
        self, world, policy, trigger, target
    ):
        for verb in ("patch", "update"):
            world.cluster.forbid(verb, "secrets")
        world.dispatcher.on_stored(await world.ask(policy, trigger))
        await world.settle()
        world.cluster.permit("patch", "secrets")
        world.dispatcher.wake(policy_named("another"))
        await world.settle()
        assert (await world.status()).state is State.PENDING
        world.dispatcher.wake(policy_named("p"))
        await world.settle()
        assert (await world.status()).state is State.COMPLETED


class TestEnd:
    async def test_closing_completes_running_requests_and_starts_no_new_ones(
        self, world, make, policy, trigger, target
    ):
        going_on = asyncio.Event()

        async def hold(_before, _after):
            await going_on.wait()

        world.wire.before_change = hold
        world.dispatcher.on_stored(await world.ask(policy, trigger))
        async with world.working():
            await until(lambda: world.wire.calls["change"])
            world.dispatcher.close()
            world.dispatcher.on_stored(await world.ask(policy, trigger, name="ur-2"))
            going_on.set()
            async with asyncio.timeout(5):
                await world.dispatcher.drain()
        assert (await world.status("ur-1")).state is State.COMPLETED
        assert (await world.status("ur-2")).attempts == 0

    async def test_a_closed_dispatcher_does_not_poll(self, world, policy, trigger):
        looks = 0
        clock = world.dispatcher.clock

        class Counting:
            now = clock.now

            def monotonic(self):
                nonlocal looks
                looks += 1
                return clock.monotonic()

        world.dispatcher.clock = Counting()
        world.dispatcher.close()
        world.dispatcher.on_stored(await world.ask(policy, trigger))
        async with world.working():
            for _ in range(200):
                await asyncio.sleep(0)
        assert looks < 10

    async def test_a_request_in_work_when_the_process_stops_stays_pending(
        self, world, policy, trigger, target
    ):
        async def hold(_before, _after):
            await asyncio.Event().wait()

        world.wire.before_change = hold
        world.dispatcher.on_stored(await world.ask(policy, trigger))
        async with world.working():
            await until(lambda: world.wire.calls["change"])
        assert (await world.status()).state is State.PENDING

    async def test_at_most_the_configured_number_of_requests_run_in_parallel(
        self, world, make, policy
    ):
        inside = most = 0

        async def count(_verb, _kind):
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            for _ in range(5):
                await asyncio.sleep(0)
            inside -= 1

        world.dispatcher.parallel = 3
        world.wire.before_read = count
        for number in range(10):
            trigger = world.cluster.add(make.object(name=f"c{number}"))
            world.cluster.add(make.object("Secret", f"s{number}"))
            world.dispatcher.on_stored(await world.ask(policy, trigger, name=f"ur-{number}"))
        await world.settle()
        assert most == 3


class TestSweeps:
    async def test_a_sweep_that_fails_waits_although_its_progress_was_seen(
        self, world, make, policy
    ):
        """The watch returns the sweep's own progress while it runs."""
        runs = 0

        async def sweep(request):
            nonlocal runs
            runs += 1
            stored = await world.requests.write_status(
                request, replace(request.status, message=f"run {runs}")
            )
            world.dispatcher.on_stored(stored)
            return await world.sweeper.run(replace(stored, spec=replace(stored.spec)))

        world.dispatcher.sweep = sweep
        world.cluster.forbid("list", "configmaps")
        request = await world.ask(policy, policy, name="sweep-1", operation="", sweep=True)
        world.dispatcher.on_stored(request)
        await world.settle()
        status = await world.status("sweep-1")
        assert (status.state, runs) == (State.PENDING, 1)
        assert status.missing_permission == "list configmaps"


async def test_a_new_request_with_the_name_of_a_deleted_one_is_processed(
    world, policy, trigger, target
):
    """The same name with another uid is another request."""
    request = await world.ask(policy, trigger)
    world.dispatcher.on_stored(request)
    await world.settle()
    kind = world.cluster.exact("kyverno.io/v2", "UpdateRequest")
    world.cluster.delete(kind, "kyverno", "ur-1")
    world.dispatcher.on_stored(await world.ask(policy, trigger))
    await world.settle()
    assert (await world.status()).state is State.COMPLETED


async def test_errors_of_the_api_server_are_recorded_in_the_status(world, policy, trigger, target):
    def down(_verb, kind):
        if kind == "Secret":
            raise Unavailable("no answer")

    world.wire.before_read = down
    world.dispatcher.on_stored(await world.ask(policy, trigger))
    await world.settle()
    status = await world.status()
    assert (status.state, status.reason, status.message) == (
        State.PENDING,
        "Failed",
        "no answer",
    )
    assert status.next_attempt == START + timedelta(seconds=1)


async def test_a_missing_right_is_recorded_in_the_status(world, policy, trigger, target):
    def refuse(_before, _after):
        raise Forbidden("no", permission="patch secrets in namespace a")

    world.wire.before_change = refuse
    world.dispatcher.on_stored(await world.ask(policy, trigger))
    await world.settle()
    status = await world.status()
    assert status.missing_permission == "patch secrets in namespace a"
    assert status.targets[0].ref == ref_of(target)


async def test_a_person_can_end_the_pause_before_the_next_attempt(
    world, policy, trigger, target, refuse
):
    world.wire.before_change = refuse(Unavailable("no answer"), lambda _: True)
    world.dispatcher.on_stored(await world.ask(policy, trigger))
    await world.settle()
    assert (await world.status()).next_attempt > world.clock.now()
    world.wire.before_change = lambda *_: None
    request = await world.requests.get("ur-1")
    stored = await world.cluster.get(REQUESTS, request.namespace, "ur-1")
    await world.edit(stored, annotations={ANNOTATION_RETRY: "now"})
    world.dispatcher.on_stored(await world.requests.get("ur-1"))
    await world.settle()
    assert (await world.status()).state is State.COMPLETED


async def test_a_retry_is_not_a_duplicate_of_the_original_request(world, policy, trigger, target):
    record = TriggerRecord(resource_version="1")
    first = await world.ask(policy, trigger, operation="UPDATE", record=record)
    world.dispatcher.on_stored(first)
    await world.settle()
    draft = retry_draft(first, "ur-again")
    await world.requests.create("ur-2", draft.labels, draft.spec)
    world.dispatcher.on_stored(await world.requests.get("ur-2"))
    await world.settle()
    assert (await world.status("ur-2")).state is State.COMPLETED
