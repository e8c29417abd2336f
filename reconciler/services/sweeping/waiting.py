"""What all triggers of a chunk wait for: then the sweep waits, and not a request for each."""

from collections.abc import Iterable

from reconciler.api.updaterequest import Reason
from reconciler.errors import NotReady
from reconciler.requests.lifecycle import Retry
from reconciler.services.processing.attempt import Attempt


def check_entries(attempts: Iterable[Attempt | None]) -> None:
    """Raise where every trigger waits for a GlobalContextEntry: then one request must wait."""
    waits = common_wait(attempts, Reason.ENTRY_NOT_READY)
    if waits is not None:
        raise NotReady(waits.message)


def common_wait(attempts: Iterable[Attempt | None], reason: Reason) -> Retry | None:
    """Return what the first trigger waits for where all of them wait for that reason."""
    ends = [attempt.disposition for attempt in attempts if attempt is not None]
    waiting = [end for end in ends if isinstance(end, Retry) and end.reason == reason]
    return waiting[0] if waiting and len(waiting) == len(ends) else None
