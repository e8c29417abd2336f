"""Policies that a webhook was registered for and this replica has not heard of.

The address of a webhook says for which policies it was registered. A replica that knows others
reads them before it answers. Whoever reaches the port can invent such addresses, so one read
serves all that wait for it, and reads have a pause between them.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from reconciler.clock import Clock

_FORM: Final = re.compile(r"[0-9a-f]{16}")
_REMEMBERED: Final = 10_000
_PAUSE: Final = 0.5
"""Seconds between the beginnings of two reads."""


@dataclass(slots=True, kw_only=True)
class Digests:
    """What one replica has read for.

    Attributes:
        read_policies: Takes all stored policies into the index.
    """

    read_policies: Callable[[], Awaitable[None]]
    clock: Clock
    _learned: OrderedDict[str, None] = field(default_factory=OrderedDict)
    _next: asyncio.Task[None] | None = None
    _current: asyncio.Task[None] | None = None
    _begun: float = float("-inf")

    def knows(self, digest: str, known: str) -> bool:
        """Return whether `learn` returns at once."""
        return digest in {"", known} or digest in self._learned or not _FORM.fullmatch(digest)

    async def learn(self, digest: str, known: str) -> None:
        """Return when the policies of a registration are known, as far as they can be.

        Args:
            digest: Of the registration; empty where the address does not tell.
            known: That of the policies in the index.

        Raises:
            ClusterError: They could not be read.
        """
        if self.knows(digest, known):
            return
        if self._next is None:
            self._next = asyncio.create_task(self._read(self._current), name="read policies")
            # All who wait for it may have given up by the time it fails.
            self._next.add_done_callback(_retrieve)
        await asyncio.shield(self._next)
        # What was read may be newer than the registration, and differ from it for good.
        self._learned[digest] = None
        if len(self._learned) > _REMEMBERED:
            self._learned.popitem(last=False)

    async def _read(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        await asyncio.sleep(max(0.0, self._begun + _PAUSE - self.clock.monotonic()))
        # From here on a registration may be newer than what is read.
        self._current, self._next = self._next, None
        self._begun = self.clock.monotonic()
        await self.read_policies()


def _retrieve(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()
