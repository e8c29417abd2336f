from dataclasses import replace
from datetime import UTC, datetime, timedelta

from reconciler.api.meta import ObjectRef
from reconciler.api.updaterequest import (
    RequestSpec,
    RequestStatus,
    State,
    TriggerRecord,
    UpdateRequest,
)
from reconciler.services.catchup.seen import Seen

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
            policy="p",
            rule="rule",
            resource=ObjectRef(api_version="v1", kind="ConfigMap", name="c", uid=uid),
            policy_uid="policy-uid",
            trigger=TriggerRecord(digest=digest),
            **spec,
        ),
        status=RequestStatus(),
    )


def test_a_request_covers_what_came_before_its_second():
    seen = Seen()
    seen.take(request())
    assert seen.after(*KEY, NOON - SECOND)
    assert not seen.after(*KEY, NOON)
    assert seen.digests(*KEY, NOON) == {"d"}
    assert not seen.digests(*KEY, NOON - SECOND)
    assert not seen.after("policy-uid", "other rule", "trigger-uid", NOON - SECOND)


def test_a_request_whose_trigger_was_not_stored_covers_nothing():
    seen = Seen()
    seen.take(request())
    ended = RequestStatus(state=State.SKIP, reason="NotStored")
    seen.take(replace(request(), status=ended))
    assert not seen.after(*KEY, NOON - SECOND)
    assert len(seen) == 0


def test_sweeps_and_requests_without_a_trigger_are_nothing_to_remember():
    seen = Seen()
    seen.take(request(sweep=True))
    seen.take(request(uid=""))
    assert len(seen) == 0


def test_what_is_made_for_a_change_covers_it_until_it_is_told_of():
    seen = Seen()
    seen.note(*KEY, "ur-9", NOON)
    assert seen.after(*KEY, NOON)
    assert not seen.after(*KEY, NOON + SECOND)
    seen.take(request("ur-9", created=NOON + 7 * SECOND))
    assert seen.after(*KEY, NOON + SECOND)
    assert len(seen) == 1


def test_what_nobody_asks_for_any_more_is_forgotten():
    seen = Seen()
    for number in range(10):
        seen.take(request(f"ur-{number}", created=NOON + number * SECOND))
    seen.forget(NOON + 5 * SECOND)
    assert len(seen) == 5
    seen.forget(NOON + 50 * SECOND)
    assert len(seen) == 0


def test_the_older_half_goes_when_there_are_too_many():
    seen = Seen(most=10)
    for number in range(11):
        seen.take(request(f"ur-{number}", created=NOON + number * SECOND, uid=f"t-{number}"))
    assert len(seen) == 5
    assert seen.after("policy-uid", "rule", "t-10", NOON)
    assert not seen.after("policy-uid", "rule", "t-1", NOON)
