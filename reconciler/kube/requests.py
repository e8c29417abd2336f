"""The `Requests` port: UpdateRequests and the Secrets with recorded fields of some of them."""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Self

from reconciler.api.kinds import kinds_of, policy_named
from reconciler.api.meta import Object, resource_version
from reconciler.api.requestwire import parse_request, render_spec, render_status
from reconciler.api.updaterequest import RequestSpec, RequestStatus, State, UpdateRequest
from reconciler.config import ControllerSettings, ProcessSettings
from reconciler.errors import AlreadyExists, Gone, Invalid
from reconciler.installation import REPLACING, Installation
from reconciler.kube.client import Client
from reconciler.kube.reader import KubeReader
from reconciler.kube.recorded import RecordedSecrets
from reconciler.kube.writer import guarded
from reconciler.requests.adoption import read_hook_request, read_request

_FINAL = (State.COMPLETED, State.FAILED, State.SKIP)
_WAITING = ",".join(f"status.state!={state}" for state in _FINAL)
_REMOVE_TIMEOUT = 90.0


class KubeRequests:
    """UpdateRequests of one namespace for rules; with ``adopt``, also those of a Kyverno.

    Not strict about fields: with an older definition in a cluster, a new one must not stop work.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        *,
        page: int = 500,
        adopt: bool = False,
        for_hooks: bool = False,
        installation: Installation = REPLACING,
        recorded_in: str = "",
    ) -> None:
        """Initialize.

        Args:
            page: Objects per page of a list.
            adopt: Whether to list the requests of a Kyverno as well.
            for_hooks: Whether to list the requests for hooks instead.
            recorded_in: Namespace of the Secrets with recorded fields; empty for the default.
        """
        self._kind = kinds_of(installation).requests
        self._requests = client.resource(self._kind)
        self._statuses = client.resource(replace(self._kind, subresource="status"))
        self._reader = KubeReader(client)
        self._namespace = namespace
        self._page = page
        self._read: Callable[[Object], UpdateRequest | None] = (
            read_hook_request if for_hooks else partial(read_request, adopt=adopt)
        )
        self._recorded = RecordedSecrets(
            client, recorded_in or installation.recorded, former=namespace
        )

    @classmethod
    def of(cls, client: Client, settings: ControllerSettings) -> Self:
        """Return the requests that a controller with these settings works on."""
        return cls(
            client,
            settings.namespace,
            page=settings.list_page,
            adopt=settings.take_over,
            installation=settings.installation,
        )

    @classmethod
    def recorded(cls, client: Client, settings: ProcessSettings) -> Self:
        """Return the requests that an admission server with these settings stores."""
        return cls(client, settings.namespace, installation=settings.installation)

    async def create(self, name: str, labels: Mapping[str, str], spec: RequestSpec) -> str:
        """Store a request; return its resourceVersion, or "" if one of that name is stored."""
        body = {
            **self._kind.head,
            "metadata": {"name": name, "namespace": self._namespace, "labels": dict(labels)},
            "spec": render_spec(spec),
        }
        try:
            answer = await self._requests.create(body, self._namespace)
        except AlreadyExists:
            return ""
        return resource_version(answer)

    async def raise_sequence(self, request: UpdateRequest) -> UpdateRequest:
        """Raise ``spec.sequence`` of exactly this version of a request by one."""
        patch = guarded(
            {"spec": {"sequence": request.spec.sequence + 1}}, request.resource_version
        )
        place = request.namespace or self._namespace
        return _parse(await self._requests.merge(patch, request.name, place))

    async def get(self, name: str) -> UpdateRequest:
        """Return a request as it is stored now."""
        return _parse(await self._reader.get(self._kind, self._namespace, name))

    async def write_status(self, request: UpdateRequest, status: RequestStatus) -> UpdateRequest:
        """Write a status that was decided on exactly this version of the request."""
        patch = guarded({"status": render_status(status)}, request.resource_version)
        return _parse(await self._statuses.merge(patch, request.name, request.namespace))

    async def annotate(self, name: str, annotations: Mapping[str, str]) -> None:
        """Set annotations of a request."""
        patch = {"metadata": {"annotations": dict(annotations)}}
        await self._requests.merge(patch, name, self._namespace)

    async def of_policy(self, policy: str = "") -> AsyncIterator[UpdateRequest]:
        """Yield the requests of a policy, finished or not.

        Args:
            policy: In the form that `policy_named` accepts; empty for all policies.
        """
        ref = policy_named(policy) if policy else None
        says_kind = ref is not None and ref.key != policy
        async for request in self._all(f"spec.policy={_escaped(ref.key)}" if ref else ""):
            # Policies of two kinds may have the same name.
            if not says_kind or request.spec.policy == ref:
                yield request

    async def page(
        self, *, policy: str = "", state: State | None = None, limit: int, token: str = ""
    ) -> tuple[list[UpdateRequest], str]:
        """Return one page of requests and the token of the next one, which is empty at the end.

        Args:
            policy: Key of a policy; empty for all policies.
            state: ``Pending`` stands for all states that are not final; None for any state.

        Raises:
            Gone: The token is too old; list again from the start.
        """
        fields = [f"spec.policy={_escaped(policy)}"] if policy else []
        if state is not None:
            fields.append(_WAITING if state is State.PENDING else f"status.state={state}")
        return await self._listed(",".join(fields), limit, token)

    def waiting(self) -> AsyncIterator[UpdateRequest]:
        """Yield all requests that are not final; one may come twice if the list restarts."""
        return self._all(_WAITING)

    async def finished(self) -> AsyncIterator[UpdateRequest]:
        """Yield all final requests; one may come twice if the list restarts."""
        for state in _FINAL:
            async for request in self._all(f"status.state={state}"):
                yield request

    async def remove(self, *, remove_after: str, policy: str = "") -> None:
        """Delete the finished requests with this ``status.removeAfter`` in one call."""
        if not remove_after:
            raise Invalid("removing without a time would remove all requests")
        fields = f"status.removeAfter={_escaped(remove_after)}"
        if policy:
            fields += f",spec.policy={_escaped(policy)}"
        await self._requests.delete(
            namespace=self._namespace,
            field_selector=fields,
            timeout=_REMOVE_TIMEOUT,
            serialize=False,
        )

    async def create_recorded(self, request: str, labels: Mapping[str, str], data: bytes) -> None:
        """Store recorded fields that must not be in a request, as a Secret."""
        await self._recorded.create(request, labels, data)

    async def read_recorded(self, request: str, *, former: bool = False) -> bytes:
        """Return the data that `create_recorded` stored."""
        return await self._recorded.read(request, former=former)

    async def delete_recorded(self, request: str, *, former: bool = False) -> None:
        """Delete the data that `create_recorded` stored; it is no error if it does not exist."""
        await self._recorded.delete(request, former=former)

    async def _all(self, fields: str) -> AsyncIterator[UpdateRequest]:
        token = ""
        while True:
            try:
                found, token = await self._listed(fields, self._page, token)
            except Gone:
                if not token:
                    raise
                token = ""
                continue
            for request in found:
                yield request
            if not token:
                return

    async def _listed(
        self, fields: str, limit: int, token: str
    ) -> tuple[list[UpdateRequest], str]:
        page = await self._reader.list_page(
            self._kind, namespace=self._namespace, fields=fields, limit=limit, token=token
        )
        read = map(self._read, page.items)
        return [item for item in read if item is not None], page.token


def _parse(obj: Object) -> UpdateRequest:
    """Return a request that is being processed already, whichever program created it."""
    return read_request(obj, adopt=True) or parse_request(obj)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
