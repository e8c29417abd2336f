"""The `Leases` and `CatchUpCheckpoint` ports."""

from collections.abc import Mapping
from typing import Any

from reconciler.api.meta import (
    ANNOTATION_IN_FORCE,
    ANNOTATION_MISSED,
    ANNOTATION_OUTAGES,
    Kind,
    Object,
)
from reconciler.api.updaterequest import parse_time, render_time
from reconciler.errors import AlreadyExists, NotFound
from reconciler.kube.client import Client
from reconciler.services.ports.leases import AdmissionHeartbeat, Checkpoint

LEASES = Kind(
    group="coordination.k8s.io", version="v1", kind="Lease", plural="leases", namespaced=True
)

ADMISSION_LEASE = "kube-retrofit-admission"
"""The Lease that one of the serving admission servers holds."""
CATCH_UP_LEASE = "kube-retrofit-catch-up"


class KubeLeases:
    """Leases of one namespace, as stored."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._leases = client.resource(LEASES)
        self._namespace = namespace

    async def lease(self, name: str) -> Object | None:
        """Return a Lease, or None if it does not exist."""
        return await self._leases.find(name, self._namespace)

    async def patch(self, name: str, patch: Mapping[str, Any]) -> None:
        """Change one of the project's Leases by a merge patch; `NotFound` if it is missing."""
        await self._leases.merge(patch, name, self._namespace)

    async def put(self, name: str, body: Mapping[str, Any]) -> None:
        """Change one of the project's Leases by a merge patch, or create it if it is missing."""
        try:
            await self.patch(name, body)
        except NotFound:
            try:
                await self._create(name, body)
            except AlreadyExists:
                await self.patch(name, body)

    async def _create(self, name: str, body: Mapping[str, Any]) -> None:
        own = {"name": name, "namespace": self._namespace}
        notes = body.get("metadata", {}).get("annotations", {})
        given = {key: value for key, value in notes.items() if value is not None}
        lease = {
            **LEASES.head,
            **body,
            "metadata": {**body.get("metadata", {}), "annotations": given, **own},
        }
        await self._leases.create(lease, self._namespace)


class KubeCheckpoint:
    """A checkpoint on two Leases, which are small and need only a narrow right."""

    def __init__(self, leases: KubeLeases) -> None:
        self._leases = leases

    async def load(self) -> Checkpoint:
        """Return the checkpoint that was stored last, or an empty one before the first."""
        lease = await self._leases.lease(CATCH_UP_LEASE) or {}
        notes = (lease.get("metadata") or {}).get("annotations") or {}
        version, _, moment = str(notes.get(ANNOTATION_IN_FORCE, "")).partition("@")
        return Checkpoint(
            done=parse_time((lease.get("spec") or {}).get("renewTime")),
            version=version,
            confirmed=parse_time(moment),
            outages=str(notes.get(ANNOTATION_OUTAGES, "")),
        )

    async def store(self, checkpoint: Checkpoint) -> None:
        """Store the checkpoint; an older one of a former leader may follow, which is harmless."""
        moment = checkpoint.confirmed
        in_force = None if moment is None else f"{checkpoint.version}@{render_time(moment)}"
        notes = {ANNOTATION_IN_FORCE: in_force, ANNOTATION_OUTAGES: checkpoint.outages or None}
        body: Object = {"metadata": {"annotations": notes}}
        if checkpoint.done is not None:
            body["spec"] = {"renewTime": render_time(checkpoint.done)}
        await self._leases.put(CATCH_UP_LEASE, body)

    async def heartbeat(self) -> AdmissionHeartbeat:
        """Return the last heartbeat of the admission servers."""
        lease = await self._leases.lease(ADMISSION_LEASE) or {}
        notes = (lease.get("metadata") or {}).get("annotations") or {}
        renewed = (lease.get("spec") or {}).get("renewTime")
        return AdmissionHeartbeat(
            renewed=str(renewed or ""), missed=str(notes.get(ANNOTATION_MISSED, ""))
        )
