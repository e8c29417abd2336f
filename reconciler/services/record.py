"""Recording: every draft stands in the cluster before the admission request is answered."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from reconciler.errors import AlreadyExists, ClusterError
from reconciler.requests.draft import Draft
from reconciler.services.ports import Requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Unrecorded:
    """A draft that is not known to be stored.

    Attributes:
        reason: One word for metrics: ``timeout``, or the fault's name in lower case.
        message: What the API server said.
    """

    draft: Draft
    reason: str
    message: str


async def record(
    drafts: Sequence[Draft], requests: Requests, *, budget_seconds: float
) -> tuple[Unrecorded, ...]:
    """Store drafts side by side and wait for all of them; return those that failed.

    A draft that is stored already is a success, and so a retry of the API server is. What is
    not stored when the budget ends counts as failed; it may still have arrived, which does no
    harm: processing asks whether the triggering request was stored.
    """
    if not drafts:
        return ()
    results = await asyncio.gather(*(_store(item, requests, budget_seconds) for item in drafts))
    return tuple(item for item in results if item is not None)


async def _store(draft: Draft, requests: Requests, budget_seconds: float) -> Unrecorded | None:
    try:
        async with asyncio.timeout(budget_seconds):
            # First the Secret: a request must never point to one that does not exist.
            if draft.secret is not None:
                name = draft.spec.recorded_secret
                with contextlib.suppress(AlreadyExists):
                    await requests.create_recorded(name, draft.labels, draft.secret)
            await requests.create(draft.name, draft.labels, draft.spec)
    except TimeoutError:
        message = f"the API server did not store it within {budget_seconds:g} s"
        return Unrecorded(draft=draft, reason="timeout", message=message)
    except ClusterError as error:
        return Unrecorded(draft=draft, reason=fault(error), message=str(error))
    return None


def fault(error: ClusterError) -> str:
    """Return the fault of an error as one word for metrics."""
    return type(error).__name__.lower()
