"""Laws of a request's lifecycle, for any sequence of attempts."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from reconciler.api.meta import ObjectRef
from reconciler.api.requestwire import parse_status, render_status
from reconciler.api.updaterequest import Outcome, RequestStatus, State, TargetStatus
from reconciler.requests.lifecycle import (
    FINAL,
    MAX_MESSAGE,
    MAX_TARGETS,
    Disposition,
    Done,
    Fail,
    Retention,
    Retry,
    Skip,
    advance,
    count,
    identity,
    merge_targets,
)

START = datetime(2026, 5, 4, tzinfo=UTC)
TEXT = st.text(max_size=30)
DISPOSITIONS: st.SearchStrategy[Disposition] = st.one_of(
    st.builds(Done, message=TEXT),
    st.builds(Skip, reason=TEXT, message=TEXT),
    st.builds(Fail, reason=TEXT, message=st.text(max_size=3000)),
    st.builds(
        Retry,
        reason=TEXT,
        message=TEXT,
        retry_after=st.floats(0, 10_000),
        missing_permission=TEXT,
    ),
)
TARGETS = st.lists(
    st.builds(
        TargetStatus,
        ref=st.builds(
            ObjectRef,
            api_version=st.just("v1"),
            kind=st.just("Secret"),
            namespace=st.sampled_from(["a", "b"]),
            name=st.sampled_from(["x", "y", "z"]),
        ),
        outcome=st.sampled_from(Outcome),
        message=TEXT,
    ),
    max_size=6,
)
RETENTIONS = st.builds(
    Retention, seconds=st.dictionaries(st.sampled_from(State), st.floats(0, 1e6))
)


@given(st.lists(st.tuples(DISPOSITIONS, st.none() | TARGETS), max_size=8), RETENTIONS)
def test_a_finished_request_does_not_change(
    attempts: list[tuple[Disposition, list[TargetStatus] | None]], retention: Retention
) -> None:
    status = RequestStatus()
    for number, (disposition, found) in enumerate(attempts):
        before, now = status, START + timedelta(hours=number)
        targets = None if found is None else merge_targets(before.targets, found)
        status = advance(before, disposition, now=now, retention=retention, targets=targets)
        if before.state in FINAL:
            assert status is before
            continue
        assert status.attempts == before.attempts + 1
        assert len(status.message) <= MAX_MESSAGE
        assert len(status.targets) <= MAX_TARGETS
        assert (status.state in FINAL) is not isinstance(disposition, Retry)
        assert (status.finished is not None) is (status.state in FINAL)
        assert bool(status.remove_after) is (status.state in FINAL)
        assert (status.next_attempt is None) is (status.state in FINAL)
        assert status.next_attempt is None or status.next_attempt >= now


@given(TARGETS, TARGETS)
def test_every_target_has_one_result_after_two_attempts(
    first: list[TargetStatus], second: list[TargetStatus]
) -> None:
    earlier = merge_targets((), first)
    merged = merge_targets(earlier, second)
    names = [identity(item) for item in merged]
    assert len(names) == len(set(names))
    assert set(names) == {identity(item) for item in (*first, *second)}
    assert count(merged).matched == len(merged)
    assert sum(item.attempts for item in merged) == len(first) + len(second)


@given(DISPOSITIONS, TARGETS, RETENTIONS)
def test_a_stored_status_is_read_as_it_was_written(
    disposition: Disposition, found: list[TargetStatus], retention: Retention
) -> None:
    targets = merge_targets((), found)
    status = advance(RequestStatus(), disposition, now=START, retention=retention, targets=targets)
    stored = {key: value for key, value in render_status(status).items() if value is not None}
    assert parse_status(stored) == status
