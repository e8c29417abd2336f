"""Triggers that are not recorded one by one: each raises the sequence of an aggregate request.

A raise stands for all triggers that arrived before it began. So one write serves many admission
requests at the same time, and each of them is answered only when that write is stored.
"""

import asyncio
from dataclasses import dataclass, field

from reconciler.api.updaterequest import UpdateRequest
from reconciler.clock import Clock
from reconciler.engine.program import CompiledPolicy, Program
from reconciler.errors import Conflict, NotFound
from reconciler.requests.background_drafts import RequestDraft, aggregate_draft
from reconciler.requests.lifecycle import FINAL
from reconciler.requests.naming import aggregate_name, next_aggregate_name
from reconciler.services.ports.requests import Requests

_PAUSE = 0.05
"""Seconds between two writes of one request, so that the leader can write it in between."""
_KEPT = 300.0
"""Seconds for which the last write of a request is remembered; its policy may be deleted."""


@dataclass(slots=True)
class _Line:
    """The writes of the aggregate request of one rule.

    Attributes:
        stored: The request as it was last stored; None where that is not known.
        next: The write that has not begun.
        current: The write that has begun.
        begun: Monotonic time at which the last write began.
    """

    stored: UpdateRequest | None = None
    next: asyncio.Task[None] | None = None
    current: asyncio.Task[None] | None = None
    begun: float = float("-inf")

    def is_idle(self, since: float) -> bool:
        """Return whether no write waits, and the last one ended and began before a time."""
        ended = self.current is None or self.current.done()
        return self.next is None and ended and self.begun < since


@dataclass(frozen=True, slots=True, kw_only=True)
class Diversion:
    """Raises aggregate requests for one replica; other replicas raise the same ones."""

    requests: Requests
    clock: Clock
    _lines: dict[tuple[str, str], _Line] = field(default_factory=dict)

    async def divert(self, policy: CompiledPolicy, program: Program) -> None:
        """Wait until a raise that began after this call is stored.

        Raises:
            ClusterError: The raise could not be stored.
        """
        line = self._line((policy.uid, program.rule))
        if line.next is None:
            draft = aggregate_draft(policy, program)
            line.next = asyncio.create_task(self._write(line, draft, line.current))
            # All callers may have stopped waiting by the time it fails.
            line.next.add_done_callback(_honour)
        await asyncio.shield(line.next)

    def _line(self, key: tuple[str, str]) -> _Line:
        if key not in self._lines:
            since = self.clock.monotonic() - _KEPT
            for old in [old for old, line in self._lines.items() if line.is_idle(since)]:
                del self._lines[old]
            self._lines[key] = _Line()
        return self._lines[key]

    async def _write(
        self, line: _Line, draft: RequestDraft, before: asyncio.Task[None] | None
    ) -> None:
        if before is not None:
            await asyncio.wait({before})
        await asyncio.sleep(max(0.0, line.begun + _PAUSE - self.clock.monotonic()))
        # A trigger that arrives from here on is too late for this write.
        line.current, line.next = line.next, None
        line.begun = self.clock.monotonic()
        stored, line.stored = line.stored, None
        line.stored = await self._raise(stored, draft)

    async def _raise(self, stored: UpdateRequest | None, draft: RequestDraft) -> UpdateRequest:
        """Raise the sequence, or create the next request where the stored one is final."""
        first = name = aggregate_name(draft.spec.policy_uid, draft.spec.rule)
        while True:
            try:
                if stored is None:
                    created = await self.requests.create(name, draft.labels, draft.spec)
                    stored = await self.requests.get(name)
                    if created:
                        return stored
                if stored.status.state in FINAL:
                    name, stored = next_aggregate_name(stored.uid), None
                    continue
                return await self.requests.raise_sequence(stored)
            except Conflict:
                stored = await self._again(name if stored is None else stored.name)
            except NotFound:
                stored = None
            if stored is None:
                name = first

    async def _again(self, name: str) -> UpdateRequest | None:
        try:
            return await self.requests.get(name)
        except NotFound:
            return None


async def open_aggregate(requests: Requests, policy_uid: str, rule: str) -> str:
    """Return the name of a rule's aggregate request that is not final, empty if there is none.

    Raises:
        ClusterError: The request could not be read.
    """
    name = aggregate_name(policy_uid, rule)
    while True:
        try:
            found = await requests.get(name)
        except NotFound:
            return ""
        if found.status.state not in FINAL:
            return name
        name = next_aggregate_name(found.uid)


def _honour(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()
