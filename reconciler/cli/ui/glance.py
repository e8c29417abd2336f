"""A cache of the board, so that many open browsers cause one read of the cluster."""

import asyncio
from dataclasses import dataclass, field

from reconciler.cli.work.board import Board, rates
from reconciler.cli.work.look import look_at
from reconciler.cli.work.place import Workplace

FRESH = 1.0
"""Seconds for which a snapshot is reused; policies' figures are not written more often."""


@dataclass(slots=True)
class Glance:
    """The last snapshot of all policies, and their rates since the snapshot before it."""

    place: Workplace
    _board: Board | None = None
    _rates: dict[str, float] | None = None
    _taken: float = 0.0
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def now(self) -> tuple[Board, dict[str, float] | None]:
        """Return a snapshot at most a second old, and the rates, which the first one lacks.

        Raises:
            ClusterError: The cluster does not answer.
            InvalidSetting: kube-retrofit is not installed, or listing policies is forbidden.
        """
        async with self._lock:
            clock = self.place.live.clock
            if self._board is None or clock.monotonic() - self._taken >= FRESH:
                found = await look_at(self.place)
                self._rates = rates(self._board, found)
                self._board, self._taken = found, clock.monotonic()
            return self._board, self._rates
