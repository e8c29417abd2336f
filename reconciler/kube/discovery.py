"""The `Kinds` port: discovery, held in memory and read again when it does not know an answer.

One aggregated request per root (``/api``, ``/apis``) gives everything; servers that do not offer
it are asked group by group.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from reconciler.api.meta import Kind, split_api_version
from reconciler.clock import Clock
from reconciler.engine.values.wildcard import has_wildcard, matches
from reconciler.errors import ClusterError
from reconciler.kube.client import JSON, Client

_AGGREGATED = ",".join(
    f"{JSON};g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
    for version in ("v2", "v2beta1")
)
_ACCEPT = f"{_AGGREGATED},{JSON}"
_FIRST_PAUSE = 2.0
_LONGEST_PAUSE = 10.0
_LONGEST_AGE = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One resource or subresource in one version.

    Attributes:
        preferred: Its version is the first of its group that has the resource.
    """

    kind: Kind
    preferred: bool
    verbs: frozenset[str]


class KubeKinds:
    """What the cluster serves.

    A name that is not found makes it look again, at most every two seconds and ever more
    seldom, up to ten, for a name that stays unknown. What is known is looked up again after five
    minutes, or when `invalidate` says that a CustomResourceDefinition changed.
    """

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._served: tuple[Served, ...] = ()
        self._by_resource: dict[tuple[str, str, str, str], Kind] = {}
        self._answers: dict[tuple[str, str], tuple[Kind, ...]] = {}
        self._read_at = clock.monotonic()
        # How often everything was asked for anew, and which of these requests is answered.
        self._wanted, self._have = 1, 0
        self._missed: dict[tuple[str, str], tuple[float, float]] = {}
        self._reading: asyncio.Task[None] | None = None

    def invalidate(self) -> None:
        """Read everything again before the next answer."""
        self._wanted += 1
        self._missed.clear()

    async def find(self, api_version: str, kind: str) -> tuple[Kind, ...]:
        """Return the served resources that a target's ``apiVersion`` and ``kind`` name.

        A kind with a wildcard finds only what can be listed and changed; a version ``*`` gives
        each resource once, in its preferred version.
        """
        key = (api_version, kind)
        await self._refresh(older_than=_LONGEST_AGE)
        found = self._look_up(key)
        if not found and self._may_look_again(key):
            await self._refresh(older_than=_FIRST_PAUSE)
            found = self._look_up(key)
        if found:
            self._missed.pop(key, None)
        return found

    async def of_resource(self, group: str, version: str, plural: str) -> Kind | None:
        """Return the kind behind a resource name, None where it is not served."""
        wanted = (group, version, *_split(plural, "/"))
        key = (f"{group}/{version}", f"resource {plural}")
        for age in (_LONGEST_AGE, _FIRST_PAUSE):
            if age == _FIRST_PAUSE and not self._may_look_again(key):
                break
            await self._refresh(older_than=age)
            if wanted in self._by_resource:
                return self._by_resource[wanted]
        return None

    async def scope(self) -> Callable[[str, str], bool | None]:
        """Return what tells whether ``apiVersion`` and ``kind`` are namespaced.

        Its answer is None where nothing is served by that name, or several things that differ.
        """
        await self._refresh(older_than=_LONGEST_AGE)

        def namespaced(api_version: str, kind: str) -> bool | None:
            found = {item.namespaced for item in self._look_up((api_version, kind))}
            return found.pop() if len(found) == 1 else None

        return namespaced

    def _look_up(self, key: tuple[str, str]) -> tuple[Kind, ...]:
        if key not in self._answers:
            found = tuple(select(self._served, *key))
            if not found:
                return ()
            self._answers[key] = found
        return self._answers[key]

    def _may_look_again(self, key: tuple[str, str]) -> bool:
        if self._reading is not None:
            return True  # Somebody is looking already; that answer is waited for.
        now = self._clock.monotonic()
        not_before, pause = self._missed.get(key, (now, _FIRST_PAUSE / 2))
        if now < not_before:
            return False
        pause = min(pause * 2, _LONGEST_PAUSE)
        self._missed[key] = (now + pause, pause)
        return True

    async def _refresh(self, *, older_than: float) -> None:
        if not self._fresh(older_than) and self._reading is not None:
            # It may have begun too early for who asks now.
            await asyncio.shield(self._reading)
        if self._fresh(older_than):
            return
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_anew(), name="discovery")
            # All who wait for it may have given up by the time it fails.
            self._reading.add_done_callback(self._ended)
        await asyncio.shield(self._reading)

    def _ended(self, reading: asyncio.Task[None]) -> None:
        self._reading = None
        if not reading.cancelled():
            reading.exception()

    async def _read_anew(self) -> None:
        asked, started = self._wanted, self._clock.monotonic()
        try:
            served = await self._read()
        except ClusterError:
            if self._have != self._wanted:
                raise
            return  # What is known still answers; what is not is asked for again.
        self._have = asked
        self._served, self._answers, self._read_at = served, {}, started
        self._by_resource = {
            (kind.group, kind.version, kind.plural, kind.subresource): kind
            for kind in (item.kind for item in served)
        }

    def _fresh(self, older_than: float) -> bool:
        # Not before the answer is here: who asks meanwhile has to wait for it.
        current = self._have == self._wanted
        return current and self._clock.monotonic() - self._read_at < older_than

    async def _read(self) -> tuple[Served, ...]:
        roots = await asyncio.gather(
            self._client.json("GET", "/api", accept=_ACCEPT),
            self._client.json("GET", "/apis", accept=_ACCEPT),
        )
        served: list[Served] = []
        for root in roots:
            if root.get("kind") == "APIGroupDiscoveryList":
                served.extend(_aggregated(root))
            else:
                served.extend(await self._group_by_group(root))
        return tuple(served)

    async def _group_by_group(self, root: Mapping[str, Any]) -> list[Served]:
        if "versions" in root:
            groups = [("", [str(version) for version in root["versions"]])]
        else:
            groups = [(group["name"], _versions_of(group)) for group in root.get("groups") or ()]
        places = [(group, version) for group, versions in groups for version in versions]
        lists = await asyncio.gather(*(self._resources_of(*place) for place in places))
        return _mark_preferred(item for items in lists for item in items)

    async def _resources_of(self, group: str, version: str) -> list[Served]:
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        try:
            answer = await self._client.json("GET", path)
        except ClusterError:
            # An aggregated API that is down must not hide the others.
            old = (item for item in self._served if item.kind.group == group)
            return [item for item in old if item.kind.version == version]
        return list(_listed(group, version, answer.get("resources") or ()))


def select(served: Iterable[Served], api_version: str, kind: str) -> Iterator[Kind]:
    """Yield what ``apiVersion`` and ``kind`` name, as `KubeKinds.find` describes it."""
    group, version = split_api_version(api_version)
    if version == "*" and "/" not in api_version:
        group = "*"
    name, subresource = _split(kind, "/")
    for item in served:
        if (
            _named(item.kind, (group, version, name, subresource))
            and (not has_wildcard(version) or item.preferred)
            and (not has_wildcard(kind) or _changeable(item))
        ):
            yield item.kind


def _named(kind: Kind, wanted: tuple[str, str, str, str]) -> bool:
    parts = (kind.group, kind.version, kind.kind, kind.subresource)
    # A wildcard never leads from an object to a subresource; that part has to be named.
    return bool(wanted[3]) == bool(kind.subresource) and all(map(matches, wanted, parts))


def _changeable(item: Served) -> bool:
    readable = item.kind.subresource or "list" in item.verbs
    return bool(readable and "get" in item.verbs and item.verbs & {"patch", "update"})


def _split(text: str, mark: str) -> tuple[str, str]:
    head, _, tail = text.partition(mark)
    return head, tail


def _versions_of(group: Mapping[str, Any]) -> list[str]:
    preferred = (group.get("preferredVersion") or {}).get("version")
    versions = [str(item["version"]) for item in group.get("versions") or ()]
    return sorted(versions, key=lambda version: version != preferred)


def _aggregated(root: Mapping[str, Any]) -> list[Served]:
    found: list[Served] = []
    for group in root.get("items") or ():
        name = str((group.get("metadata") or {}).get("name") or "")
        for version in group.get("versions") or ():
            for resource in version.get("resources") or ():
                found.extend(_of_aggregated(name, str(version["version"]), resource))
    return _mark_preferred(found)


def _of_aggregated(group: str, version: str, resource: Mapping[str, Any]) -> Iterator[Served]:
    kind = Kind(
        group=group,
        version=version,
        kind=str((resource.get("responseKind") or {}).get("kind") or ""),
        plural=str(resource["resource"]),
        namespaced=resource.get("scope") == "Namespaced",
    )
    yield _served(kind, resource)
    for item in resource.get("subresources") or ():
        yield _served(replace(kind, subresource=str(item["subresource"])), item)


def _listed(group: str, version: str, resources: Iterable[Any]) -> Iterator[Served]:
    """Read an APIResourceList, where subresources follow as ``plural/subresource``."""
    kinds: dict[str, str] = {}
    for resource in sorted(resources, key=lambda item: "/" in item["name"]):
        plural, subresource = _split(str(resource["name"]), "/")
        kinds.setdefault(plural, str(resource["kind"]))
        kind = Kind(
            group=group,
            version=version,
            kind=kinds[plural],
            plural=plural,
            namespaced=bool(resource.get("namespaced")),
            subresource=subresource,
        )
        yield _served(kind, resource)


def _served(kind: Kind, raw: Mapping[str, Any]) -> Served:
    return Served(kind=kind, preferred=False, verbs=frozenset(raw.get("verbs") or ()))


def _mark_preferred(served: Iterable[Served]) -> list[Served]:
    """Mark the first of each resource; versions come in the server's order of preference."""
    seen: set[tuple[str, str, str]] = set()
    marked = []
    for item in served:
        key = (item.kind.group, item.kind.plural, item.kind.subresource)
        marked.append(replace(item, preferred=key not in seen))
        seen.add(key)
    return marked
