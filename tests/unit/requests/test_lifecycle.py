from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from reconciler.api.meta import ObjectRef
from reconciler.api.requestwire import render_status
from reconciler.api.updaterequest import (
    Counts,
    Outcome,
    Reason,
    RequestStatus,
    State,
    SweepProgress,
    TargetStatus,
)
from reconciler.requests.lifecycle import (
    MAX_MESSAGE,
    MAX_TARGETS,
    Defer,
    Done,
    Fail,
    Retention,
    Retry,
    Skip,
    advance,
    begun,
    count,
    merge_targets,
    recount,
    second,
    shorten,
)

NOW = datetime(2026, 3, 1, 10, 0, 30, tzinfo=UTC)
KEEP = Retention(seconds={State.COMPLETED: 600.0, State.SKIP: 0.0, State.FAILED: 86400.0})


def target(name="a", outcome=Outcome.PATCHED, **facts):
    ref = ObjectRef(api_version="v1", kind="Secret", namespace="ns", name=name)
    return TargetStatus(ref=ref, outcome=outcome, **facts)


def step(status, disposition, **facts):
    return advance(status, disposition, now=NOW, retention=KEEP, **facts)


@pytest.mark.parametrize(
    ("disposition", "state", "reason", "removal"),
    [
        (Done(), State.COMPLETED, "Applied", "2026-03-01T10:11:00Z"),
        (
            Skip(reason=Reason.POLICY_GONE, message="m"),
            State.SKIP,
            "PolicyGone",
            "2026-03-01T10:00:30Z",
        ),
        (
            Fail(reason=Reason.TARGET_INVALID, message="m"),
            State.FAILED,
            "TargetInvalid",
            "2026-03-02",
        ),
    ],
)
def test_a_final_status_has_a_reason_an_end_and_a_removal_time(
    disposition, state, reason, removal
):
    ended = step(RequestStatus(attempts=2), disposition)
    assert (ended.state, ended.reason, ended.attempts) == (state, reason, 3)
    assert ended.finished == NOW
    assert ended.next_attempt is None
    assert ended.remove_after.startswith(removal)


def test_a_retry_stays_pending_with_its_time_and_the_missing_permission():
    retry = Retry(
        reason="Forbidden", message="m", retry_after=90, missing_permission="patch secrets"
    )
    parked = step(RequestStatus(), retry)
    assert parked.state is State.PENDING
    assert parked.next_attempt == NOW + timedelta(seconds=90)
    assert parked.missing_permission == "patch secrets"
    assert parked.finished is None
    assert not parked.remove_after


def interrupted(**facts):
    return Retry(
        reason="Interrupted", message="killed", retry_after=1.0, interrupted=True, **facts
    )


def test_an_interrupted_attempt_is_retried_twice():
    status = RequestStatus()
    for times in (1, 2):
        status = step(status, interrupted())
        assert (status.state, status.interruptions) == (State.PENDING, times)
    ended = step(status, interrupted())
    assert (ended.state, ended.reason) == (State.FAILED, "Interrupted")
    assert ended.message == "killed; this ended 3 attempts in a row, so no other follows"


@pytest.mark.parametrize(
    ("disposition", "left"),
    [
        (Retry(reason=Reason.CONFLICT, message="m", retry_after=1.0), 0),
        (Defer(reason=Reason.PAUSED, message="m"), 2),
        (Done(), 0),
    ],
)
def test_only_interruptions_in_a_row_count(disposition, left):
    status = replace(RequestStatus(), interruptions=2)
    assert step(status, disposition).interruptions == left


def test_the_next_attempt_clears_what_stopped_the_previous_one():
    parked = step(
        RequestStatus(), Retry(reason="x", message="m", retry_after=1, missing_permission="p")
    )
    ended = step(parked, Done())
    assert (ended.next_attempt, ended.missing_permission, ended.message) == (None, "", "")


@pytest.mark.parametrize("state", [State.COMPLETED, State.FAILED, State.SKIP])
@pytest.mark.parametrize(
    "disposition",
    [
        Done(),
        Skip(reason=Reason.FAILED, message="m"),
        Fail(reason=Reason.FAILED, message="m"),
        Retry(reason=Reason.FAILED, message="m", retry_after=0),
    ],
)
def test_a_final_status_does_not_change(state, disposition):
    ended = RequestStatus(state=state, message="the end", attempts=4)
    assert step(ended, disposition, targets=(target(),)) is ended


def test_an_attempt_without_results_of_targets_keeps_the_known_ones():
    known = RequestStatus(targets=(target(),), counts=Counts(patched=150, failed=1))
    parked = step(known, Retry(reason="Unavailable", message="m", retry_after=1))
    assert parked.targets == known.targets
    assert parked.counts == known.counts


def test_the_progress_of_a_sweep_is_stored_in_the_status():
    progress = SweepProgress(cursor="0:a/b", done=3, total=9)
    status = step(RequestStatus(), Done(), sweep=progress, counts=Counts(patched=3))
    assert (status.sweep, status.counts) == (progress, Counts(patched=3))


def test_retention_is_never_shorter_than_asked_and_little_longer():
    for later in range(0, 120, 7):
        moment = NOW + timedelta(seconds=later)
        named = KEEP.remove_after(State.COMPLETED, moment)
        kept = datetime.fromisoformat(named) - moment
        assert timedelta(seconds=600) <= kept <= timedelta(seconds=660)


def test_removal_times_sort_chronologically_with_those_of_earlier_versions():
    moments = [NOW + timedelta(seconds=17 * step) for step in range(200)]
    names = [second(moment) for moment in moments]
    assert names == sorted(names)
    assert second(NOW) < NOW.strftime("%Y-%m-%dT%H:%MZ") < second(NOW + timedelta(minutes=1))


def test_counts_hold_each_outcome_once():
    every = [target(str(outcome), outcome) for outcome in Outcome]
    assert count(every) == Counts(patched=3, unchanged=1, skipped=1, failed=6)
    assert count(every).matched == len(Outcome)


def test_a_status_lists_failures_first_and_is_bounded():
    many = [target(f"ok-{number}") for number in range(MAX_TARGETS)]
    bad = target("bad", Outcome.INVALID, message="x" * 5 * MAX_MESSAGE)
    kept = shorten([*many, bad])
    assert len(kept) == MAX_TARGETS
    assert kept[0].ref.name == "bad"
    assert len(kept[0].message) == MAX_MESSAGE
    assert [item.ref.name for item in kept[1:3]] == ["ok-0", "ok-1"]


def test_a_status_lists_denied_targets_before_other_failures():
    many = [target(f"bad-{number}", Outcome.INVALID) for number in range(MAX_TARGETS)]
    kept = shorten([*many, target("denied", Outcome.DENIED)])
    assert [item.ref.name for item in kept[:2]] == ["denied", "bad-0"]


def test_a_patched_target_stays_counted_although_the_status_does_not_list_it():
    retry = Retry(reason=Reason.DENIED, message="", retry_after=1)
    names = [f"ok-{number}" for number in range(3 * MAX_TARGETS)]
    denied = target("bad", Outcome.DENIED)
    first = tuple(target(name) for name in names)
    status = step(RequestStatus(), retry, targets=(*first, denied))
    assert status.counts == Counts(patched=300, failed=1)
    # The targets could not be listed, so none was evaluated.
    status = step(status, retry, targets=merge_targets(status.targets, ()))
    assert status.counts.patched == 300
    listed = {item.ref.name for item in status.targets}
    again = [target(name, Outcome.UNCHANGED) for name in names if name not in listed]
    new = [*again, target("bad"), target("same", Outcome.UNCHANGED)]
    status = step(status, Done(), targets=merge_targets(status.targets, new))
    assert status.counts == Counts(patched=301, unchanged=1)


def test_an_evaluated_target_that_is_listed_or_was_not_patched_is_counted_as_it_is_now():
    many = tuple(target(f"ok-{number}") for number in range(2 * MAX_TARGETS))
    known = RequestStatus(targets=shorten(many), counts=count(many))
    unchanged = [target("same", Outcome.UNCHANGED), target("ok-0", Outcome.UNCHANGED)]
    failed = [target("bad", Outcome.FAILED)]
    assert recount(known, [*known.targets, *failed]) == Counts(patched=200, failed=1)
    assert recount(known, [*known.targets[1:], *unchanged]) == Counts(patched=200, unchanged=1)


@pytest.mark.parametrize(
    ("alone", "before", "after"), [(True, 0, 1), (True, 2, 3), (False, 0, 1), (False, 2, 2)]
)
def test_only_an_attempt_alone_counts_against_a_request_that_was_interrupted(alone, before, after):
    assert begun(RequestStatus(interruptions=before), alone=alone).interruptions == after


def test_the_largest_status_stays_far_below_the_limit_of_etcd():
    worst = [
        target(f"{number:0253}", Outcome.INVALID, message="m" * 5000) for number in range(500)
    ]
    status = step(RequestStatus(), Fail(reason="r", message="x" * 50_000), targets=tuple(worst))
    assert len(str(render_status(status))) < 300_000
    assert status.counts.failed == 500


@pytest.mark.parametrize(
    ("before", "after", "merged"),
    [
        (Outcome.PATCHED, Outcome.UNCHANGED, Outcome.PATCHED),
        (Outcome.FORBIDDEN, Outcome.PATCHED, Outcome.PATCHED),
        (Outcome.PATCHED, Outcome.INVALID, Outcome.INVALID),
        (Outcome.UNCHANGED, Outcome.PATCHED, Outcome.PATCHED),
        (Outcome.DENIED, Outcome.DENIED, Outcome.DENIED),
    ],
)
def test_the_newer_result_counts_but_a_patch_is_not_forgotten(before, after, merged):
    older = target(outcome=before, attempts=2, version_before="1", version_after="2")
    (result,) = merge_targets(
        [older], [target(outcome=after, version_before="8", version_after="9")]
    )
    assert (result.outcome, result.attempts) == (merged, 3)
    if (before, after) == (Outcome.PATCHED, Outcome.UNCHANGED):
        assert (result.version_before, result.version_after) == ("1", "2")


def test_results_of_other_targets_and_subresources_stay_apart():
    whole, part = target(), target(subresource="status")
    other = target("b", Outcome.FAILED)
    assert merge_targets([whole, part], [other]) == (whole, part, other)
    renewed = replace(other, outcome=Outcome.PATCHED)
    assert [item.attempts for item in merge_targets([whole, other], [renewed])] == [1, 2]
