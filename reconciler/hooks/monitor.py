"""What a binding to objects has seen of them: which changes count, and its snapshot.

Whoever watches hands over each object with what the jq filter gave for it, and gets the changes
that a run is for. An object whose filter gives what it gave before has not changed.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.api.meta import Object
from reconciler.hooks.bindings import ADDED, DELETED, MODIFIED, KubernetesBinding
from reconciler.hooks.values import input_text, result_of

_Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class ObservedObject:
    """An object as its binding keeps it.

    Attributes:
        shown: What contexts and snapshots have of it: ``object``, ``filterResult``, or both.
        checksum: Of what its changes are told by.
    """

    namespace: str
    name: str
    shown: dict[str, Any]
    checksum: bytes

    @property
    def key(self) -> _Key:
        """Return what it is known by; in this order snapshots have them."""
        return self.namespace, self.name


@dataclass(frozen=True, slots=True)
class Change:
    """A change that counts: one of `EVENTS`, and the object as of that moment."""

    event: str
    observed: ObservedObject


def observe(
    binding: KubernetesBinding, obj: Object, results: Sequence[Any] | None
) -> ObservedObject:
    """Return what a binding keeps of an object.

    Args:
        binding: To objects of its kind.
        obj: As it was read.
        results: Of the binding's jq filter; None where it has none.
    """
    shown: dict[str, Any] = {"object": obj} if binding.keep_full_objects else {}
    told_by: Any = obj
    if results is not None:
        told_by = shown["filterResult"] = result_of(results)
    meta = obj.get("metadata") or {}
    checksum = hashlib.blake2b(input_text(told_by).encode(), digest_size=16).digest()
    return ObservedObject(
        str(meta.get("namespace", "")), str(meta.get("name", "")), shown, checksum
    )


class Monitor:
    """The objects of one binding."""

    def __init__(self, binding: KubernetesBinding) -> None:
        self.binding = binding
        self._objects: dict[_Key, ObservedObject] = {}

    def take(self, event: str, observed: ObservedObject) -> Change | None:
        """Take in what a watch said; return the change if the hook runs for it.

        An object that is known was modified, whatever the watch calls it.
        """
        before = self._objects.get(observed.key)
        if event == DELETED:
            self._objects.pop(observed.key, None)
            return self._wanted(DELETED, observed)
        self._objects[observed.key] = observed
        if before is None:
            return self._wanted(ADDED, observed)
        if before.checksum == observed.checksum:
            return None
        return self._wanted(MODIFIED, observed)

    def replace(self, listed: Iterable[ObservedObject]) -> list[Change]:
        """Take in a whole list; return what must have happened since the last one.

        What is there comes first, in the order of the list; then what is gone.
        """
        found = list(listed)
        gone = self._objects.keys() - {observed.key for observed in found}
        changes = [self.take(ADDED, observed) for observed in found]
        changes += [self.take(DELETED, self._objects[key]) for key in sorted(gone)]
        return [change for change in changes if change is not None]

    def snapshot(self) -> list[dict[str, Any]]:
        """Return what contexts show of all objects, by namespace and name."""
        return [self._objects[key].shown for key in sorted(self._objects)]

    def _wanted(self, event: str, observed: ObservedObject) -> Change | None:
        return Change(event, observed) if event in self.binding.events else None
