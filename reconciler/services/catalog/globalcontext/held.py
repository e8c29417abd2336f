"""One entry: its data, the parts of it that have names, and whether rules may read it."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from reconciler.api.globalcontext import EntryStatus
from reconciler.api.meta import Object
from reconciler.errors import EvaluationError, Interrupted, NotReady
from reconciler.requests.redaction import said
from reconciler.services.catalog.globalcontext.projections import Projections
from reconciler.services.catalog.globalcontext.sources import Source

_UNEVALUATED = "its projections are not evaluated yet"


@dataclass(slots=True, kw_only=True)
class Held:
    """An entry in one generation.

    Attributes:
        stored: The entry as stored last.
        source: Where its data comes from; None where the entry cannot be compiled.
        projections: Of the data; None where there are none.
        confidential: Its data may hold Secrets, so that no message quotes it.
        fault: What is wrong beside the data.
        since: Monotonic time at which it began.
        was_ready: Whether rules could read it when somebody looked last.
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
        """Take in the entry as it is stored now, in the same generation."""
        self.stored = entry

    def turns_ready(self, *, ready: bool) -> bool:
        """Return whether rules can read it now and could not when somebody looked last."""
        was, self.was_ready = self.was_ready, ready
        return ready and not was

    def turns_to(self, problem: str) -> bool:
        """Return whether this is another problem than the one that was said last; empty: none."""
        before, self._said = self._said, problem
        return before != problem

    def note_write(self, now: float) -> None:
        """Take in when its status was written, or is not to be written before."""
        self.written = now

    @property
    def identity(self) -> tuple[str, int]:
        """Return what another spec or another entry of the same name would change."""
        meta = self.stored["metadata"]
        return str(meta.get("uid", "")), int(meta.get("generation", 0))

    @property
    def beginning(self) -> bool:
        """Return whether it will be known soon if rules can read it."""
        if self.fault or self.source is None:
            return False
        return self.source.beginning or self.problem() == _UNEVALUATED

    @property
    def looking(self) -> asyncio.Task[None] | None:
        """Return what looks at the projections now, None where nothing does."""
        return None if self._looking is None or self._looking.done() else self._looking

    def problem(self) -> str:
        """Return why rules cannot read it, empty where they can.

        All projections are evaluated once at the beginning, so that one which never works is
        reported before a rule needs it; later only while one is known to fail. What takes long
        goes on when this returns.
        """
        if self.fault or self.source is None:
            return self.fault
        if self.source.problem or self.projections is None:
            return self.source.problem
        if self.looking is None and self._due(self.source, self.projections):
            self._looking = self._begin(self._look(self.source, self.projections))
        return _UNEVALUATED if self._looked_at < 0 and not self._broken else self._broken

    async def read(self, projection: str) -> Any:
        """Return the data, or a part of it.

        Raises:
            NotReady: It cannot be read now, or has no such part.
        """
        problem = self.problem()
        if self.looking is not None:
            # Whoever stops waiting stops nobody else.
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
        """Keep its data up to date from now on."""
        if self.source is not None:
            self._keeping = self._begin(self.source.run())

    def close(self) -> tuple[asyncio.Task[None], ...]:
        """End what is done for it; return what is ending."""
        self.fault = self.fault or "it was changed or deleted"
        begun = (task for task in (self._keeping, self._looking) if task is not None)
        ending = (*begun, *(() if self.projections is None else self.projections.close()))
        for task in ending:
            task.cancel()
        return ending

    def status(self) -> EntryStatus:
        """Return what to tell about it."""
        problem = self.problem()
        return EntryStatus(
            problem=problem,
            refreshed=None if problem or self.source is None else self.source.refreshed,
            generation=self.identity[1],
        )

    def _due(self, source: Source, projections: Projections) -> bool:
        """Return whether the projections have to be looked at."""
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
        self.fault = f"kube-retrofit failed on it ({type(error).__name__}); its log says more"
        task.get_loop().call_exception_handler(
            {"message": f"{task.get_name()} failed", "exception": error}
        )


def not_ready(name: str, problem: str) -> NotReady:
    """Return the error of an entry that cannot be read now."""
    return NotReady(f"GlobalContextEntry {name} is not ready: {problem}")
