"""Detection of a live Kyverno in the cluster.

Both would apply every rule: twice the writes, and twice the effect of a rule that appends or
counts. So kube-retrofit stands by while Kyverno renews its Leases, unless configured otherwise.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

from reconciler.api.meta import Object
from reconciler.api.updaterequest import parse_time
from reconciler.clock import Clock
from reconciler.services.jobs import WarnsOnce, repeat
from reconciler.services.ports.leases import Leases
from reconciler.services.ports.reporting import Event
from reconciler.signals import Signal

LEASES: Final = ("kyverno", "kyverno-background-controller", "kyverno-health")
"""The Leases of its admission and background controllers' leaders, and of its heartbeat."""

_HEARTBEAT = "kyverno.io/last-request-time"
# Its leaders renew their Leases every two seconds, its heartbeat every ten.
_ALIVE = 30.0
_PAUSE = 10.0


@dataclass(frozen=True, slots=True)
class _Beat:
    """The last new value of a Lease's timestamp, and the monotonic time when it was seen."""

    text: str
    seen: float


@dataclass(slots=True, kw_only=True)
class KyvernoDetector(WarnsOnce):
    """Watches Kyverno's Leases by polling.

    Attributes:
        names: The names of the Leases; empty if a live Kyverno is no obstacle.
        take_over: Work even if Kyverno is alive.
        namespace: The namespace of its Leases, which is the programs' own.
        found: The Lease that shows that it is alive, empty if none does.
        looked: Set after the first successful check.
        changed: Emitted when Kyverno appears or disappears.
    """

    leases: Leases
    names: tuple[str, ...] = LEASES
    clock: Clock
    namespace: str
    take_over: bool
    found: str = ""
    looked: asyncio.Event = field(default_factory=asyncio.Event)
    changed: Signal[[]] = field(default_factory=Signal)
    _beats: dict[str, _Beat] = field(default_factory=dict)

    @property
    def standing_by(self) -> str:
        """Return why the programs stand by, empty if they do not."""
        return "" if self.take_over else self.description

    @property
    def description(self) -> str:
        """Return a sentence about the state, empty without a live Kyverno."""
        if not self.found:
            return ""
        danger = f"a live Kyverno is in this cluster (Lease {self.namespace}/{self.found})"
        if self.take_over:
            return (
                f"{danger} and --take-over is set: rules may be applied twice until Kyverno's"
                " controllers are scaled to 0"
            )
        return (
            f"{danger}: standing by, nothing is recorded or changed; scale Kyverno's controllers"
            " to 0, or start with --take-over"
        )

    @property
    def event(self) -> Event:
        """Return the event about the Lease that was found."""
        return Event(
            regarding={
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "namespace": self.namespace,
                "name": self.found,
            },
            severity="Warning",
            reason="KyvernoIsLive",
            action="None" if self.take_over else "StandBy",
            note=self.description,
        )

    async def run(self) -> None:
        """Check the Leases periodically until cancelled."""
        unknown = "cannot tell whether a live Kyverno is in the cluster: "
        await repeat(self.look, every=_PAUSE, tell=self.tell, failing=unknown)

    async def look(self) -> None:
        """Check the Leases once.

        Raises:
            ClusterError: A Lease cannot be read; the previous result stays valid.
        """
        alive = [
            name for name in self.names if self._is_alive(name, await self.leases.lease(name))
        ]
        before, self.found = self.found, alive[0] if alive else ""
        self.looked.set()
        if bool(before) == bool(self.found):
            return
        self.warn(self.description or "the live Kyverno is gone: resuming")
        self.changed.emit()

    def _is_alive(self, name: str, lease: Object | None) -> bool:
        text = "" if lease is None else _beat(lease)
        if not text:
            self._beats.pop(name, None)
            return False
        now, known = self.clock.monotonic(), self._beats.get(name)
        if known is None:
            # There is no earlier value to compare with, so trust the Lease's timestamp.
            moment = parse_time(text)
            age = _ALIVE if moment is None else (self.clock.now() - moment).total_seconds()
            self._beats[name] = _Beat(text, now if abs(age) < _ALIVE else now - _ALIVE)
        elif known.text != text:
            self._beats[name] = _Beat(text, now)
        return now - self._beats[name].seen < _ALIVE


def _beat(lease: Object) -> str:
    spec: dict[str, Any] = lease.get("spec") or {}
    meta: dict[str, Any] = lease.get("metadata") or {}
    if spec.get("holderIdentity") and spec.get("renewTime"):
        return str(spec["renewTime"])
    return str((meta.get("annotations") or {}).get(_HEARTBEAT) or "")
