from dataclasses import replace
from datetime import UTC, datetime, timedelta

from reconciler.api.kinds import policy_named
from reconciler.api.meta import ObjectRef
from reconciler.api.updaterequest import (
    RequestSpec,
    RequestStatus,
    Source,
    State,
    SweepProgress,
    TriggerRecord,
    UpdateRequest,
)
from reconciler.services.catchup.recent_requests import RecentRequests

NOON = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
KEY = ("policy-uid", "rule", "trigger-uid")


def request(name="ur-1", created=NOON, digest="d", uid="trigger-uid", **spec):
    return UpdateRequest(
        name=name,
        namespace="kyverno",
        uid=name,
        resource_version="1",
        created=created,
        labels={},
        spec=RequestSpec(
            policy=policy_named("p"),
            rule="rule",
            resource=ObjectRef(api_version="v1", kind="ConfigMap", name="c", uid=uid),
            policy_uid="policy-uid",
            trigger=TriggerRecord(digest=digest),
            **spec,
        ),
        status=RequestStatus(),
    )


def test_a_request_covers_changes_before_its_second():
    seen = RecentRequests()
    seen.record(request(), NOON)
    assert seen.after(*KEY, NOON - SECOND)
    assert not seen.after(*KEY, NOON)
    assert seen.digests(*KEY, NOON) == {"d"}
    assert not seen.digests(*KEY, NOON - SECOND)
    assert not seen.after("policy-uid", "other rule", "trigger-uid", NOON - SECOND)


def test_a_request_whose_trigger_was_not_stored_covers_nothing():
    seen = RecentRequests()
    seen.record(request(), NOON)
    ended = RequestStatus(state=State.SKIP, reason="NotStored")
    seen.record(replace(request(), status=ended), NOON)
    assert not seen.after(*KEY, NOON - SECOND)
    assert len(seen) == 0


def test_sweeps_and_requests_without_a_trigger_are_not_remembered():
    seen = RecentRequests()
    seen.record(request(sweep=True), NOON)
    seen.record(request(uid=""), NOON)
    assert len(seen) == 0


def aggregate(sequence, **more):
    return request("sweep-1", sweep=True, sequence=sequence, source=Source.CATCH_UP, **more)


def test_an_aggregate_request_covers_changes_before_its_sequence_last_rose():
    seen = RecentRequests()
    seen.record(aggregate(1), NOON)
    assert seen.after(*KEY, NOON - SECOND)
    assert not seen.after(*KEY, NOON)
    seen.record(aggregate(1), NOON + 30 * SECOND)
    assert not seen.after(*KEY, NOON)
    seen.record(aggregate(2), NOON + 40 * SECOND)
    assert seen.after("policy-uid", "rule", "another trigger", NOON + 39 * SECOND)
    assert not seen.after("policy-uid", "other rule", "trigger-uid", NOON)
    seen.forget(NOON + 41 * SECOND)
    assert not seen.after(*KEY, NOON)


def test_an_aggregate_request_first_seen_after_its_start_covers_until_its_creation():
    for status in (RequestStatus(sweep=SweepProgress()), RequestStatus(state=State.COMPLETED)):
        seen = RecentRequests()
        seen.record(replace(aggregate(7), status=status), NOON + 600 * SECOND)
        assert seen.after(*KEY, NOON - SECOND)
        assert not seen.after(*KEY, NOON)


def test_a_request_created_for_a_change_covers_it_until_it_is_reported():
    seen = RecentRequests()
    seen.note(*KEY, "ur-9", NOON)
    assert seen.after(*KEY, NOON)
    assert not seen.after(*KEY, NOON + SECOND)
    seen.record(request("ur-9", created=NOON + 7 * SECOND), NOON)
    assert seen.after(*KEY, NOON + SECOND)
    assert len(seen) == 1


def test_requests_before_the_given_time_are_forgotten():
    seen = RecentRequests()
    for number in range(10):
        seen.record(request(f"ur-{number}", created=NOON + number * SECOND), NOON)
    seen.forget(NOON + 5 * SECOND)
    assert len(seen) == 5
    seen.forget(NOON + 50 * SECOND)
    assert len(seen) == 0


def test_the_older_half_is_dropped_when_there_are_too_many_requests():
    seen = RecentRequests(most=10)
    for number in range(11):
        seen.record(
            request(f"ur-{number}", created=NOON + number * SECOND, uid=f"t-{number}"), NOON
        )
    assert len(seen) == 5
    assert seen.after("policy-uid", "rule", "t-10", NOON)
    assert not seen.after("policy-uid", "rule", "t-1", NOON)
