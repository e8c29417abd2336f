"""The `Requests`, `Policies` and `Events` ports on the in-memory cluster, for tests only."""

import base64
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

from reconciler.api.meta import (
    Kind,
    Object,
    PolicyRef,
    policy_ref,
    resource_version,
)
from reconciler.api.requestwire import parse_request, render_spec, render_status
from reconciler.api.updaterequest import (
    RequestSpec,
    RequestStatus,
    State,
    UpdateRequest,
)
from reconciler.dialects.registry import POLICY_KINDS, policy_kind
from reconciler.engine.patch.merge7386 import apply_merge_patch
from reconciler.errors import AlreadyExists, Conflict, Invalid, NotFound
from reconciler.installation import REPLACING
from reconciler.kube.secrets import SECRETS
from reconciler.memory.cluster import MemoryCluster
from reconciler.memory.kinds import REQUESTS
from reconciler.requests.naming import recorded_name
from reconciler.services.ports.reporting import Event

_STATUS = replace(REQUESTS, subresource="status")
_FINAL = (State.COMPLETED, State.FAILED, State.SKIP)
_WAITING = ",".join(f"status.state!={state}" for state in _FINAL)


class MemoryRequests:
    """UpdateRequests of one namespace."""

    def __init__(self, cluster: MemoryCluster, namespace: str, *, page: int = 500) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._page = page

    async def create(self, name: str, labels: Mapping[str, str], spec: RequestSpec) -> str:
        """Store a request; return its resourceVersion, or "" if its name already exists."""
        body = {**REQUESTS.head, "spec": render_spec(spec)}
        return self._create(REQUESTS, name, labels, body)

    async def raise_sequence(self, request: UpdateRequest) -> UpdateRequest:
        """Increment ``spec.sequence`` of a request, unless it changed since it was read."""
        stored = await self._cluster.get(REQUESTS, self._namespace, request.name)
        if resource_version(stored) != request.resource_version:
            raise Conflict(f"{request.name} changed since it was read", status=409)
        after = apply_merge_patch(stored, {"spec": {"sequence": request.spec.sequence + 1}})
        return parse_request(await self._cluster.change(REQUESTS, stored, after))

    async def get(self, name: str) -> UpdateRequest:
        """Return a request by name, as it is stored now."""
        return parse_request(await self._cluster.get(REQUESTS, self._namespace, name))

    async def write_status(self, request: UpdateRequest, status: RequestStatus) -> UpdateRequest:
        """Write a request's status, unless the request changed since it was read."""
        stored = await self._cluster.get(REQUESTS, request.namespace, request.name)
        meta = {**stored["metadata"], "resourceVersion": request.resource_version}
        before = {**stored, "metadata": meta}
        after = apply_merge_patch(before, {"status": _without_nulls(render_status(status))})
        return parse_request(await self._cluster.change(_STATUS, before, after))

    async def annotate(self, name: str, annotations: Mapping[str, str]) -> None:
        """Set annotations of a request."""
        stored = await self._cluster.get(REQUESTS, self._namespace, name)
        after = apply_merge_patch(stored, {"metadata": {"annotations": dict(annotations)}})
        await self._cluster.change(REQUESTS, stored, after)

    def waiting(self) -> AsyncIterator[UpdateRequest]:
        """Yield all requests that are not final."""
        return self._all(_WAITING)

    async def finished(self) -> AsyncIterator[UpdateRequest]:
        """Yield all final requests."""
        for state in _FINAL:
            async for request in self._all(f"status.state={state}"):
                yield request

    async def remove(self, *, remove_after: str, policy: str = "") -> None:
        """Delete the finished requests with this ``status.removeAfter``."""
        if not remove_after:
            raise Invalid("removing without a time would remove all requests")
        fields = f"status.removeAfter={remove_after}"
        fields += f",spec.policy={policy}" if policy else ""
        page = await self._cluster.list_page(
            REQUESTS, namespace=self._namespace, fields=fields, limit=1_000_000
        )
        for obj in page.items:
            self._cluster.delete(REQUESTS, self._namespace, obj["metadata"]["name"])

    async def create_recorded(self, request: str, labels: Mapping[str, str], data: bytes) -> None:
        """Store recorded fields that must not be part of a request, in a Secret."""
        encoded = base64.b64encode(data).decode()
        body = {"apiVersion": "v1", "kind": "Secret", "data": {"recorded": encoded}}
        meta = {"name": recorded_name(request), "namespace": REPLACING.recorded}
        with contextlib.suppress(AlreadyExists):
            self._cluster.create(SECRETS, {**body, "metadata": {**meta, "labels": dict(labels)}})

    async def read_recorded(self, request: str, *, former: bool = False) -> bytes:
        """Return the data that `create_recorded` stored."""
        name = recorded_name(request)
        try:
            secret = await self._cluster.get(SECRETS, REPLACING.recorded, name)
        except NotFound:
            if not former:
                raise
            secret = await self._cluster.get(SECRETS, self._namespace, name)
        return base64.b64decode(secret["data"]["recorded"])

    async def delete_recorded(self, request: str, *, former: bool = False) -> None:
        """Delete the data that `create_recorded` stored, if it exists."""
        for namespace in (REPLACING.recorded, *((self._namespace,) if former else ())):
            with contextlib.suppress(NotFound):
                self._cluster.delete(SECRETS, namespace, recorded_name(request))

    def _create(self, kind: Kind, name: str, labels: Mapping[str, str], body: Object) -> str:
        meta = {"name": name, "namespace": self._namespace, "labels": dict(labels)}
        try:
            return resource_version(self._cluster.create(kind, {**body, "metadata": meta}))
        except AlreadyExists:
            return ""

    async def _all(self, fields: str) -> AsyncIterator[UpdateRequest]:
        token = ""
        while True:
            page = await self._cluster.list_page(
                REQUESTS,
                namespace=self._namespace,
                fields=fields,
                limit=self._page,
                token=token,
            )
            for item in page.items:
                yield parse_request(item)
            token = page.token
            if not token:
                return


def _without_nulls(status: Object) -> Object:
    """Return a patch of the status as the API server applies it, which drops nested nulls."""

    def pruned(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: pruned(item) for key, item in value.items() if item is not None}
        return [pruned(item) for item in value] if isinstance(value, list) else value

    # Those of the status itself delete its fields.
    return {key: pruned(value) for key, value in status.items()}


class MemoryPolicies:
    """The policies that the in-memory cluster stores."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster

    async def get(self, ref: PolicyRef) -> Object:
        """Return a policy."""
        return await self._cluster.get(policy_kind(ref), ref.namespace, ref.name)

    async def stored(self) -> tuple[Object, ...]:
        """Return all policies of all kinds."""
        served = [kind for kind in POLICY_KINDS if self._cluster.serves(kind)]
        pages = [await self._cluster.list_page(kind) for kind in served]
        return tuple(item for page in pages for item in page.items)

    async def write_status(self, policy: Object, status: Mapping[str, Any]) -> None:
        """Merge fields into the status of a policy."""
        kind = replace(policy_kind(policy_ref(policy)), subresource="status")
        after = apply_merge_patch(policy, {"status": dict(status)})
        await self._cluster.change(kind, policy, after)


class MemoryEvents:
    """Keeps events in a list.

    Attributes:
        emitted: All emitted events, in order.
    """

    def __init__(self) -> None:
        self.emitted: list[Event] = []

    def emit(self, event: Event) -> None:
        """Append an event."""
        self.emitted.append(event)
