"""The `Kinds` port: discovery, cached in memory and read again on a miss.

One aggregated request per root (``/api``, ``/apis``) returns everything. The library sends a
request per group and version, and treats a failing group as one that serves nothing.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from reconciler.api.meta import Kind, split_api_version
from reconciler.clock import Clock
from reconciler.engine.values.wildcard import has_wildcard, matches
from reconciler.errors import ClusterError, Unavailable
from reconciler.kube.client import Client
from reconciler.kube.decoding import JSON

T = TypeVar("T")

_LIST = "APIGroupDiscoveryList"
_ACCEPT = f"{JSON};g=apidiscovery.k8s.io;v=v2;as={_LIST},{JSON}"
_FIRST_PAUSE = 2.0
_LONGEST_PAUSE = 10.0
_LONGEST_AGE = 300.0
_MOST_MISSED = 1000
_LONGEST_NAME = 600
"""Characters; groups, resources and kinds have at most 253, versions and subresources 63."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One resource or subresource in one version.

    Attributes:
        preferred: Whether its version is the first of its group that serves the resource.
        aliases: Singular and short names.
    """

    kind: Kind
    preferred: bool
    verbs: frozenset[str]
    aliases: frozenset[str]


class KubeKinds:
    """The kinds that the cluster serves.

    A name that is not found triggers another discovery, at most every two seconds, and for a name
    that stays unknown less and less often, up to every ten. Names that callers invent do not
    accumulate: a thousand are remembered, and one that is too long for any kind is not looked up
    again. Cached results are read again after five minutes, after a call that shows that a kind is
    no longer served, and after `invalidate`, which is called when a CustomResourceDefinition
    changes.
    """

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._served: tuple[Served, ...] = ()
        self._by_resource: dict[tuple[str, str, str, str], Kind] = {}
        self._answers: dict[tuple[str, str], tuple[Kind, ...]] = {}
        self._read_at = clock.monotonic()
        # How many discoveries were requested, and which of these requests is answered.
        self._wanted, self._have = 1, 0
        self._missed: dict[tuple[str, str], tuple[float, float]] = {}
        self._reading: asyncio.Task[None] | None = None
        client.unserved.subscribe(self._doubt)

    def invalidate(self) -> None:
        """Mark the cached discovery as stale, so that the next lookup reads it again."""
        self._wanted += 1
        self._missed.clear()

    def _doubt(self) -> None:
        if self._clock.monotonic() - self._read_at >= _FIRST_PAUSE:
            self.invalidate()

    async def find(self, api_version: str, kind: str) -> tuple[Kind, ...]:
        """Return the served resources that a target's ``apiVersion`` and ``kind`` name.

        A kind with a wildcard matches only what can be listed and changed; a version ``*``
        returns each resource once, in its preferred version.
        """
        key = (api_version, kind)
        return await self._found(key, lambda: self._look_up(key)) or ()

    async def of_resource(self, group: str, version: str, plural: str) -> Kind | None:
        """Return the kind of a resource name, or None if it is not served."""
        wanted = (group, version, *_split(plural))
        key = (f"{group}/{version}", f"resource {plural}")
        return await self._found(key, lambda: self._by_resource.get(wanted))

    async def named(self, api_version: str, name: str) -> Kind | None:
        """Return the kind for a kind name, plural, singular or short name; None if not served."""
        key = (f"{api_version} alias", name)
        return await self._found(key, lambda: call(self._served, api_version, name))

    async def scope(self) -> Callable[[str, str], bool | None]:
        """Return a function that reports whether ``apiVersion`` and ``kind`` are namespaced.

        It returns None if nothing is served by that name, or several resources that differ.
        """
        await self._refresh(older_than=_LONGEST_AGE)

        def namespaced(api_version: str, kind: str) -> bool | None:
            found = {item.namespaced for item in self._look_up((api_version, kind))}
            return found.pop() if len(found) == 1 else None

        return namespaced

    async def _found(self, key: tuple[str, str], look_up: Callable[[], T | None]) -> T | None:
        await self._refresh(older_than=_LONGEST_AGE)
        found = look_up()
        if not found and self._may_look_again(key):
            await self._refresh(older_than=_FIRST_PAUSE)
            found = look_up()
        if found:
            self._missed.pop(key, None)
        return found

    def _look_up(self, key: tuple[str, str]) -> tuple[Kind, ...]:
        if key not in self._answers:
            found = tuple(select(self._served, *key))
            if not found:
                return ()
            self._answers[key] = found
        return self._answers[key]

    def _may_look_again(self, key: tuple[str, str]) -> bool:
        if self._reading is not None:
            return True  # A discovery is running already; wait for its result.
        if max(map(len, key)) > _LONGEST_NAME:
            return False
        now = self._clock.monotonic()
        not_before, pause = self._missed.get(key, (now, _FIRST_PAUSE / 2))
        if now < not_before:
            return False
        pause = min(pause * 2, _LONGEST_PAUSE)
        if len(self._missed) >= _MOST_MISSED:
            self._missed.clear()
        self._missed[key] = (now + pause, pause)
        return True

    async def _refresh(self, *, older_than: float) -> None:
        if not self._fresh(older_than) and self._reading is not None:
            # The running discovery may have started too early for this caller.
            await asyncio.shield(self._reading)
        if self._fresh(older_than):
            return
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_anew(), name="discovery")
            # All callers that wait for the task may be cancelled by the time it fails.
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
            return  # The cached result stays valid; unknown names are looked up again later.
        self._have = asked
        self._served, self._answers, self._read_at = served, {}, started
        self._by_resource = {
            (kind.group, kind.version, kind.plural, kind.subresource): kind
            for kind in (item.kind for item in served)
        }

    def _fresh(self, older_than: float) -> bool:
        # False until the answer has arrived, so that callers meanwhile wait for it.
        current = self._have == self._wanted
        return current and self._clock.monotonic() - self._read_at < older_than

    async def _read(self) -> tuple[Served, ...]:
        roots = await asyncio.gather(*map(self._root, ("/api", "/apis")))
        return tuple(_served(group for root in roots for group in root))

    async def _root(self, path: str) -> Sequence[Mapping[str, Any]]:
        answer = await self._client.json("GET", path, accept=_ACCEPT)
        if answer.get("kind") != _LIST:
            msg = f"get {path}: no aggregated discovery is served; Kubernetes 1.31 or newer has it"
            raise Unavailable(msg)
        return answer.get("items") or ()


def select(served: Iterable[Served], api_version: str, kind: str) -> Iterator[Kind]:
    """Yield the kinds that ``apiVersion`` and ``kind`` name, as `KubeKinds.find` describes."""
    group, version = split_api_version(api_version)
    if version == "*" and "/" not in api_version:
        group = "*"
    name, subresource = _split(kind)
    for item in served:
        if (
            _named(item.kind, (group, version, name, subresource))
            and (not has_wildcard(version) or item.preferred)
            and (not has_wildcard(kind) or _changeable(item))
        ):
            yield item.kind


def call(served: Iterable[Served], api_version: str, name: str) -> Kind | None:
    """Return the first kind with a given name, as `KubeKinds.named` describes."""
    wanted = name.lower()
    for item in served:
        kind = item.kind
        if kind.subresource or not (api_version or item.preferred):
            continue
        if api_version in {"", kind.api_version} and (
            wanted in {kind.kind.lower(), kind.plural} or wanted in item.aliases
        ):
            return kind
    return None


def _named(kind: Kind, wanted: tuple[str, str, str, str]) -> bool:
    parts = (kind.group, kind.version, kind.kind, kind.subresource)
    # A wildcard never leads from a resource to a subresource, which has to be named.
    return bool(wanted[3]) == bool(kind.subresource) and all(map(matches, wanted, parts))


def _changeable(item: Served) -> bool:
    readable = item.kind.subresource or "list" in item.verbs
    return bool(readable and "get" in item.verbs and item.verbs & {"patch", "update"})


def _split(text: str) -> tuple[str, str]:
    head, _, tail = text.partition("/")
    return head, tail


def _served(groups: Iterable[Mapping[str, Any]]) -> Iterator[Served]:
    """Yield all resources; the server orders the versions of a group by preference."""
    seen: set[tuple[str, str, str]] = set()
    for kind, raw in (pair for group in groups for pair in _kinds_in(group)):
        key = (kind.group, kind.plural, kind.subresource)
        aliases = {str(raw.get("singularResource") or ""), *(raw.get("shortNames") or ())} - {""}
        yield Served(
            kind=kind,
            preferred=key not in seen,
            verbs=frozenset(raw.get("verbs") or ()),
            aliases=frozenset(aliases),
        )
        seen.add(key)


def _kinds_in(group: Mapping[str, Any]) -> Iterator[tuple[Kind, Mapping[str, Any]]]:
    """Yield the resources and subresources of a group, as described by the server."""
    name = str((group.get("metadata") or {}).get("name") or "")
    for version in group.get("versions") or ():
        for resource in version.get("resources") or ():
            kind = Kind(
                group=name,
                version=str(version["version"]),
                kind=str((resource.get("responseKind") or {}).get("kind") or ""),
                plural=str(resource["resource"]),
                namespaced=resource.get("scope") == "Namespaced",
            )
            yield kind, resource
            for item in resource.get("subresources") or ():
                yield replace(kind, subresource=str(item["subresource"])), item
