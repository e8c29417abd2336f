"""The `Loader` port on the objects of the in-memory cluster."""

from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from reconciler.api.account import ServiceAccount
from reconciler.api.meta import Kind, Object, split_api_version
from reconciler.engine.loads import (
    ApiLoad,
    ConfigMapLoad,
    CueLoad,
    GlobalLoad,
    Load,
    ObjectLoad,
    ServiceLoad,
)
from reconciler.errors import Invalid, NoKindMatch, NotFound
from reconciler.memory.cluster import MemoryCluster
from reconciler.services.ports.objects import kind_of

_ALL = 1_000_000_000
_SHORTEST = 3  # /apis/GROUP/VERSION


class MemoryLoader:
    """Loads objects, ConfigMaps and GET paths of the API server, and refuses services."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster

    def acting_as(self, account: ServiceAccount | None) -> Self:
        """Return itself, since the in-memory cluster has no accounts."""
        del account
        return self

    async def load(self, load: Load) -> Any:
        """Return the data that a context entry asks for."""
        match load:
            case ConfigMapLoad():
                (kind,) = await self._cluster.find("v1", "ConfigMap")
                found = await self._cluster.get(kind, load.namespace, load.name)
                return {"data": found.get("data") or {}, "metadata": found["metadata"]}
            case ObjectLoad():
                return await self._read(load)
            case ApiLoad(method="GET"):
                return await self._get(load.path)
            case ApiLoad():
                raise _refused(f"{load.method} {load.path}")
            case ServiceLoad():
                raise _refused(f"service {urlsplit(load.url).hostname or ''}")
            case CueLoad():
                raise Invalid("nothing evaluates CUE here", status=400)
            case GlobalLoad():
                raise _refused(f"GlobalContextEntry {load.name}")

    async def _read(self, load: ObjectLoad) -> Object | None:
        kind = kind_of(load, await self._cluster.find(load.api_version, load.kind))
        if not load.labels:
            namespace = load.namespace if kind.namespaced else ""
            return await self._cluster.get(kind, namespace, load.name)
        page = await self._cluster.list_page(
            kind, namespace=load.namespace, labels=load.labels, limit=_ALL
        )
        return next(iter(page.items), None)

    async def _get(self, path: str) -> Object:
        address, _, query = path.partition("?")
        parts = [part for part in unquote(address).split("/") if part]
        api_version, rest = _split(parts)
        namespace = ""
        if rest[:1] == ["namespaces"] and len(rest) > 2:  # noqa: PLR2004 - name and resource
            namespace, rest = rest[1], rest[2:]
        if not rest:
            raise NoKindMatch(f"{path} names no resource", status=404)
        kind = await self._kind(api_version, rest[0], path)
        if len(rest) > 2 and rest[2:] != ["status"]:  # noqa: PLR2004 - below a name
            raise _refused(f"GET {path}")
        if len(rest) > 1:
            return await self._cluster.get(kind, namespace, rest[1])
        asked = {key: values[0] for key, values in parse_qs(query).items()}
        page = await self._cluster.list_page(
            kind,
            namespace=namespace,
            labels=asked.get("labelSelector", ""),
            fields=asked.get("fieldSelector", ""),
            limit=_ALL,
        )
        return {
            "apiVersion": kind.api_version,
            "kind": f"{kind.kind}List",
            "items": list(page.items),
        }

    async def _kind(self, api_version: str, plural: str, path: str) -> Kind:
        group, version = split_api_version(api_version)
        found = await self._cluster.of_resource(group, version, plural)
        if found is None:
            raise NoKindMatch(f"{path}: {plural} of {api_version} is not known", status=404)
        return found


def _refused(what: str) -> Invalid:
    return Invalid(f"{what}: only reads of objects work without a cluster", status=400)


def _split(parts: list[str]) -> tuple[str, list[str]]:
    if parts[:1] == ["api"] and len(parts) > 1:
        return parts[1], parts[2:]
    if parts[:1] == ["apis"] and len(parts) >= _SHORTEST:
        return "/".join(parts[1:3]), parts[3:]
    raise NotFound(f"/{'/'.join(parts)} is not a path of the API", status=404)
