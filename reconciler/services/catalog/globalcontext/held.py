"""One global entry: its data, its projections, and whether rules may read it."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from reconciler.api.globalcontext import EntryStatus
from reconciler.api.meta import Object
from reconciler.errors import EvaluationError, Interrupted, NotReady
from reconciler.requests.redaction import said
from reconciler.services.catalog.globalcontext.projections import Projections
from reconciler.services.catalog.globalcontext.sources import UNREAD, Source

_UNEVALUATED = "its projections are not evaluated yet"


@dataclass(slots=True, kw_only=True)
class Held:
    """One generation of an entry.

    Attributes:
        source: Where its data comes from, None if the entry cannot be compiled.
        confidential: The data may contain Secrets, so no message quotes it.
        fault: An error that is not about the data, or empty.
        since: Monotonic time at which this generation was first kept.
        was_ready: Whether rules could read it at the last check.
        written: Monotonic time of the last write of its status.
    """

    name: str
    stored: Object
    source: Source | None
    projections: Projections | None = None
    confidential: bool = False
    fault: str = ""
    since: float
    was_ready: bool = False
    written: float = float("-inf")
    _broken: str = ""
    _said: str = ""
    _looked_at: int = -1
    _keeping: asyncio.Task[None] | None = None
    _looking: asyncio.Task[None] | None = None

    def on_stored(self, entry: Object) -> None:
        """Replace the stored object by a newer version of the same generation."""
        self.stored = entry

    def turns_ready(self, *, ready: bool) -> bool:
        """Record whether rules can read the entry; return whether they could not before."""
        was, self.was_ready = self.was_ready, ready
        return ready and not was

    def turns_to(self, problem: str) -> bool:
        """Record the current problem (empty for none); return whether it changed."""
        before, self._said = self._said, problem
        return before != problem

    def note_write(self, now: float) -> None:
        """Record when the status was written, or a later time to postpone the next write."""
        self.written = now

    @property
    def identity(self) -> tuple[str, int]:
        """Return the uid and generation, which change with the spec or a new object."""
        meta = self.stored["metadata"]
        return str(meta.get("uid", "")), int(meta.get("generation", 0))

    @property
    def beginning(self) -> bool:
        """Return whether it is still undecided, but soon known, if rules can read the entry."""
        return self.problem() in {UNREAD, _UNEVALUATED}

    @property
    def looking(self) -> asyncio.Task[None] | None:
        """Return the running task that checks the projections, None if there is none."""
        return None if self._looking is None or self._looking.done() else self._looking

    def problem(self) -> str:
        """Return why rules cannot read the entry, empty if they can.

        All projections are evaluated once at the beginning, so that a broken one is reported
        before a rule needs it, and later only while one is known to fail. This call starts the
        evaluation in a task and does not wait for it.
        """
        if self.fault or self.source is None:
            return self.fault
        if self.source.problem or self.projections is None:
            return self.source.problem
        if self.looking is None and self._due(self.source, self.projections):
            self._looking = self._begin(self._look(self.source, self.projections))
        return _UNEVALUATED if self._looked_at < 0 and not self._broken else self._broken

    async def read(self, projection: str) -> Any:
        """Return the data, or a projection of it.

        Raises:
            NotReady: The entry cannot be read now, or has no such projection.
        """
        problem = self.problem()
        if self.looking is not None:
            # Cancelling one waiting caller must not cancel the task for the others.
            await asyncio.wait([self.looking])
            problem = self.problem()
        if problem or self.source is None:
            raise not_ready(self.name, problem)
        if not projection:
            return self.source.data()
        value = await self._part(projection)
        if problem := self.problem():
            raise not_ready(self.name, problem)
        return value

    def begin(self) -> None:
        """Start the task that keeps the data up to date."""
        if self.source is not None:
            self._keeping = self._begin(self.source.run())

    def close(self) -> tuple[asyncio.Task[None], ...]:
        """Cancel all tasks of the entry and return them."""
        self.fault = self.fault or "it was changed or deleted"
        begun = (task for task in (self._keeping, self._looking) if task is not None)
        ending = (*begun, *(() if self.projections is None else self.projections.close()))
        for task in ending:
            task.cancel()
        return ending

    def status(self) -> EntryStatus:
        """Return the status of the entry."""
        problem = self.problem()
        return EntryStatus(
            problem=problem,
            refreshed=None if problem or self.source is None else self.source.refreshed,
            generation=self.identity[1],
        )

    def _due(self, source: Source, projections: Projections) -> bool:
        if self._looked_at < 0:
            return True
        return bool(self._broken) and (self._looked_at != source.revision or projections.due)

    async def _look(self, source: Source, projections: Projections) -> None:
        revision, broken = source.revision, ""
        for name in projections.expressions:
            try:
                await projections.value(name)
            except (EvaluationError, Interrupted) as error:
                broken = self._failed(name, error)
                break
        self._broken, self._looked_at = broken, revision

    async def _part(self, name: str) -> Any:
        parts = self.projections
        if parts is None or name not in parts.expressions:
            known = ", ".join(sorted(parts.expressions)) if parts is not None else "none"
            raise NotReady(
                f"GlobalContextEntry {self.name} has no projection {name} (it has {known})"
            )
        try:
            return await parts.value(name)
        except (EvaluationError, Interrupted) as error:
            self._broken, self._looked_at = self._failed(name, error), -1
            raise not_ready(self.name, self._broken) from error

    def _failed(self, projection: str, error: EvaluationError | Interrupted) -> str:
        return f"projection {projection}: {said(error, confidential=self.confidential)}"

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=f"entry {self.name}")
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        self.fault = f"kube-retrofit failed on it ({type(error).__name__}); see its log"
        task.get_loop().call_exception_handler(
            {"message": f"{task.get_name()} failed", "exception": error}
        )


def not_ready(name: str, problem: str) -> NotReady:
    """Return the error for an entry that cannot be read now."""
    return NotReady(f"GlobalContextEntry {name} is not ready: {problem}")
