"""State transitions of an UpdateRequest.

Rule 1: every transition is in `advance`, `begun` and `reopen`; no other module decides a
request's state.
Rule 2: this module reads no clock and no cluster; the caller passes ``now``.
Rule 3: an empty state means Pending, so that one write, the CREATE, makes a request eligible.
Rule 4: Completed, Failed and Skip are final. Work that may still succeed stays Pending with
``next_attempt``; there is no way back from a final state that this project wrote. One that
another client wrote is reverted by `reopen`: work ends when it is done, or with its request.
Rule 5: transient errors never exhaust a request: only `Fail`, which the caller passes for errors
that no retry cures, `Skip` and `MOST_INTERRUPTIONS` end one that was not done.
Rule 6: a target that succeeded is not repeated; its result stays when others are retried.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Self

from reconciler.api.updaterequest import (
    CHANGES,
    SUCCESSES,
    Counts,
    Outcome,
    Reason,
    RequestStatus,
    State,
    SweepProgress,
    TargetStatus,
)
from reconciler.config import ControllerSettings

FINAL = frozenset({State.COMPLETED, State.FAILED, State.SKIP})
MAX_TARGETS = 100
"""Targets that a status lists, in the order of `shorten`."""
MAX_MESSAGE = 1000
MOST_INTERRUPTIONS = 3
"""Attempts in a row that may be interrupted; one more would only harm others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """Every target has its final result."""

    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """There is nothing to do, now or later."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Another attempt may succeed.

    Attributes:
        retry_after: The pause in seconds.
        interrupted: The attempt was ended from outside; after some in a row, none follows.
    """

    reason: Reason
    message: str
    retry_after: float
    missing_permission: str = ""
    interrupted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """No attempt will succeed until the policy or the target is changed."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Defer:
    """The work may not be done now, which is no attempt; ``until`` is None where unknown."""

    reason: Reason
    message: str
    until: datetime | None = None


Disposition = Done | Skip | Retry | Fail | Defer


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long finished requests are kept, in seconds by state; 0 removes at once."""

    seconds: Mapping[State, float]

    @classmethod
    def of(cls, settings: ControllerSettings) -> Self:
        """Return the retention that is configured in the settings."""
        return cls(
            seconds={
                State.COMPLETED: settings.retain_completed,
                State.SKIP: settings.retain_skip,
                State.FAILED: settings.retain_failed,
            }
        )

    def remove_after(self, state: State, now: datetime) -> str:
        """Return the value for `RequestStatus.remove_after`.

        It is a whole minute, so that one call removes many requests, and the current second for a
        retention of 0.
        """
        keep = self.seconds.get(state, 0.0)
        if keep <= 0:
            return second(now)
        return second((now + timedelta(seconds=keep, minutes=1)).replace(second=0))


def second(moment: datetime) -> str:
    """Return a time cut to the second, in a form that sorts."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def identity(target: TargetStatus) -> tuple[str, str, str, str, str]:
    """Return the key of a result's target, equal for results at the same target."""
    ref = target.ref
    return ref.api_version, ref.kind, ref.namespace, ref.name, target.subresource


def merge_targets(
    before: Iterable[TargetStatus], after: Iterable[TargetStatus]
) -> tuple[TargetStatus, ...]:
    """Return the results, with those of the newer attempt in place of older ones."""
    merged = {identity(item): item for item in before}
    for item in after:
        older = merged.get(identity(item))
        if older is None:
            merged[identity(item)] = item
        elif (older.outcome, item.outcome) == (Outcome.PATCHED, Outcome.UNCHANGED):
            merged[identity(item)] = replace(older, attempts=older.attempts + item.attempts)
        else:
            merged[identity(item)] = replace(item, attempts=older.attempts + item.attempts)
    return tuple(merged.values())


def count(targets: Iterable[TargetStatus]) -> Counts:
    """Return how many targets had which outcome."""
    by_outcome = dict.fromkeys(Outcome, 0)
    for item in targets:
        by_outcome[item.outcome] += 1
    return Counts(
        patched=sum(by_outcome[outcome] for outcome in CHANGES),
        unchanged=by_outcome[Outcome.UNCHANGED],
        skipped=by_outcome[Outcome.SKIPPED],
        failed=sum(n for outcome, n in by_outcome.items() if outcome not in SUCCESSES),
    )


def recount(status: RequestStatus, targets: Iterable[TargetStatus]) -> Counts:
    """Return the counts of all results so far, of which a status lists only a part.

    A patched target that the status does not list was evaluated again, and is unchanged since.
    """
    targets = tuple(targets)
    counts, listed = count(targets), {identity(item) for item in status.targets}
    again = sum(
        item.outcome is Outcome.UNCHANGED and identity(item) not in listed for item in targets
    )
    unlisted = min(again, max(0, status.counts.patched - count(status.targets).patched))
    return replace(
        counts,
        patched=max(counts.patched + unlisted, status.counts.patched),
        unchanged=counts.unchanged - unlisted,
    )


def shorten(targets: Iterable[TargetStatus]) -> tuple[TargetStatus, ...]:
    """Return the targets for a status, up to `MAX_TARGETS`: those without success first.

    Denied ones come before the others, because the number of their attempts is limited.
    """
    ordered = sorted(
        targets, key=lambda item: (item.outcome in SUCCESSES, item.outcome is not Outcome.DENIED)
    )
    return tuple(
        replace(item, message=item.message[:MAX_MESSAGE]) for item in ordered[:MAX_TARGETS]
    )


def advance(
    status: RequestStatus,
    disposition: Disposition,
    *,
    now: datetime,
    retention: Retention,
    targets: tuple[TargetStatus, ...] | None = None,
    counts: Counts | None = None,
    sweep: SweepProgress | None = None,
) -> RequestStatus:
    """Return the status that follows one attempt; a final status is returned unchanged.

    Args:
        status: The status that the attempt started from.
        targets: All results so far, from `merge_targets`; None where the attempt did not reach
            the targets, so that earlier results stay.
        counts: The counts, where ``targets`` is only a part of the results.
    """
    if status.state in FINAL:
        return status
    base = replace(
        status,
        attempts=status.attempts + (not isinstance(disposition, Defer)),
        next_attempt=None,
        missing_permission="",
        interruptions=_interruptions(status, disposition),
        sweep=sweep,
    )
    if targets is not None:
        base = replace(base, targets=shorten(targets), counts=recount(status, targets))
    if counts is not None:
        base = replace(base, counts=counts)
    state, reason, message = State.COMPLETED, Reason.APPLIED, disposition.message
    match disposition:
        case Retry() if base.interruptions >= MOST_INTERRUPTIONS:
            state, reason = State.FAILED, Reason.INTERRUPTED
            message += f"; this ended {MOST_INTERRUPTIONS} attempts in a row, so no other follows"
        case Retry():
            return replace(
                base,
                reason=disposition.reason,
                message=message[:MAX_MESSAGE],
                next_attempt=now + timedelta(seconds=disposition.retry_after),
                missing_permission=disposition.missing_permission,
            )
        case Defer(reason=reason, until=until):
            return replace(base, reason=reason, message=message[:MAX_MESSAGE], next_attempt=until)
        case Done():
            pass
        case Skip(reason=reason):
            state = State.SKIP
        case Fail(reason=reason):
            state = State.FAILED
    return replace(
        base,
        state=state,
        reason=reason,
        message=message[:MAX_MESSAGE],
        finished=now,
        remove_after=retention.remove_after(state, now),
    )


def begun(status: RequestStatus, *, alone: bool) -> RequestStatus:
    """Return the status that notes an attempt before it begins.

    Args:
        status: The stored status, without such a note.
        alone: No other request is in work: if the process ends, this one was the cause.
    """
    times = status.interruptions
    return replace(status, interruptions=times + 1 if alone else max(times, 1))


def _interruptions(status: RequestStatus, disposition: Disposition) -> int:
    match disposition:
        case Defer():
            return status.interruptions
        case Retry(interrupted=True):
            return status.interruptions + 1
        case _:
            return 0


def reopen(status: RequestStatus, ended_by: str) -> RequestStatus:
    """Return the status that continues a request which another client made final.

    Args:
        status: The stored status; its results at targets stay.
        ended_by: The field manager that set the final state.
    """
    message = (
        f"{ended_by} set the state {status.state}, which was taken back: the work continues;"
        " to cancel it, delete the request"
    )
    return replace(
        status,
        state=State.PENDING,
        reason=Reason.TAKEN_BACK,
        message=message,
        next_attempt=None,
        finished=None,
        remove_after="",
    )
