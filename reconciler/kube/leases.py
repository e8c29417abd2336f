"""The `Leases` and `Marks` ports."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from reconciler.api.meta import ANNOTATION_MISSED, FIELD_MANAGER, Kind, Object
from reconciler.api.updaterequest import parse_time, render_time
from reconciler.errors import AlreadyExists, Gone
from reconciler.kube.client import MERGE_PATCH, Client, encode
from reconciler.kube.paths import collection_path, object_path
from reconciler.services.ports import Pulse

LEASES = Kind(
    group="coordination.k8s.io", version="v1", kind="Lease", plural="leases", namespaced=True
)

ADMISSION_LEASE = "kube-retrofit-admission"
"""Held by one of the admission servers that serve."""
CATCH_UP_LEASE = "kube-retrofit-catch-up"

_QUERY = {"fieldManager": FIELD_MANAGER}


class KubeLeases:
    """Leases of one namespace, as others keep them."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def lease(self, name: str) -> Object | None:
        """Return a Lease, None where there is none."""
        try:
            found: Object = await self._client.json(
                "GET", object_path(LEASES, self._namespace, name)
            )
        except Gone:
            return None
        return found

    async def patch(self, name: str, patch: Mapping[str, Any]) -> None:
        """Change a Lease of our own by a merge patch; raises `Gone` where there is none."""
        await self._client.request(
            "PATCH",
            object_path(LEASES, self._namespace, name),
            query=_QUERY,
            body=encode(patch),
            content_type=MERGE_PATCH,
        )

    async def put(self, name: str, body: Mapping[str, Any]) -> None:
        """Change a Lease of our own by a merge patch, or make it where there is none."""
        try:
            await self.patch(name, body)
        except Gone:
            try:
                await self._create(name, body)
            except AlreadyExists:
                await self.patch(name, body)

    async def _create(self, name: str, body: Mapping[str, Any]) -> None:
        own = {"name": name, "namespace": self._namespace}
        lease = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            **body,
            "metadata": {**body.get("metadata", {}), **own},
        }
        path = collection_path(LEASES, self._namespace)
        await self._client.request("POST", path, query=_QUERY, body=encode(lease))


class KubeMarks:
    """Marks on two Leases, which are small, and small to grant."""

    def __init__(self, leases: KubeLeases) -> None:
        self._leases = leases

    async def done(self) -> datetime | None:
        """Return until when everything was looked at, None where nobody ever looked."""
        lease = await self._leases.lease(CATCH_UP_LEASE)
        return None if lease is None else parse_time((lease.get("spec") or {}).get("renewTime"))

    async def set_done(self, moment: datetime) -> None:
        """Store it; a leader of before may still store an earlier time, which does no harm."""
        await self._leases.put(CATCH_UP_LEASE, {"spec": {"renewTime": render_time(moment)}})

    async def pulse(self) -> Pulse:
        """Return what the admission servers said last."""
        lease = await self._leases.lease(ADMISSION_LEASE) or {}
        notes = (lease.get("metadata") or {}).get("annotations") or {}
        renewed = (lease.get("spec") or {}).get("renewTime")
        return Pulse(renewed=str(renewed or ""), missed=str(notes.get(ANNOTATION_MISSED, "")))
