"""The `Operations` port on the in-memory cluster."""

import contextlib
from typing import Any

import jsonpatch

from reconciler.api.meta import Kind, Object
from reconciler.engine.patch.merge7386 import apply_merge_patch
from reconciler.errors import AlreadyExists, Invalid, NotFound, Unfinished
from reconciler.memory.cluster import MemoryCluster
from reconciler.services.ports.objects import Propagation


class MemoryOperations:
    """Writes without a guard.

    Attributes:
        generated: The last name that an object got for its ``generateName``.
    """

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster
        self.generated = ""

    async def create(self, kind: Kind, obj: Object) -> Object:
        """Store a new object; one without a name gets a number after its ``generateName``."""
        meta = obj.get("metadata") or {}
        if meta.get("name") or not meta.get("generateName"):
            return self._cluster.create(kind, obj)
        number = 0
        while True:
            number += 1
            self.generated = f"{meta['generateName']}{number}"
            named = {**obj, "metadata": {**meta, "name": self.generated}}
            with contextlib.suppress(AlreadyExists):
                return self._cluster.create(kind, named)

    async def merge_patch(self, kind: Kind, namespace: str, name: str, patch: Object) -> Object:
        """Apply a merge patch; return the object."""
        before = await self._cluster.get(kind, namespace, name)
        return await self._cluster.change(kind, before, apply_merge_patch(before, patch))

    async def json_patch(self, kind: Kind, namespace: str, name: str, patch: list[Any]) -> Object:
        """Apply a JSON patch; return the object."""
        before = await self._cluster.get(kind, namespace, name)
        try:
            after = jsonpatch.apply_patch(before, patch)
        except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
            raise Invalid(f"the patch does not fit: {error}", status=422) from error
        return await self._cluster.change(kind, before, after)

    async def delete(
        self, kind: Kind, namespace: str, name: str, propagation: Propagation
    ) -> None:
        """Delete an object; there are no owned objects to delete with it."""
        self._cluster.delete(kind, namespace, name)
        if propagation is not Propagation.FOREGROUND:
            return
        try:
            await self._cluster.get(kind, namespace, name)
        except NotFound:
            return
        raise Unfinished(f'{kind.resource} "{name}" is deleted, but waits for a finalizer')
