"""Reporting the state of each GlobalContextEntry, in its status or in the log."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from reconciler.api.globalcontext import EntryStatus, render_refresh, render_status
from reconciler.api.meta import Object
from reconciler.clock import Clock
from reconciler.errors import ClusterError, Conflict, NotFound
from reconciler.services.catalog.globalcontext.held import Held
from reconciler.services.ports.policies import Entries
from reconciler.signals import Signal

_PAUSE: Final = 2.0
_REFRESH_PAUSE: Final = 30.0
"""Seconds between two writes that only update the refresh time."""


@dataclass(slots=True, kw_only=True)
class StatusWriter:
    """Writes the statuses of entries, in the leader only.

    Attributes:
        judged: Emits an entry whose conditions change, and why rules cannot read it (empty: they
            can).
    """

    entries: Entries
    clock: Clock
    warn: Callable[[str], None]
    judged: Signal[[Object, str]] = field(default_factory=Signal)

    async def take(self, held: Held, status: EntryStatus) -> None:
        """Write the status of an entry if it changed, at a limited rate."""
        now = self.clock.monotonic()
        if now - held.written < _PAUSE:
            return
        before = held.stored.get("status") or {}
        wanted = render_status(status, before, self.clock.now())
        if wanted is None and now - held.written >= _REFRESH_PAUSE:
            wanted = _newer(render_refresh(status), before)
        if not wanted:
            return
        held.note_write(now)
        if "conditions" in wanted:
            self._judge(held, status.problem)
        try:
            held.on_stored(await self.entries.write_status(held.stored, wanted))
        except (Conflict, NotFound):
            return  # The watch will deliver the newer version.
        except ClusterError as error:
            held.note_write(now + _REFRESH_PAUSE)
            self.warn(f"GlobalContextEntry {held.name}: cannot write its status: {error}")

    def _judge(self, held: Held, problem: str) -> None:
        if problem:
            self.warn(f"GlobalContextEntry {held.name}: {problem}")
        self.judged.emit(held.stored, problem)


@dataclass(slots=True, kw_only=True)
class ProblemLog:
    """Logs why an entry cannot be read, in processes that do not write statuses.

    Attributes:
        judged: Emits an entry whose problem changed, and that problem (empty: none).
    """

    warn: Callable[[str], None]
    judged: Signal[[Object, str]] = field(default_factory=Signal)

    async def take(self, held: Held, status: EntryStatus) -> None:
        """Log the problem of an entry if it changed."""
        problem = status.problem
        if not held.turns_to(problem):
            return
        self.warn(f"GlobalContextEntry {held.name}: {problem or 'rules can read it again'}")
        self.judged.emit(held.stored, problem)


def _newer(refresh: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Return the refresh time to write, nothing if it is less than a second newer."""
    new, old = refresh.get("lastRefreshTime", ""), before.get("lastRefreshTime", "")
    if not new or not old:
        return refresh
    passed = datetime.fromisoformat(new) - datetime.fromisoformat(old)
    return refresh if passed.total_seconds() >= 1.0 else {}
