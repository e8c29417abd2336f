"""The sources from which an explanation reads objects: files or a cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from reconciler.api.meta import NAMESPACES, Kind, Object
from reconciler.cli.desk.file_objects import FileObjects
from reconciler.cli.desk.live import LiveCluster
from reconciler.cli.desk.live_objects import LiveObjects
from reconciler.engine.targets import TargetQuery
from reconciler.errors import Forbidden, NotFound
from reconciler.services.processing.selection import SelectedTarget

_NAME_LABEL = "kubernetes.io/metadata.name"


class FileObjectSource:
    """A source that reads objects from files.

    Attributes:
        cure: The advice to print where the labels of a namespace are not known.
        absent: The message to print where no object of the wanted kind is found.
    """

    cure = "; give its Namespace in a file"
    absent = "no object of this kind was given; give some with --target"

    def __init__(self, objects: FileObjects, labels: Mapping[str, Mapping[str, str]]) -> None:
        self.objects = objects
        self._labels = labels

    @property
    def known(self) -> Sequence[Object]:
        """All objects."""
        return tuple(self.objects.objects.values())

    async def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """Return the labels from the values, else of the files; None where neither has them."""
        labels = self._labels.get(name)
        if labels is None:
            known = self.objects.objects.get(("v1", "Namespace", "", name))
            if known is None:
                return None
            labels = known["metadata"].get("labels") or {}
        return {_NAME_LABEL: name, **labels}

    def asked(self, found: SelectedTarget) -> bool:
        """Return whether to explain a selected object: all of the given files are."""
        del found
        return True

    async def others(self, query: TargetQuery) -> list[Object]:
        """Return all objects of the queried kind, to explain why they are not selected."""
        cluster = self.objects.cluster
        kinds = {_resource(kind) for kind in await cluster.find(query.api_version, query.kind)}
        found = []
        for obj in self.objects.objects.values():
            kind = cluster.exact(obj["apiVersion"], obj["kind"])
            if kind is not None and _resource(kind) in kinds:
                found.append(obj)
        return found


@dataclass(frozen=True, kw_only=True)
class LiveObjectSource:
    """A source that reads from a cluster.

    Attributes:
        targets: The objects named with ``--target``, with their kinds. Where it is empty, all
            selected objects are explained.
    """

    cluster: LiveCluster
    targets: Sequence[tuple[Kind, Object]] = ()
    cure = "; its Namespace cannot be read"
    absent = "the cluster has no such object"

    @cached_property
    def objects(self) -> LiveObjects:
        """The objects of the cluster, each read once."""
        return LiveObjects(self.cluster)

    @property
    def known(self) -> Sequence[Object]:
        """The objects named with ``--target``."""
        return tuple(obj for _, obj in self.targets)

    async def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace, None where it does not exist or may not be read."""
        try:
            found = await self.cluster.reader.get(NAMESPACES, "", name)
        except (NotFound, Forbidden):
            return None
        return dict(found["metadata"].get("labels") or {})

    def asked(self, found: SelectedTarget) -> bool:
        """Return whether ``--target`` names a selected object, or no object at all."""
        key = (_resource(found.key.kind), found.key.namespace, found.key.name)
        return not self.targets or any(key == _key(kind, obj) for kind, obj in self.targets)

    async def others(self, query: TargetQuery) -> list[Object]:
        """Return the objects of the queried kind that ``--target`` names."""
        served = await self.cluster.kinds.find(query.api_version, query.kind)
        kinds = set(map(_resource, served))
        return [obj for kind, obj in self.targets if _resource(kind) in kinds]


ObjectSource: TypeAlias = FileObjectSource | LiveObjectSource
"""The objects that rules read, and what is known of them before the explanation starts."""


def _resource(kind: Kind) -> tuple[str, str]:
    return kind.group, kind.plural


def _key(kind: Kind, obj: Object) -> tuple[tuple[str, str], str, str]:
    meta = obj["metadata"]
    return _resource(kind), str(meta.get("namespace") or ""), str(meta.get("name") or "")
