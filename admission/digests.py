"""Policies that a webhook was registered for and that this replica has not seen.

The path of a webhook contains a digest of the policies that it was registered for. A replica with
other policies reads them before it answers. Any client that reaches the port can invent such
paths, so one read serves all requests that wait for it, and reads have a minimum interval.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from reconciler.clock import Clock
from reconciler.recent import Recent

_FORM: Final = re.compile(r"[0-9a-f]{16}")
_PAUSE: Final = 0.5
"""Seconds between the starts of two reads."""


@dataclass(slots=True, kw_only=True)
class Digests:
    """The digests for which one replica has read the policies.

    Attributes:
        read_policies: Reads all stored policies into the index.
    """

    read_policies: Callable[[], Awaitable[None]]
    clock: Clock
    _learned: Recent[str, None] = field(default_factory=Recent)
    _next: asyncio.Task[None] | None = None
    _current: asyncio.Task[None] | None = None
    _begun: float = float("-inf")

    def knows(self, digest: str, known: str) -> bool:
        """Return whether `learn` would return at once."""
        return digest in {"", known} or digest in self._learned or not _FORM.fullmatch(digest)

    async def learn(self, digest: str, known: str) -> None:
        """Return when the policies of a registration are known, as far as possible.

        Args:
            digest: Digest of the registration; empty if the path has none.
            known: Digest of the policies in the index.

        Raises:
            ClusterError: The policies could not be read.
        """
        if self.knows(digest, known):
            return
        if self._next is None:
            self._next = asyncio.create_task(self._read(self._current), name="read policies")
            # All callers that wait for the task may be cancelled by the time it fails.
            self._next.add_done_callback(_retrieve)
        await asyncio.shield(self._next)
        # The stored policies may be newer than the registration, and so never match its digest.
        self._learned.keep(digest, None)

    async def _read(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        await asyncio.sleep(max(0.0, self._begun + _PAUSE - self.clock.monotonic()))
        # A registration from now on may be newer than this read, so it needs another one.
        self._current, self._next = self._next, None
        self._begun = self.clock.monotonic()
        await self.read_policies()


def _retrieve(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()
