"""Triggers that are not recorded one by one: each raises the sequence of its rule's order.

A raise that begins after a trigger came stands for it, and one raise for all triggers that came
before it began. So many admission requests at once are one write, and each of them is answered
only when that write is stored.
"""

import asyncio
from dataclasses import dataclass, field

from reconciler.api.updaterequest import UpdateRequest
from reconciler.clock import Clock
from reconciler.engine.program import CompiledPolicy, Program
from reconciler.errors import Conflict, NotFound
from reconciler.requests.lifecycle import FINAL
from reconciler.requests.naming import next_order_name, order_name
from reconciler.requests.orders import RequestDraft, diverted_order
from reconciler.services.ports.requests import Requests

_PAUSE = 0.05
"""Seconds between two writes of one order, which leave the leader room for its own."""


@dataclass(slots=True)
class _Line:
    """Who waits for the order of one rule.

    Attributes:
        stored: The order as it was stored last; None where that is not known.
        next: The write that has not begun.
        current: The write that has.
        begun: Monotonic time of the last one.
    """

    stored: UpdateRequest | None = None
    next: asyncio.Task[None] | None = None
    current: asyncio.Task[None] | None = None
    begun: float = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Diversion:
    """Keeps the orders of one replica; others raise the same ones."""

    requests: Requests
    clock: Clock
    _lines: dict[tuple[str, str], _Line] = field(default_factory=dict)

    async def divert(self, policy: CompiledPolicy, program: Program) -> None:
        """Return when a raise that began after this call is stored.

        Raises:
            ClusterError: It could not be stored.
        """
        line = self._lines.setdefault((policy.uid, program.rule), _Line())
        if line.next is None:
            order = diverted_order(policy, program)
            line.next = asyncio.create_task(self._write(line, order, line.current))
            # All who wait may have given up by the time it fails.
            line.next.add_done_callback(_honour)
        await asyncio.shield(line.next)

    async def _write(
        self, line: _Line, order: RequestDraft, before: asyncio.Task[None] | None
    ) -> None:
        if before is not None:
            await asyncio.wait({before})
        await asyncio.sleep(max(0.0, line.begun + _PAUSE - self.clock.monotonic()))
        # From here on a trigger that comes is too late for this write.
        line.current, line.next = line.next, None
        line.begun = self.clock.monotonic()
        stored, line.stored = line.stored, None
        line.stored = await self._raise(stored, order)

    async def _raise(self, stored: UpdateRequest | None, order: RequestDraft) -> UpdateRequest:
        """Raise the order, or make the one that comes after it where it has ended."""
        first = name = order_name(order.spec.policy_uid, order.spec.rule)
        while True:
            try:
                if stored is None:
                    created = await self.requests.create(name, order.labels, order.spec)
                    stored = await self.requests.get(name)
                    if created:
                        return stored
                if stored.status.state in FINAL:
                    name, stored = next_order_name(stored.uid), None
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


async def open_order(requests: Requests, policy_uid: str, rule: str) -> str:
    """Return the name of the order that stands for triggers of a rule now, empty where none does.

    Raises:
        ClusterError: It cannot be told.
    """
    name = order_name(policy_uid, rule)
    while True:
        try:
            found = await requests.get(name)
        except NotFound:
            return ""
        if found.status.state not in FINAL:
            return name
        name = next_order_name(found.uid)


def _honour(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()
