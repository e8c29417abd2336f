"""An in-memory cluster without controllers, for the runner's own tests."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from tests.conformance.chainsaw.cluster import ApiError, Object, Ref

CLUSTER_SCOPED = {"Namespace", "ClusterPolicy"}


@dataclass(slots=True)
class MemoryCluster:
    """Implements `cluster.Cluster`.

    Attributes:
        refuse: Returns why an object is refused, or None to accept it.
        stuck: Names of objects that remain after their deletion.
        log: Every write, such as ``create v1/ConfigMap ns/name``.
    """

    refuse: Callable[[Object], str | None] = lambda _: None
    stuck: frozenset[str] = frozenset()
    objects: dict[Ref, Object] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)

    async def qualify(self, ref: Ref, namespace: str) -> Ref:
        """See `cluster.Cluster`."""
        if ref.kind in CLUSTER_SCOPED:
            return replace(ref, namespace="")
        return ref if ref.namespace else replace(ref, namespace=namespace)

    async def get(self, ref: Ref) -> Object | None:
        """See `cluster.Cluster`."""
        return deepcopy(self.objects.get(ref))

    async def candidates(self, ref: Ref) -> list[Object]:
        """See `cluster.Cluster`."""
        return [deepcopy(item) for key, item in self.objects.items() if _fits(key, item, ref)]

    async def create(self, ref: Ref, document: Object) -> Object:
        """See `cluster.Cluster`."""
        return self._store("create", ref, document)

    async def merge(self, ref: Ref, patch: Object) -> Object:
        """See `cluster.Cluster`."""
        return self._store("merge", ref, _merged(self.objects[ref], patch))

    async def replace(self, ref: Ref, document: Object) -> Object:
        """See `cluster.Cluster`."""
        return self._store("replace", ref, document)

    async def delete(self, ref: Ref) -> None:
        """See `cluster.Cluster`."""
        self.log.append(f"delete {ref}")
        if ref.name not in self.stuck:
            self.objects.pop(ref, None)

    def _store(self, verb: str, ref: Ref, document: Object) -> Object:
        self.log.append(f"{verb} {ref}")
        reason = self.refuse(document)
        if reason is not None:
            raise ApiError(400, reason)
        stored = deepcopy(document)
        stored["metadata"]["resourceVersion"] = str(len(self.log))
        self.objects[ref] = stored
        return stored


def _fits(key: Ref, item: Object, ref: Ref) -> bool:
    labels = item["metadata"].get("labels", {})
    return (
        (key.api_version, key.kind, key.namespace) == (ref.api_version, ref.kind, ref.namespace)
        and ref.name in {"", key.name}
        and all(labels.get(name) == value for name, value in ref.labels)
    )


def _merged(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict) or not isinstance(old, dict):
        return patch
    result = {**old, **{key: _merged(old.get(key), value) for key, value in patch.items()}}
    return {key: value for key, value in result.items() if value is not None}
