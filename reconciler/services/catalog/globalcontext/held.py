"""One entry: its data, the parts of it that have names, and whether rules may read it."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.api.globalcontext import EntryStatus
from reconciler.api.meta import Object
from reconciler.errors import EvaluationError, NotReady
from reconciler.languages.jmespath import Expression
from reconciler.requests.redaction import said
from reconciler.services.catalog.globalcontext.sources import Source


@dataclass(slots=True, kw_only=True)
class Held:
    """An entry in one generation.

    Attributes:
        stored: The entry as stored last.
        source: Where its data comes from; None where the entry cannot be compiled.
        confidential: Its data may hold Secrets, so that no message quotes it.
        fault: What is wrong beside the data.
        task: Keeps the data up to date.
        since: Monotonic time at which it began.
        was_ready: Whether rules could read it when somebody looked last.
        written: Monotonic time of the last write of its status.
    """

    name: str
    stored: Object
    source: Source | None
    projections: Mapping[str, Expression] = field(default_factory=dict)
    confidential: bool = False
    fault: str = ""
    task: asyncio.Task[None] | None = None
    since: float
    was_ready: bool = False
    written: float = float("-inf")
    _parts: dict[str, tuple[int, Any]] = field(default_factory=dict)
    _broken: str = ""
    _looked_at: int = -1

    @property
    def identity(self) -> tuple[str, int]:
        """Return what another spec or another entry of the same name would change."""
        meta = self.stored["metadata"]
        return str(meta.get("uid", "")), int(meta.get("generation", 0))

    @property
    def beginning(self) -> bool:
        """Return whether it will be known soon if rules can read it."""
        return not self.fault and self.source is not None and self.source.beginning

    def problem(self) -> str:
        """Return why rules cannot read it, empty where they can.

        All projections are evaluated once at the beginning, so that one which never works is told
        before a rule needs it; later only while one is known to fail.
        """
        if self.fault or self.source is None:
            return self.fault
        if self.source.problem:
            return self.source.problem
        first = self._looked_at < 0
        if first or (self._broken and self._looked_at != self.source.revision):
            self._look_at_parts(self.source)
        return self._broken

    def read(self, projection: str) -> Any:
        """Return the data, or a part of it.

        Raises:
            NotReady: It cannot be read now, or has no such part.
        """
        problem = self.problem()
        if problem or self.source is None:
            raise NotReady(f"GlobalContextEntry {self.name} is not ready: {problem}")
        if not projection:
            return self.source.data()
        if projection not in self.projections:
            known = ", ".join(sorted(self.projections)) or "none"
            raise NotReady(
                f"GlobalContextEntry {self.name} has no projection {projection} (it has {known})"
            )
        try:
            return self._part(self.source, projection)
        except EvaluationError as error:
            self._broken, self._looked_at = self._failed(projection, error), -1
            raise NotReady(
                f"GlobalContextEntry {self.name} is not ready: {self._broken}"
            ) from error

    def status(self) -> EntryStatus:
        """Return what to tell about it."""
        problem = self.problem()
        return EntryStatus(
            problem=problem,
            refreshed=None if problem or self.source is None else self.source.refreshed,
            generation=self.identity[1],
        )

    def _look_at_parts(self, source: Source) -> None:
        self._broken, self._looked_at = "", source.revision
        for name in self.projections:
            try:
                self._part(source, name)
            except EvaluationError as error:
                self._broken = self._failed(name, error)
                return

    def _failed(self, projection: str, error: EvaluationError) -> str:
        return f"projection {projection}: {said(error, confidential=self.confidential)}"

    def _part(self, source: Source, name: str) -> Any:
        revision, value = self._parts.get(name, (-1, None))
        if revision != source.revision:
            value = self.projections[name].search(source.data())
            self._parts[name] = source.revision, value
        return value
