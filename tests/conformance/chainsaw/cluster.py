"""The cluster interface that the runner needs, and its implementation for an API server."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Protocol, Self

import aiohttp
import orjson
from typing_extensions import override

from tests.conformance.kubeconfig import Access

Object = dict[str, Any]

_MERGE = "application/merge-patch+json"
_LIMIT = 500


class ApiError(Exception):
    """The API server refused a request.

    Attributes:
        status: The HTTP status, or 0 if there was no answer.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Ref:
    """A reference to an object or, without a name, to a kind (in a namespace, with labels)."""

    api_version: str
    kind: str
    namespace: str = ""
    name: str = ""
    labels: tuple[tuple[str, str], ...] = ()

    @override
    def __str__(self) -> str:
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.api_version}/{self.kind} {place or '(any)'}"


def ref_of(document: Mapping[str, Any]) -> Ref:
    """Return the reference of a (partial) document, with its labels only if it has no name."""
    meta = document.get("metadata") or document
    name = meta.get("name", "")
    labels = () if name else tuple((meta.get("labels") or {}).items())
    return Ref(
        api_version=document["apiVersion"],
        kind=document["kind"],
        namespace=meta.get("namespace", ""),
        name=name,
        labels=labels,
    )


class Cluster(Protocol):
    """Access to the objects of a cluster, whose methods all raise `ApiError`."""

    async def qualify(self, ref: Ref, namespace: str) -> Ref:
        """Return the reference with a namespace if its kind has one, or else without."""
        ...

    async def get(self, ref: Ref) -> Object | None:
        """Return one object, or None if it does not exist."""
        ...

    async def candidates(self, ref: Ref) -> list[Object]:
        """Return the object that a reference names, or all objects that match it."""
        ...

    async def create(self, ref: Ref, document: Object) -> Object:
        """Create an object."""
        ...

    async def merge(self, ref: Ref, patch: Object) -> Object:
        """Change an object with a JSON merge patch."""
        ...

    async def replace(self, ref: Ref, document: Object) -> Object:
        """Replace a whole object."""
        ...

    async def delete(self, ref: Ref) -> None:
        """Request the deletion of an object, which need not exist."""
        ...


class ApiServer:
    """A `Cluster` over HTTP, usable as an asynchronous context manager."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._session: aiohttp.ClientSession | None = None
        self._kinds: dict[tuple[str, str], tuple[str, bool]] = {}

    async def __aenter__(self) -> Self:
        """Open the session."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._access.trust),
            headers=self._access.headers,
            timeout=aiohttp.ClientTimeout(total=30.0),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the session."""
        if self._session is not None:
            await self._session.close()

    async def qualify(self, ref: Ref, namespace: str) -> Ref:
        """See `Cluster`."""
        _, namespaced = await self._find(ref)
        if not namespaced:
            return replace(ref, namespace="")
        return ref if ref.namespace else replace(ref, namespace=namespace)

    async def get(self, ref: Ref) -> Object | None:
        """See `Cluster`."""
        try:
            return await self._call("GET", await self._path(ref))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def candidates(self, ref: Ref) -> list[Object]:
        """See `Cluster`."""
        if ref.name:
            found = await self.get(ref)
            return [] if found is None else [found]
        query = {"limit": str(_LIMIT)}
        if ref.labels:
            query["labelSelector"] = ",".join(f"{key}={value}" for key, value in ref.labels)
        items: list[Object] = []
        while True:
            page = await self._call("GET", await self._path(ref), query=query)
            items += page.get("items") or []
            query["continue"] = page["metadata"].get("continue", "")
            if not query["continue"]:
                # The items of a list lack apiVersion and kind.
                what = {"apiVersion": ref.api_version, "kind": ref.kind}
                return [{**what, **item} for item in items]

    async def create(self, ref: Ref, document: Object) -> Object:
        """See `Cluster`."""
        path = await self._path(replace(ref, name=""))
        return await self._call("POST", path, document=document)

    async def merge(self, ref: Ref, patch: Object) -> Object:
        """See `Cluster`."""
        return await self._call("PATCH", await self._path(ref), document=patch, media=_MERGE)

    async def replace(self, ref: Ref, document: Object) -> Object:
        """See `Cluster`."""
        return await self._call("PUT", await self._path(ref), document=document)

    async def delete(self, ref: Ref) -> None:
        """See `Cluster`."""
        # Without a kubelet, no component confirms that a pod on a node has ended.
        options = {"propagationPolicy": "Background", "gracePeriodSeconds": 0}
        try:
            await self._call("DELETE", await self._path(ref), document=options)
        except ApiError as error:
            if error.status != 404:
                raise

    async def _path(self, ref: Ref) -> str:
        plural, _ = await self._find(ref)
        parts = [_prefix(ref.api_version)]
        if ref.namespace:
            parts += ["namespaces", ref.namespace]
        parts.append(plural)
        if ref.name:
            parts.append(ref.name)
        return "/".join(parts)

    async def _find(self, ref: Ref) -> tuple[str, bool]:
        key = (ref.api_version, ref.kind)
        if key not in self._kinds:
            # Only served kinds are cached: a test may install the kind that it uses.
            for entry in await self._served(ref.api_version):
                if "/" not in entry["name"]:
                    what = (entry["name"], entry["namespaced"])
                    self._kinds[ref.api_version, entry["kind"]] = what
        if key not in self._kinds:
            raise ApiError(0, f"the cluster serves no {ref.kind} in {ref.api_version}")
        return self._kinds[key]

    async def _served(self, api_version: str) -> list[Object]:
        try:
            answer = await self._call("GET", _prefix(api_version))
        except ApiError as error:
            if error.status == 404:
                # With status 404 the caller would believe that an object is absent, not its kind.
                raise ApiError(0, f"the cluster serves no {api_version}") from error
            raise
        resources: list[Object] = answer["resources"]
        return resources

    async def _call(
        self,
        method: str,
        path: str,
        *,
        document: Object | None = None,
        media: str = "application/json",
        query: dict[str, str] | None = None,
    ) -> Object:
        assert self._session is not None, "used outside of its context"
        try:
            async with self._session.request(
                method,
                f"{self._access.server}{path}",
                params=query,
                data=None if document is None else orjson.dumps(document),
                headers={"Content-Type": media},
            ) as response:
                body = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ApiError(0, f"{method} {path}: {error!r}") from error
        if response.status >= 400:
            raise ApiError(response.status, _message(body))
        answer: Object = orjson.loads(body)
        return answer


def _prefix(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def _message(body: bytes) -> str:
    try:
        return str(orjson.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")
