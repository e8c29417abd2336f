"""The state of a running sweep: its progress and counts, and their writes to its status."""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from reconciler.api.meta import Object, PolicyRef, ref_of
from reconciler.api.updaterequest import Counts, SweepProgress, UpdateRequest
from reconciler.config import render_duration
from reconciler.errors import Conflict, NotFound
from reconciler.requests.lifecycle import Done, count
from reconciler.services.ports.requests import Requests
from reconciler.services.processing.attempt import Attempt
from reconciler.services.sweeping.side_by_side import marker_of

_REPORT_EVERY = 0.5
"""Seconds between two writes of the progress."""


@dataclass(slots=True)
class SweepState:
    """The state of a sweep, changed in place while the sweep runs.

    Attributes:
        request: The request as it was last stored.
        begun: Monotonic time at which this run began, with `begun_at` triggers done.
        reported: Monotonic time of the last write.
        proven: Resources of which the API server accepted a change; an empty name for all.
        unstored: Markers of the triggers that were done since the last write.
    """

    progress: SweepProgress
    counts: Counts
    request: UpdateRequest
    begun: float
    begun_at: int
    reported: float = 0.0
    proven: set[str] = field(default_factory=set)
    unstored: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, request: UpdateRequest, now: float) -> "SweepState":
        """Return the state of a sweep that continues now."""
        progress, counts = request.status.sweep or SweepProgress(), request.status.counts
        # An earlier run changed objects of the kind in the cursor, or canaries of all kinds.
        proven = {progress.cursor.partition("@")[0]} if counts.patched else set[str]()
        return cls(progress, counts, request, begun=now, begun_at=progress.done, proven=proven)

    @property
    def policy(self) -> PolicyRef:
        """Return the policy of the sweep."""
        return self.request.spec.policy

    @property
    def diverted(self) -> bool:
        """Return whether it stands for triggers that were not recorded one by one."""
        return self.request.spec.sequence > 0

    def marker(self, trigger: Object) -> str:
        """Return the name that stands for a trigger in the markers on its targets."""
        return marker_of(self.request, self.progress.generation, ref_of(trigger).uid)

    def advance(self, **changes: Any) -> None:
        """Change the progress, which is written later."""
        self.progress = replace(self.progress, **changes)

    def restart(self, now: float) -> None:
        """Measure the speed again, from the first trigger on."""
        self.begun, self.begun_at = now, 0

    def start_over(self, now: float) -> None:
        """Begin again, as if no trigger was done."""
        self.progress, self.counts = SweepProgress(), Counts()
        self.proven.clear()
        self.restart(now)

    async def reread(self, requests: Requests) -> None:
        """Read the request as it is stored now.

        Raises:
            NotFound: It was deleted, even if another request has its name now.
        """
        stored = await requests.get(self.request.name)
        if stored.uid != self.request.uid:
            raise NotFound(f"{stored.name} was deleted and created again")
        self.request = stored

    def add(self, attempts: Iterable[Attempt | None]) -> None:
        """Add the results at the targets of triggers to the counts."""
        for attempt in attempts:
            if attempt is None:
                continue
            more = attempt.counts or count(attempt.targets)
            self.counts = Counts(
                patched=self.counts.patched + more.patched,
                unchanged=self.counts.unchanged + more.unchanged,
                skipped=self.counts.skipped + more.skipped,
                failed=self.counts.failed + more.failed,
            )

    async def report(self, requests: Requests, now: float) -> list[str]:
        """Write the progress, unless it was written just now; return the markers it covers."""
        if now - self.reported < _REPORT_EVERY:
            return []
        self.reported = now
        self.progress = replace(self.progress, eta=self._eta(now))
        status = replace(
            self.request.status,
            # The reason why it last stopped no longer holds.
            reason="",
            message="",
            next_attempt=None,
            missing_permission="",
            counts=self.counts,
            sweep=self.progress,
        )
        try:
            self.request = await requests.write_status(self.request, status)
        except Conflict:
            if not self.diverted:
                raise
            # A trigger raised the sequence meanwhile. What was not written now is written later.
            await self.reread(requests)
            with contextlib.suppress(Conflict):
                self.request = await requests.write_status(self.request, status)
            return []
        covered, self.unstored = self.unstored, []
        return covered

    def _eta(self, now: float) -> str:
        rate = (self.progress.done - self.begun_at) / max(now - self.begun, 0.001)
        left = max(0, self.progress.total - self.progress.done)
        return render_duration(max(1, round(left / rate))) if rate > 0 and left else ""


def summary_of(progress: SweepProgress) -> Done:
    """Return the disposition of a sweep that has worked through all triggers."""
    if not progress.done:
        return Done(message="no existing object matches the rule")
    if progress.failed:
        return Done(
            message=f"{progress.failed} of {progress.done} triggers continue as separate requests"
        )
    return Done()
