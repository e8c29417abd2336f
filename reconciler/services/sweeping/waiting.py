"""Waits that all triggers of a chunk share: the sweep waits, instead of a request for each."""

from collections.abc import Iterable

from reconciler.api.updaterequest import Reason
from reconciler.errors import NotReady
from reconciler.requests.lifecycle import Retry
from reconciler.services.processing.attempt import Attempt


def check_entries(attempts: Iterable[Attempt | None]) -> None:
    """Raise `NotReady` if every trigger waits for a GlobalContextEntry: then the sweep waits."""
    waits = common_wait(attempts, Reason.ENTRY_NOT_READY)
    if waits is not None:
        raise NotReady(waits.message)


def common_wait(attempts: Iterable[Attempt | None], reason: Reason) -> Retry | None:
    """Return the retry of the first trigger if all triggers wait for the given reason."""
    ends = [attempt.disposition for attempt in attempts if attempt is not None]
    waiting = [end for end in ends if isinstance(end, Retry) and end.reason == reason]
    return waiting[0] if waiting and len(waiting) == len(ends) else None
