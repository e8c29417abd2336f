"""Leader election on a Lease of coordination.k8s.io.

`kubernetes.aio.leaderelection` is not used: its calls are not bounded by the renewal deadline, a
refused connection ends it, it writes local time as UTC and it does not release the Lease.

A holder counts as gone when its record did not change for its lease duration *as observed here*,
on the monotonic clock, so clocks of different machines need not agree. It counts as gone
immediately if it was in the same Pod, whose containers never run twice. A renewal counts from
before it was sent. A Lease does not fence, so every write is guarded by a resourceVersion.
"""

import asyncio
import contextlib
import socket
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from reconciler.api.meta import Object, resource_version, version_number
from reconciler.api.updaterequest import render_time
from reconciler.clock import Clock
from reconciler.errors import AlreadyExists, ClusterError, Conflict, NotFound, Restored
from reconciler.kube.client import Client
from reconciler.kube.leases import LEASES
from reconciler.kube.retrying import jittered
from reconciler.services.jobs import WarnsOnce
from reconciler.signals import Signal

LEASE_NAME = "kube-retrofit-controller"

_HOLDER = "holderIdentity"
_RELEASE_TIMEOUT = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Time-outs in seconds, each shorter than the one before it."""

    duration: float
    renew: float
    retry: float


def new_identity(pod: str = "") -> str:
    """Return an identity that is unique to this process.

    Args:
        pod: Uid of the Pod of the process, which becomes a part of the identity.
    """
    return "_".join(part for part in (socket.gethostname(), pod, str(uuid.uuid4())) if part)


class Election:
    """One candidate; it needs a client of its own, so that a renewal waits for no other call.

    Attributes:
        holder: Last known holder of the Lease; empty for none.
        abandoned: Whether the previous holder did not release the Lease.
        witnessed: Whether this candidate, while not holding the Lease, saw another one renew it.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        namespace: str,
        identity: str,
        name: str = LEASE_NAME,
        timing: Timing,
        pod: str = "",
        warn: Callable[[str], None],
    ) -> None:
        self.started, self.lost = Signal[[]](), Signal[[]]()
        self.held_by = Signal[[str]]()
        self.holder = ""
        self.witnessed = False
        self.abandoned = False
        self._leases = client.resource(LEASES)
        self._clock = clock
        self._namespace = namespace
        self._name = name
        self.identity = identity
        self._timing = timing
        self._pod = pod
        self._leading = False
        self._renewed_at = 0.0
        self._lease: Object = {}
        self._observed_at = 0.0
        self._problems = WarnsOnce(warn=warn)

    @property
    def leading(self) -> bool:
        """Return whether this process holds the Lease and renewed it in time."""
        age = self._clock.monotonic() - self._renewed_at
        return self._leading and age < self._timing.renew

    @property
    def term(self) -> int:
        """Return how often the Lease has changed hands, as its holder has stored it."""
        return int((self._lease.get("spec") or {}).get("leaseTransitions") or 0)

    async def run(self) -> None:
        """Acquire and renew until cancelled; then release the Lease immediately.

        Subscribers must return quickly. ``lost`` follows each ``started``, except when the run
        was cancelled or has failed.

        Raises:
            Restored: The stored Lease is older than one that was read before.
        """
        try:
            while True:
                await self._step()
                # A leader renews at a fixed interval; candidates spread out.
                retry = self._timing.retry
                await asyncio.sleep(retry if self._leading else jittered(retry))
        finally:
            if self._leading:
                self._leading = False
                with contextlib.suppress(ClusterError):
                    await self._give_back()

    async def _step(self) -> None:
        started = self._clock.monotonic()
        try:
            held = await self._acquire_or_renew(self._patience(started))
            self._problems.tell("")
        except ClusterError as error:
            self._problems.tell(str(error))
            held = False
        if held:
            self._renewed_at = started
            if not self._leading:
                self._leading = True
                self.started.emit()
        elif self._leading and (self.holder != self.identity or not self.leading):
            self._leading = self.witnessed = False
            self.lost.emit()

    def _patience(self, now: float) -> float:
        """Return the seconds that one call may take, never beyond the renewal deadline."""
        if not self._leading:
            return self._timing.renew
        left = self._renewed_at + self._timing.renew - now
        return max(min(left, 2 * self._timing.retry), 0.1)

    async def _acquire_or_renew(self, limit: float) -> bool:
        if self._leading:
            # The version of the last renewal is still current unless another client interfered.
            with contextlib.suppress(Conflict, NotFound):
                await self._put(self._lease, limit)
                return True
        lease = await self._leases.find(self._name, self._namespace, timeout=limit, repeat=False)
        if lease is None:
            return await self._create(limit)
        known = self._lease.get("spec")
        self._observe(lease)
        others = self.holder != self.identity and known not in (None, lease.get("spec"))
        self.witnessed = self.witnessed or others
        others = self.holder not in {"", self.identity}
        if others and not (self._expired() or self._followed()):
            return False
        self.abandoned = others
        try:
            await self._put(lease, limit)
        except Conflict:
            return False
        return True

    def _observe(self, lease: Object) -> None:
        before, now = resource_version(self._lease), resource_version(lease)
        if 0 < version_number(now) < version_number(before):
            self._leading = False
            raise Restored(
                f"the cluster was restored from a backup: Lease {self._namespace}/{self._name} has"
                f" resourceVersion {now}, after {before}. This process ends because it knows"
                " objects that the cluster has lost; started again, it reads everything anew"
            )
        if lease.get("spec") != self._lease.get("spec"):
            self._observed_at = self._clock.monotonic()
        self._lease = lease
        self._see(str((lease.get("spec") or {}).get(_HOLDER) or ""))

    def _see(self, holder: str) -> None:
        if holder != self.holder:
            self.holder = holder
            self.held_by.emit(holder)

    def _expired(self) -> bool:
        spec = self._lease.get("spec") or {}
        duration = float(spec.get("leaseDurationSeconds") or self._timing.duration)
        return self._clock.monotonic() - self._observed_at >= duration

    def _followed(self) -> bool:
        """Return whether the holder was in this Pod, and so ended before this process began."""
        return bool(self._pod) and f"_{self._pod}_" in self.holder

    async def _create(self, limit: float) -> bool:
        body = {
            **LEASES.head,
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": self._spec({}),
        }
        try:
            lease = await self._leases.create(body, self._namespace, timeout=limit, repeat=False)
        except AlreadyExists:
            return False
        self._observe(lease)
        return True

    async def _put(self, lease: Object, limit: float) -> None:
        body = {**lease, "spec": self._spec(lease.get("spec") or {})}
        self._observe(await self._replace(body, limit))

    async def _give_back(self) -> None:
        try:
            await self._replace(self._released(), _RELEASE_TIMEOUT)
        except Conflict:  # A renewal was in flight when the run was cancelled.
            stored = await self._leases.get(self._name, self._namespace, timeout=_RELEASE_TIMEOUT)
            self._observe(stored)
            if self.holder != self.identity:
                return
            await self._replace(self._released(), _RELEASE_TIMEOUT)
        self._see("")

    def _released(self) -> Object:
        spec = {key: value for key, value in self._lease["spec"].items() if key != _HOLDER}
        spec |= {"leaseDurationSeconds": 1, "renewTime": render_time(self._clock.now())}
        return {**self._lease, "spec": spec}

    async def _replace(self, body: Object, limit: float) -> Object:
        return await self._leases.replace(
            body, self._name, self._namespace, timeout=limit, repeat=False
        )

    def _spec(self, old: Object) -> Object:
        now = render_time(self._clock.now())
        spec = {
            **old,
            _HOLDER: self.identity,
            "leaseDurationSeconds": round(self._timing.duration),
            "renewTime": now,
        }
        if old.get(_HOLDER) != self.identity:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = int(old.get("leaseTransitions") or 0) + 1 if old else 0
        return spec
