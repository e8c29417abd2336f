"""The `Events` port: events.k8s.io/v1, sent from a bounded queue that never blocks the caller.

Equal events (same object, reason and group or note) within ten minutes become one with a series.
Events above the rate wait in the queue; those that do not fit there are counted and dropped.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reconciler.api.meta import FIELD_MANAGER, Kind, Object
from reconciler.api.updaterequest import render_time
from reconciler.clock import Clock
from reconciler.errors import ClusterError
from reconciler.kube.client import Client
from reconciler.services.ports.reporting import Event

_LOG = logging.getLogger(__name__)
_EVENTS = Kind(group="events.k8s.io", version="v1", kind="Event", plural="events", namespaced=True)
_REFERENCE = ("apiVersion", "kind", "namespace", "name", "uid", "resourceVersion", "fieldPath")
_LONGEST_NOTE = 1024
_WINDOW = 600.0
_SERIES_EVERY = 30.0
_RATE = 5.0
_BURST = 50.0
_QUEUE = 1000
_TIMEOUT = 10.0


@dataclass(slots=True, kw_only=True)
class _Sent:
    """An event that was emitted within the window."""

    namespace: str
    name: str
    first: float
    count: int = 1
    stored_count: int = 0
    last: datetime
    queued: bool = True
    sent_at: float = 0.0
    body: Object


class KubeEvents:
    """Sends events from the task that runs `run`.

    Attributes:
        dropped: Number of events that found the queue full.
    """

    def __init__(self, client: Client, clock: Clock, *, instance: str) -> None:
        self.dropped = 0
        self._events = client.resource(_EVENTS)
        self._clock = clock
        self._instance = instance
        self._queue: asyncio.Queue[_Sent] = asyncio.Queue(_QUEUE)
        self._recent: dict[tuple[Any, ...], _Sent] = {}  # oldest first
        self._grown: dict[str, _Sent] = {}
        self._tokens = _BURST
        self._filled = clock.monotonic()
        self._serial = 0

    def emit(self, event: Event) -> None:
        """Queue one event, or count it in the series of an equal one."""
        now = self._clock.now()
        subject = _reference(event.regarding)
        key = (*sorted(subject.items()), event.reason, event.group or event.note)
        known = self._recent.get(key)
        if known is not None:
            known.count += 1
            known.last = now
            self._grown[known.name] = known
            return
        namespace = str(subject.get("namespace") or "default")
        name = self._name(str(subject.get("name") or "unknown"), now)
        body: Object = {
            **_EVENTS.head,
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": render_time(now),
            "reportingController": event.reporter or FIELD_MANAGER,
            "reportingInstance": self._instance[:128],
            "type": event.severity,
            "reason": event.reason[:128],
            "action": event.action[:128],
            "note": _short(event.note),
            "regarding": subject,
        }
        if event.related is not None:
            body["related"] = _reference(event.related)
        sent = _Sent(
            namespace=namespace, name=name, first=self._clock.monotonic(), last=now, body=body
        )
        try:
            self._queue.put_nowait(sent)
        except asyncio.QueueFull:
            self.dropped += 1
            return
        self._recent[key] = sent

    async def run(self) -> None:
        """Send events until cancelled."""
        while True:
            try:
                async with asyncio.timeout(_SERIES_EVERY):
                    event = await self._queue.get()
            except TimeoutError:
                self._look_through()
                continue
            await self._take_token()
            await self._send(event)
            self._look_through()

    async def flush(self, limit: float = 5.0) -> None:
        """Send the queued events within a limit in seconds; called when the process ends."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                while not self._queue.empty():
                    await self._send(self._queue.get_nowait())

    def _name(self, subject: str, now: datetime) -> str:
        self._serial += 1
        mark = f"{int(now.timestamp() * 1e6):x}{self._serial % 4096:03x}"
        return f"{subject[: 252 - len(mark)].rstrip('.-')}.{mark}"

    async def _take_token(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(_BURST, self._tokens + (now - self._filled) * _RATE)
        self._filled = now
        if self._tokens < 1:
            await asyncio.sleep((1 - self._tokens) / _RATE)
        self._tokens -= 1

    async def _send(self, event: _Sent) -> None:
        event.queued, event.sent_at = False, self._clock.monotonic()
        count = event.count
        try:
            if not event.stored_count:
                body = event.body if count == 1 else event.body | _series(event)
                await self._events.create(body, event.namespace, timeout=_TIMEOUT)
                event.body = {}
            else:
                await self._events.merge(
                    _series(event), event.name, event.namespace, timeout=_TIMEOUT
                )
        except ClusterError as error:
            _LOG.debug("an event was not stored: %s", error)
            count = max(event.stored_count, 1)
        event.stored_count = count

    def _look_through(self) -> None:
        """Queue the series that grew; forget events that are older than the window."""
        now = self._clock.monotonic()
        for event in list(self._grown.values()):
            if event.queued or now - event.sent_at < _SERIES_EVERY or self._queue.full():
                continue
            del self._grown[event.name]
            if event.count > event.stored_count:
                event.queued = True
                self._queue.put_nowait(event)
        for key, event in list(self._recent.items()):
            if now - event.first <= _WINDOW:
                break
            del self._recent[key]


def _reference(raw: Mapping[str, Any]) -> Object:
    return {key: raw[key] for key in _REFERENCE if raw.get(key)}


def _series(event: _Sent) -> Object:
    return {"series": {"count": event.count, "lastObservedTime": render_time(event.last)}}


def _short(note: str) -> str:
    encoded = note.encode()
    if len(encoded) <= _LONGEST_NOTE:
        return note
    return encoded[: _LONGEST_NOTE - 3].decode(errors="ignore") + "..."
