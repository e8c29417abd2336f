"""An in-memory cluster: resource versions, conflicts, pages, subresources.

It has no schemas, defaults, admission or garbage collection. Otherwise it behaves as the contract
suite requires of both adapters.
"""

import copy
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Self

from reconciler.api.account import ServiceAccount
from reconciler.api.meta import FIELD_MANAGER, Kind, Object, resource_version
from reconciler.api.updaterequest import render_time
from reconciler.clock import Clock, SystemClock
from reconciler.engine.patch.diff import equal
from reconciler.errors import AlreadyExists, Conflict, Invalid, NoKindMatch, NotFound
from reconciler.memory.kinds import REQUESTS, MemoryKinds
from reconciler.memory.selectors import compile_fields, compile_labels
from reconciler.services.ports.objects import Page

Key = tuple[str, str, str, str]
"""Group, plural, namespace and name of an object."""

_FIELDS = frozenset({"metadata.name", "metadata.namespace"})
_REQUEST_FIELDS = _FIELDS | {
    "status.state",
    "status.removeAfter",
    "spec.policy",
    "spec.rule",
    "spec.source",
}
_IDENTITY = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp")


class MemoryCluster(MemoryKinds):
    """The `Kinds`, `Reader` and `Writer` ports in one, and methods that arrange the objects."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__()
        self._clock = clock or SystemClock()
        self._objects: dict[Key, Object] = {}
        self._order: dict[tuple[str, str], list[Key]] = {}
        self._version = 0

    def acting_as(self, account: ServiceAccount | None) -> Self:
        """Return itself, since the in-memory cluster has no accounts."""
        del account
        return self

    def add(self, obj: Object) -> Object:
        """Store an object from a file, and serve its kind if necessary; return it as stored.

        An unknown kind gets the plural that most kinds have, and is namespaced where the object
        names a namespace.

        Raises:
            AlreadyExists: An object of that name exists.
        """
        api_version, name = str(obj.get("apiVersion", "")), str(obj.get("kind", ""))
        if name == "CustomResourceDefinition":
            self.serve_definition(obj)
        kind = self.exact(api_version, name)
        if kind is None:
            group, _, version = api_version.rpartition("/")
            namespaced = bool((obj.get("metadata") or {}).get("namespace"))
            kind = Kind(
                group=group,
                version=version,
                kind=name,
                plural=f"{name.lower()}s",
                namespaced=namespaced,
            )
            self.serve(kind, replace(kind, subresource="status"))
        return self.create(kind, obj)

    def create(self, kind: Kind, obj: Object) -> Object:
        """Store a new object.

        Raises:
            AlreadyExists: An object of that name exists.
        """
        meta = obj.get("metadata") or {}
        place = str(meta.get("namespace") or "default") if kind.namespaced else ""
        key = self._key(kind, place, str(meta.get("name", "")))
        if key in self._objects:
            raise AlreadyExists(f'{kind.resource} "{meta["name"]}" already exists', status=409)
        stored = copy.deepcopy(obj)
        meta = stored["metadata"]
        meta |= {"namespace": place} if place else {}
        meta.setdefault("uid", str(uuid.uuid5(uuid.NAMESPACE_OID, f"{key}{self._version}")))
        meta.setdefault("creationTimestamp", render_time(self._clock.now().replace(microsecond=0)))
        meta["generation"] = 1
        return self._store(key, stored)

    def delete(self, kind: Kind, namespace: str, name: str) -> None:
        """Remove an object, or mark it as terminating while it has finalizers."""
        key = self._key(kind, namespace, name)
        stored = self._stored(key, kind)
        if stored["metadata"].get("finalizers"):
            stored = copy.deepcopy(stored)
            now = render_time(self._clock.now().replace(microsecond=0))
            stored["metadata"].setdefault("deletionTimestamp", now)
            self._store(key, stored)
        else:
            self._remove(key)

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """Return the object, or its subresource for a kind with a subresource."""
        return self._seen(kind, self._stored(self._key(kind, namespace, name), kind))

    async def list_page(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        limit: int = 500,
        token: str = "",
    ) -> Page:
        """Return one page; an empty namespace means all. Items carry apiVersion and kind."""
        self._require(kind)
        found = [
            obj
            for obj in self._select(kind, namespace, labels, fields)
            if not token or _place(obj) > token
        ]
        page, rest = found[:limit], found[limit:]
        return Page(
            items=tuple(self._seen(kind, obj) for obj in page),
            token=_place(page[-1]) if rest else "",
            remaining=len(rest),
            resource_version=str(self._version),
        )

    async def change(
        self, kind: Kind, before: Object, after: Object, *, manager: str = FIELD_MANAGER
    ) -> Object:
        """Write the difference between two states of an object; return the new object.

        Field managers are not tracked here.
        """
        del manager
        if not resource_version(before):
            raise Invalid(f"{kind.kind}: an object without resourceVersion cannot be guarded")
        if equal(before, after):
            return before
        meta = before["metadata"]
        key = self._key(kind, str(meta.get("namespace", "")), str(meta.get("name", "")))
        stored = self._stored(key, kind)
        if resource_version(stored) != resource_version(before):
            raise Conflict(f'{kind.resource} "{key[3]}": the object has been modified', status=409)
        new = self._merged(kind, stored, copy.deepcopy(after))
        if equal(new, stored):
            return self._seen(kind, stored)
        if "deletionTimestamp" in new["metadata"] and not new["metadata"].get("finalizers"):
            self._remove(key)
            return self._seen(kind, new)
        return self._seen(kind, self._store(key, new))

    def _merged(self, kind: Kind, stored: Object, after: Object) -> Object:
        if kind.subresource == "scale":
            replicas = (after.get("spec") or {}).get("replicas", 0)
            new = {**stored, "spec": {**(stored.get("spec") or {}), "replicas": replicas}}
        elif kind.subresource == "status":
            new = _with_part(stored, "status", after)
        elif self.serves(replace(kind, subresource="status")):
            new = _with_part(after, "status", stored)
        else:
            new = after
        old = stored["metadata"]
        kept = {name: old[name] for name in (*_IDENTITY, "resourceVersion") if name in old}
        meta = old if kind.subresource else {**(after.get("metadata") or {}), **kept}
        same = equal(_content(new), _content(stored))
        generation = old.get("generation", 1) + (not same)
        head = {"apiVersion": stored["apiVersion"], "kind": stored["kind"]}
        return {**new, **head, "metadata": {**meta, "generation": generation}}

    def _seen(self, kind: Kind, stored: Object) -> Object:
        obj = copy.deepcopy(stored)
        if kind.subresource != "scale":
            return {**obj, "apiVersion": kind.api_version, "kind": kind.kind}
        meta = obj["metadata"]
        keys = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        replicas = (obj.get("spec") or {}).get("replicas", 1)
        return {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {name: meta[name] for name in keys if name in meta},
            "spec": {"replicas": replicas},
            "status": {"replicas": (obj.get("status") or {}).get("replicas", 0)},
        }

    def _select(self, kind: Kind, namespace: str, labels: str, fields: str) -> Iterator[Object]:
        known = _REQUEST_FIELDS if kind == REQUESTS else _FIELDS
        wanted_labels, wanted_fields = compile_labels(labels), compile_fields(fields, known)
        for key in self._keys(kind.group, kind.plural):
            if namespace and key[2] != namespace:
                continue
            obj = self._objects[key]
            if wanted_labels(obj["metadata"].get("labels") or {}) and wanted_fields(obj):
                yield obj

    def _keys(self, group: str, plural: str) -> list[Key]:
        # Lists are requested far more often than objects are created and removed.
        known = self._order.get((group, plural))
        if known is None:
            found = [key for key in self._objects if key[:2] == (group, plural)]
            # Ordered as in etcd, by the text "namespace/name": "a-b/x" comes before "a/x".
            known = sorted(found, key=lambda key: "/".join(key[2:]))
            self._order[group, plural] = known
        return list(known)

    def _remove(self, key: Key) -> Object:
        self._version += 1
        self._order.pop(key[:2], None)
        return self._objects.pop(key)

    def _require(self, kind: Kind) -> None:
        if not self.serves(kind):
            raise NoKindMatch(f"the cluster does not serve {kind.resource}", status=404)

    def _key(self, kind: Kind, namespace: str, name: str) -> Key:
        self._require(kind)
        if not name or (kind.namespaced and not namespace):
            part = "namespace" if name else "name"
            raise Invalid(f"{kind.kind} {namespace}/{name}: the {part} is empty")
        return kind.group, kind.plural, namespace if kind.namespaced else "", name

    def _stored(self, key: Key, kind: Kind) -> Object:
        try:
            return self._objects[key]
        except KeyError:
            raise NotFound(f'{kind.resource} "{key[3]}" not found', status=404) from None

    def _store(self, key: Key, obj: Object) -> Object:
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        if key not in self._objects:
            self._order.pop(key[:2], None)
        self._objects[key] = obj
        return copy.deepcopy(obj)


def _place(obj: Object) -> str:
    meta = obj["metadata"]
    return f"{meta.get('namespace', '')}/{meta['name']}"


def _with_part(obj: Object, part: str, other: Object) -> Object:
    rest = {key: value for key, value in obj.items() if key != part}
    return {**rest, part: other[part]} if part in other else rest


def _content(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in {"metadata", "status"}}
