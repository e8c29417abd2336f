"""Reasons for a sweep to wait or stop that its triggers share, which may be thousands."""

from collections.abc import Iterable
from typing import Final

from reconciler.api.updaterequest import Outcome, Reason
from reconciler.engine.program import Phase, Program
from reconciler.requests.lifecycle import Defer, Retry
from reconciler.services.processing.attempt import Attempt
from reconciler.services.sweeping.listing import ListScope
from reconciler.services.sweeping.sweep_state import SweepState

_FAILURES: Final = 10
_PASSING: Final = frozenset({Reason.FORBIDDEN, Reason.FAILED})
"""What ends without a change of rule or object: a right is missing, no server answers."""


def allowed_failures(program: Program) -> int:
    """Return how many triggers of a sweep may fail where the policy sets no limit, 0 for all.

    A rule that was written for objects at their creation may well not work on existing ones.
    """
    return _FAILURES if Phase.EXISTING in program.phases else 0


def is_unproven(state: SweepState, program: Program, place: ListScope) -> bool:
    """Return whether no change of an object of this kind by the rule was accepted yet.

    Some fields can be set only when an object is created. So one object of a kind is tried first.
    """
    return Phase.EXISTING in program.phases and state.proven.isdisjoint(("", place.kind.resource))


def prove(state: SweepState, place: ListScope, attempts: Iterable[Attempt | None]) -> Defer | None:
    """Record the result for the first object of a kind; return why no other one is tried."""
    for attempt in attempts:
        for target in () if attempt is None else attempt.targets:
            if target.outcome is Outcome.PATCHED:
                state.proven.add(place.kind.resource)
            elif target.outcome is Outcome.INVALID:
                message = (
                    f"no {place.kind.kind} is changed, because the API server refused the change"
                    f" of the first one, {target.ref}: {target.message}; correct the rule, or let"
                    " it match only objects that may be changed after their creation"
                )
                return Defer(reason=Reason.IMMUTABLE, message=message)
    return None


def common_wait(attempts: Iterable[Attempt | None], reason: Reason) -> Retry | None:
    """Return the retry of the first trigger if all triggers wait for the given reason."""
    ends = [attempt.disposition for attempt in attempts if attempt is not None]
    waiting = [end for end in ends if isinstance(end, Retry) and end.reason == reason]
    return waiting[0] if waiting and len(waiting) == len(ends) else None


def before_passing(attempts: list[Attempt | None]) -> tuple[list[Attempt | None], Retry | None]:
    """Return the attempts before the first one that waits for what may pass, and its retry."""
    for index, attempt in enumerate(attempts):
        end = None if attempt is None else attempt.disposition
        if isinstance(end, Retry) and end.reason in _PASSING:
            return attempts[:index], end
    return attempts, None
