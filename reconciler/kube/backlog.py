"""The `Board` port: a Lease whose annotations carry the number of waiting requests.

It is a Lease because both programs have rights on Leases already, and because the numbers hold for
one moment, which ``renewTime`` records.
"""

from collections.abc import Callable

import orjson

from reconciler.api.meta import ANNOTATION_HOLDERS, ANNOTATION_SEEN, ANNOTATION_WAITING, Object
from reconciler.api.updaterequest import render_time
from reconciler.clock import Clock
from reconciler.kube.client import Client
from reconciler.kube.leases import LEASES, KubeLeases
from reconciler.kube.watch import Watch
from reconciler.requests.overload import Backlog
from reconciler.services.ports.policies import Change

BACKLOG_NAME = "kube-retrofit-backlog"


class KubeBacklogStore:
    """Reads and writes the backlog Lease of one namespace."""

    def __init__(self, leases: KubeLeases, clock: Clock) -> None:
        self._leases = leases
        self._clock = clock

    async def read(self) -> Backlog:
        """Return the backlog that was published last, or an empty one before the first."""
        lease = await self._leases.lease(BACKLOG_NAME)
        return Backlog() if lease is None else _parse(lease)

    async def write(self, backlog: Backlog) -> None:
        """Publish the backlog; only the leader does so."""
        marks = {
            ANNOTATION_WAITING: str(backlog.waiting),
            ANNOTATION_SEEN: str(backlog.seen),
            ANNOTATION_HOLDERS: orjson.dumps(backlog.of).decode(),
        }
        body: Object = {
            "metadata": {"annotations": marks},
            "spec": {"renewTime": render_time(self._clock.now())},
        }
        await self._leases.put(BACKLOG_NAME, body)


def backlog_watch(client: Client, clock: Clock, namespace: str) -> Watch:
    """Return a watch on the backlog Lease."""
    return Watch(client, LEASES, clock, namespace=namespace, name=BACKLOG_NAME, metadata_only=True)


def backlog_handler(on_backlog: Callable[[Backlog], None]) -> Callable[[Change, Object], None]:
    """Return a watch handler that passes on the Lease's contents; deletions change nothing."""

    def change(kind: Change, lease: Object) -> None:
        if kind != "DELETED":
            on_backlog(_parse(lease))

    return change


def _parse(lease: Object) -> Backlog:
    marks = (lease.get("metadata") or {}).get("annotations") or {}
    return Backlog(
        waiting=_number(marks.get(ANNOTATION_WAITING)),
        seen=_number(marks.get(ANNOTATION_SEEN)),
        of=_numbers(marks.get(ANNOTATION_HOLDERS)),
    )


def _numbers(text: object) -> dict[str, int]:
    try:
        found = orjson.loads(text) if isinstance(text, str) else None
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        return {}
    return {key: value for key, value in found.items() if isinstance(value, int)}


def _number(text: object) -> int:
    return int(text) if isinstance(text, str) and text.isdecimal() else 0
