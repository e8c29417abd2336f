"""The objects that rules see in an evaluation on files, and the data of context entries."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from reconciler.api.meta import Kind, Object, ref_of
from reconciler.cli.desk.cue import NO_CUE
from reconciler.engine.loads import ApiLoad, CueLoad, GlobalLoad, Load, ObjectLoad, ServiceLoad
from reconciler.engine.patch import SHIPPED, KeyTable
from reconciler.engine.patch.openapi import read_definitions
from reconciler.errors import AlreadyExists, Invalid, NotFound
from reconciler.memory.cluster import MemoryCluster
from reconciler.memory.kinds import MemoryKinds
from reconciler.memory.loader import MemoryLoader
from reconciler.services.ports.cue import Cue
from reconciler.services.processing.selection import SelectedTarget, TargetFinder

Key = tuple[str, str, str, str]
"""apiVersion, kind, namespace and name."""


def key_of(obj: Mapping[str, Any]) -> Key:
    """Return the key of an object; without a name, its generateName takes the place."""
    ref = ref_of(obj)
    meta = obj.get("metadata") or {}
    return ref.api_version, ref.kind, ref.namespace, ref.name or str(meta.get("generateName", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Given answers to the reads of context entries.

    Attributes:
        calls: Response bodies of API and service calls by method and path or URL.
        entries: Data of GlobalContextEntries by name.
    """

    calls: Mapping[tuple[str, str], Any] = field(default_factory=dict)
    entries: Mapping[str, Any] = field(default_factory=dict)


class Scopes:
    """Sets the namespace ``default`` for namespaced objects without a namespace.

    Attributes:
        moved: The keys of the objects whose namespace was set.
    """

    def __init__(self) -> None:
        self.moved: set[Key] = set()
        self._kinds = MemoryKinds()
        self._known: dict[tuple[str, str], bool] = {}

    def learn(self, obj: Object) -> None:
        """Record the scope of the kind, if the object is a CustomResourceDefinition."""
        if obj["kind"] == "CustomResourceDefinition":
            self._kinds.serve_definition(obj)
            self._known.clear()

    def placed(self, obj: Object) -> Object:
        """Return the object as a cluster would store it."""
        meta = obj["metadata"]
        if meta.get("namespace") or not self._namespaced(obj["apiVersion"], obj["kind"]):
            return obj
        found = {**obj, "metadata": {**meta, "namespace": "default"}}
        self.moved.add(key_of(found))
        return found

    def _namespaced(self, api_version: str, kind: str) -> bool:
        known = self._known.get((api_version, kind))
        if known is None:
            found = self._kinds.exact(api_version, kind)
            known = found is None or found.namespaced
            self._known[api_version, kind] = known
        return known


class FileObjects:
    """Objects by their key, and an in-memory cluster of them that is built when first used."""

    def __init__(
        self,
        objects: Iterable[Object],
        answers: Answers | None = None,
        cue: Cue | None = None,
    ) -> None:
        self.objects: dict[Key, Object] = {}
        for obj in objects:
            self.objects.setdefault(key_of(obj), obj)
        self._answers = answers or Answers()
        self._cue = cue

    @cached_property
    def cluster(self) -> MemoryCluster:
        """The in-memory cluster with all objects."""
        cluster = MemoryCluster()
        definitions = (
            item for item in self.objects.values() if item["kind"] == "CustomResourceDefinition"
        )
        for definition in definitions:
            cluster.serve_definition(definition)
        for obj in self.objects.values():
            if not obj["metadata"].get("name"):
                continue
            try:
                cluster.add(obj)
            except AlreadyExists:
                # The same object was given in another version of its kind.
                continue
        return cluster

    @cached_property
    def keys(self) -> KeyTable:
        """The lists that merge by key; for custom resources, by the definitions in the files."""
        return SHIPPED.with_kinds(read_definitions(self.objects.values()))

    async def merge_keys(self, _api_version: str) -> KeyTable:
        """Return the merge keys of all kinds."""
        return self.keys

    @cached_property
    def finder(self) -> TargetFinder:
        """The finder of targets among the objects."""
        return TargetFinder(kinds=self.cluster, reader=self.cluster)

    async def target(self, found: SelectedTarget) -> Object:
        """Return an object that the finder selected, as `read` does."""
        return await self.read(found.key.kind, found.key.namespace, found.key.name)

    async def labels(self, namespace: str) -> Mapping[str, str]:
        """Return the labels of a Namespace in the files, empty where it is not there."""
        known = self.objects.get(("v1", "Namespace", "", namespace)) or {}
        found: Mapping[str, str] = (known.get("metadata") or {}).get("labels") or {}
        return found

    async def read(self, kind: Kind, namespace: str, name: str) -> Object:
        """Return a target as written in its file, or its ``scale`` from the in-memory cluster.

        Raises:
            NotFound: The object does not exist.
        """
        known = self.objects.get((kind.api_version, kind.kind, namespace, name))
        if known is not None and kind.subresource != "scale":
            return known
        return await self.cluster.get(kind, namespace, name)

    async def load(self, load: Load) -> Any:
        """Return the data that a context entry reads."""
        if isinstance(load, GlobalLoad):
            if load.name not in self._answers.entries:
                text = f"no data is given for the GlobalContextEntry {load.name}"
                raise NotFound(text, status=404)
            return self._answers.entries[load.name]
        if isinstance(load, CueLoad):
            if self._cue is None:
                raise Invalid(NO_CUE, status=400)
            return await self._cue.evaluate(load)
        if isinstance(load, ApiLoad | ServiceLoad):
            place = load.path if isinstance(load, ApiLoad) else load.url
            if (load.method, place) in self._answers.calls:
                return self._answers.calls[load.method, place]
        if isinstance(load, ServiceLoad):
            text = f"{load.url}: services are not called; supply the value of the entry"
            raise Invalid(text, status=400)
        if isinstance(load, ObjectLoad):
            known = self.objects.get((load.api_version, load.kind, load.namespace, load.name))
            # Prefer the object as written: the in-memory cluster adds fields such as uid.
            if known is not None:
                return known
        return await MemoryLoader(self.cluster).load(load)
