"""Recorder of a hook: it stores events as requests before they count as seen.

A hook has one write in flight at a time. Records that arrive meanwhile share the next request, as
far as they belong together.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Final

import orjson

from reconciler.api.meta import LABEL_RECORDED
from reconciler.api.updaterequest import RequestSpec, RequestStatus, UpdateRequest
from reconciler.clock import Clock
from reconciler.hooks.contexts import Context, ContextType
from reconciler.hooks.records import (
    HookIdentity,
    Passed,
    Record,
    batches,
    compacted,
    passed,
    recordable,
    spec_of,
)
from reconciler.requests.lifecycle import FINAL
from reconciler.requests.naming import labels, recorded_name
from reconciler.services.hooks.accounts import HookAccount
from reconciler.services.jobs import WarnsOnce, repeat
from reconciler.services.ports.requests import Requests

_MOST_WAITING: Final = 2000
"""Records of one hook that are kept in memory; beyond that its watches wait."""
_WATCHED: Final = frozenset({ContextType.EVENT, ContextType.SYNCHRONIZATION})


@dataclass(slots=True, kw_only=True)
class RecorderDeps:
    """Dependencies that all recorders share.

    Attributes:
        order: Returns the next position in a queue.
        most: Bytes of JSON up to which several records share one request.
    """

    requests: Requests
    clock: Clock
    namespace: str
    order: Callable[[], int]
    stored: Callable[[UpdateRequest], Awaitable[None]]
    warn: Callable[[str], None]
    most: int = 512 * 1024


@dataclass(slots=True, kw_only=True)
class Recorder:
    """The recorder of one hook."""

    deps: RecorderDeps
    hook: HookIdentity
    account: HookAccount
    _waiting: deque[Record | Passed] = field(default_factory=deque)
    _batch: list[Record] = field(default_factory=list)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _room: asyncio.Event = field(default_factory=asyncio.Event)

    def holds(self, context: Context) -> bool:
        """Return whether a record with a context waits to be stored."""
        return any(isinstance(item, Record) and item.context == context for item in self._waiting)

    def put(self, record: Record) -> None:
        """Queue a record."""
        self._waiting.append(record)
        self._woken.set()

    async def add(self, record: Record) -> None:
        """Queue a record; return at once unless too many wait."""
        self.put(record)
        if len(self._waiting) > _MOST_WAITING:
            self._room.clear()
            await self._room.wait()

    async def stored(self) -> None:
        """Return when nothing waits to be stored."""
        while self._waiting:
            self._room.clear()
            await self._room.wait()

    def passed(self, marker: Passed) -> None:
        """Queue the progress of a watch, to be noted once the records before it are stored."""
        last = self._waiting[-1] if self._waiting else None
        if isinstance(last, Passed) and last.key == marker.key:
            self._waiting.pop()
        self._waiting.append(marker)
        self._woken.set()

    async def run(self) -> None:
        """Store queued records until cancelled."""
        await repeat(
            self._store,
            woken=self._woken,
            pauses=(0.5, 15.0),
            tell=WarnsOnce(warn=self.deps.warn).tell,
            failing=f"cannot record the events of {self.hook.ref}: ",
        )

    async def _store(self) -> None:
        self._woken.clear()
        while self._waiting:
            # A batch that may have been stored is retried unchanged, under the same name.
            if not self._batch:
                records = (item for item in self._waiting if isinstance(item, Record))
                self._batch = next(batches(list(records), self.deps.most), [])
            if self._batch:
                await self._create(self._batch)
            self._drop(len(self._batch))
            self._batch = []

    def _drop(self, stored: int) -> None:
        """Remove the stored records from the queue, with the markers before and after them."""
        while self._waiting and (stored or isinstance(self._waiting[0], Passed)):
            item = self._waiting.popleft()
            stored -= isinstance(item, Record)
            self._note(item)
        if len(self._waiting) <= _MOST_WAITING // 2:
            self._room.set()

    def _note(self, item: Record | Passed) -> None:
        if isinstance(item, Passed):
            self.account.passed(item)
        elif item.context.type in _WATCHED:
            self.account.passed(passed(item))
        else:
            self.account.noted(item)

    async def _create(self, batch: Sequence[Record]) -> None:
        records = [recordable(record) for record in compacted(batch)]
        name = _name(self.hook.uid, batch)
        spec = spec_of(self.hook, records, self.deps.order())
        marks = labels(policy=spec.policy.key, source=spec.source, trigger_uid=spec.resource.uid)
        if records[0].confidential:
            spec, marks = await self._put_aside(name, spec, marks)
        version = await self.deps.requests.create(name, marks, spec)
        if not version:
            # It was stored before, by this process or an earlier one that may have run the hook.
            stored = await self.deps.requests.get(name)
            if stored.status.state not in FINAL:
                await self.deps.stored(stored)
            return
        await self.deps.stored(
            UpdateRequest(
                name=name,
                namespace=self.deps.namespace,
                uid="",
                resource_version=version,
                created=self.deps.clock.now(),
                labels=marks,
                spec=spec,
                status=RequestStatus(),
            )
        )

    async def _put_aside(
        self, name: str, spec: RequestSpec, marks: dict[str, str]
    ) -> tuple[RequestSpec, dict[str, str]]:
        """Store the recorded data of Secrets in a Secret."""
        marks = {**marks, LABEL_RECORDED: "true"}
        await self.deps.requests.create_recorded(name, marks, orjson.dumps(spec.recorded))
        return replace(spec, recorded=None, recorded_secret=recorded_name(name)), marks


def _name(uid: str, batch: Sequence[Record]) -> str:
    """Return the name of the request for a batch; equal batches have equal names."""
    text = "\n".join((uid, *(record.identity for record in batch)))
    return f"hook-{blake2b(text.encode(), digest_size=16).hexdigest()}"
