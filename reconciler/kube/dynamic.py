"""kubernetes' dynamic client over this project's connections: its resources, paths and verbs.

Sending and decoding is done by the client below, whose `request`, `json` and `stream` replace the
library's `ApiClient`. So an answer is a plain object and a failure a `ClusterError`. The library's
own transport costs several times the CPU of a call, and its answers copy every object;
`docs/design/0004-libraries.md` has the figures.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import cached_property, lru_cache
from typing import Any
from urllib.parse import quote

from kubernetes.aio.dynamic import DynamicClient
from kubernetes.aio.dynamic.resource import Resource, Subresource
from typing_extensions import override

from reconciler.api.meta import FIELD_MANAGER, Kind, Object
from reconciler.errors import Invalid, NotFound
from reconciler.kube.decoding import JSON, MERGE_PATCH, encode

_SAFE = ":@!$&'()*+,;=~"
_OPTIONS = frozenset({"accept", "timeout", "repeat", "most"})
_WRITES = frozenset({"post", "put", "patch"})


class ApiResource(Resource):
    """A resource that quotes names, so that a name cannot address another path.

    The verbs are those of `ObjectClient`; with ``serialize=False`` they return bytes.
    """

    get: Callable[..., Awaitable[Object]]
    find: Callable[..., Awaitable[Object | None]]
    create: Callable[..., Awaitable[Object]]
    replace: Callable[..., Awaitable[Object]]
    patch: Callable[..., Awaitable[Object]]
    merge: Callable[..., Awaitable[Object]]
    delete: Callable[..., Awaitable[Object]]

    def __init__(self, client: "ObjectClient", kind: Kind) -> None:
        super().__init__(  # type: ignore[no-untyped-call]
            client=client,
            prefix="apis" if kind.group else "api",
            group=kind.group,
            api_version=kind.version,
            kind=kind.kind,
            name=kind.plural,
            namespaced=kind.namespaced,
        )

    @cached_property
    @override
    def urls(self) -> dict[str, str]:
        """The path templates, cached because the library builds them for each call."""
        found: dict[str, str] = super().urls
        return found

    @override
    def path(self, name: str | None = None, namespace: str | None = None) -> str:
        """Return the path of an object; without a name, of the collection.

        Raises:
            Invalid: A part of the name is empty, so that the path would address the collection, or
                is not a valid name.
        """
        if name is not None and (not name or (self.namespaced and not namespace)):
            part = "namespace" if name else "name"
            raise Invalid(f"{self.kind} {namespace or ''}/{name}: the {part} is empty")
        place = _segment(namespace) if namespace and self.namespaced else None
        found: str = super().path(name and _segment(name), place)  # type: ignore[no-untyped-call]
        return found


class ApiSubresource(ApiResource, Subresource):  # type: ignore[misc]
    """A subresource; without a name, its path is the collection of the parent resource."""

    def __init__(self, client: "ObjectClient", kind: Kind) -> None:
        parent = ApiResource(client, kind)
        name = f"{kind.plural}/{kind.subresource}"
        Subresource.__init__(  # type: ignore[no-untyped-call]
            self, parent, kind=kind.kind, name=name, namespaced=kind.namespaced
        )

    @override
    def path(self, name: str | None = None, namespace: str | None = None) -> str:
        if name is None:
            found: str = self.parent.path(namespace=namespace)
            return found
        return super().path(name, namespace)


class ObjectClient(DynamicClient):
    """The library's verbs, sent as requests of the client below."""

    def __init__(self, client: Any) -> None:
        super().__init__(client)  # type: ignore[no-untyped-call]
        self._resources: dict[Kind, ApiResource] = {}

    def resource(self, kind: Kind) -> ApiResource:
        """Return a kind as a resource; if the kind names a subresource, that one."""
        found = self._resources.get(kind)
        if found is None:
            made = ApiSubresource if kind.subresource else ApiResource
            found = self._resources[kind] = made(self, kind)
        return found

    @override
    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        serialize: bool = True,
        content_type: str = JSON,
        **params: Any,
    ) -> Any:
        """Send the request of a verb; writes use this project's field manager by default.

        Args:
            method: In any case.
            path: Already quoted.
            serialize: False to return the answer as bytes.
            params: Options of the transport; all others are query parameters, under the
                library's names (``field_manager``, ``_continue``).
        """
        options = {name: params.pop(name) for name in _OPTIONS & params.keys()}
        if method in _WRITES:
            params = {"field_manager": FIELD_MANAGER, **params}
        if body is not None:
            options |= {"body": encode(body), "content_type": content_type}
        send = self.client.json if serialize else self.client.request
        return await send(method.upper(), path, query=_query(params), **options)

    async def find(
        self, resource: ApiResource, name: str, namespace: str = "", **params: Any
    ) -> Object | None:
        """Return an object, or None if it does not exist."""
        try:
            return await resource.get(name, namespace, **params)
        except NotFound:
            return None

    async def merge(
        self, resource: ApiResource, patch: Any, name: str, namespace: str = "", **params: Any
    ) -> Any:
        """Send a merge patch, which all kinds support."""
        return await self.patch(  # type: ignore[no-untyped-call]
            resource, patch, name, namespace, content_type=MERGE_PATCH, **params
        )

    def stream(
        self,
        resource: ApiResource,
        namespace: str = "",
        *,
        accept: str,
        idle: float,
        total: float | None = None,
        **params: Any,
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a watch and yield its raw lines; the library's own verb would decode them."""
        path, query = resource.path(namespace=namespace), _query({"watch": "1", **params})
        lines: AbstractAsyncContextManager[AsyncIterator[bytes]] = self.client.stream(
            path, query=query, accept=accept, idle=idle, total=total
        )
        return lines


def _query(params: Mapping[str, Any]) -> dict[str, str]:
    given = ((name, value) for name, value in params.items() if value not in {None, ""})
    return {_parameter(name): str(value) for name, value in given}


@lru_cache
def _parameter(name: str) -> str:
    """Return the API server's name of a library parameter, for example ``fieldManager``."""
    head, *words = name.lstrip("_").split("_")
    return "force" if name == "force_conflicts" else head + "".join(map(str.capitalize, words))


def _segment(text: str) -> str:
    # The API server decodes %2F before it splits a path, so quoting does not protect.
    if text in {".", ".."} or "/" in text or "%" in text:
        raise Invalid(f"{text!r} is not a name")
    try:
        return quote(text, safe=_SAFE)
    except UnicodeEncodeError as error:
        raise Invalid(f"{text!r} is not a name") from error
