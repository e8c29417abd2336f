"""The contribution of one request to the figures of its policy."""

from reconciler.api.policystatus import Figures
from reconciler.api.updaterequest import Reason, RequestSpec, RequestStatus, State, SweepProgress

FIRED_NOTHING = frozenset({Reason.NO_MATCH, Reason.TRIGGER_GONE})
"""Reasons of a trigger that fired no rule in the end; other skips do not count as triggers."""


def share(spec: RequestSpec, status: RequestStatus) -> Figures:
    """Return the results of a request so far.

    A trigger that failed in a sweep gets a request of its own and is counted there. A target that
    fails counts when its request ends, because until then it is retried.
    """
    counts = status.counts
    done = {
        "patched": counts.patched,
        "unchanged": counts.unchanged,
        "skipped": counts.skipped,
    }
    if spec.sweep:
        sweep = status.sweep or SweepProgress()
        fired = max(0, sweep.matched - sweep.failed)
        return Figures(triggers=fired, existing=sweep.done, **done)
    match status.state:
        case State.COMPLETED:
            return Figures(triggers=1, **done)
        case State.FAILED:
            return Figures(triggers=1, failed=max(1, counts.failed), **done)
        case State.SKIP if status.reason in FIRED_NOTHING:
            return Figures(skipped_triggers=1, **done)
        case _:
            return Figures(**done)
