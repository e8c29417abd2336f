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
        checksum: Of what decides whether it changed.
        size: Bytes of JSON of what is shown, about.
    """

    namespace: str
    name: str
    shown: dict[str, Any]
    checksum: bytes
    size: int = 0

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
    compared: Any = obj
    if results is not None:
        compared = shown["filterResult"] = result_of(results)
    meta = obj.get("metadata") or {}
    text = input_text(compared).encode()
    both = results is not None and binding.keep_full_objects
    return ObservedObject(
        namespace=str(meta.get("namespace", "")),
        name=str(meta.get("name", "")),
        shown=shown,
        checksum=hashlib.blake2b(text, digest_size=16).digest(),
        size=len(text) + (len(input_text(obj)) if both else 0),
    )


class Monitor:
    """The objects of one binding.

    What is there now and what its hook has been given differ while events are replayed that came
    while nobody watched: snapshots show the one, whether a change counts rests on the other.

    Attributes:
        size: Bytes of JSON of the snapshot, about.
    """

    def __init__(self, binding: KubernetesBinding) -> None:
        self.binding = binding
        self.size = 0
        self._objects: dict[_Key, ObservedObject] = {}
        self._given: dict[_Key, bytes] = {}

    def take(
        self, event: str, observed: ObservedObject, *, replayed: bool = False
    ) -> Change | None:
        """Take in what a watch said; return the change if the hook runs for it.

        Args:
            event: An object that is known was modified, whatever the watch calls it.
            observed: The object as of that moment.
            replayed: It happened before the list that the snapshot was made of. Then an object
                that is not known may have been there, and the watch knows what happened.
        """
        if not replayed:
            self._keep(event, observed)
        given = self._given.get(observed.key)
        if event == DELETED:
            self._given.pop(observed.key, None)
            return self._wanted(DELETED, observed)
        self._given[observed.key] = observed.checksum
        if given is None:
            return self._wanted(event if replayed else ADDED, observed)
        return None if given == observed.checksum else self._wanted(MODIFIED, observed)

    def replace(self, listed: Iterable[ObservedObject]) -> list[Change]:
        """Take in a whole list; return what must have happened since the last one.

        What is there comes first, in the order of the list; then what is gone.
        """
        found = list(listed)
        gone = self._objects.keys() - {observed.key for observed in found}
        changes = [self.take(ADDED, observed) for observed in found]
        changes += [self.take(DELETED, self._objects[key]) for key in sorted(gone)]
        return [change for change in changes if change is not None]

    def resume(self, observed: ObservedObject, *, given: bool) -> None:
        """Take in an object of a first list, before anything is replayed.

        Args:
            observed: As it is now.
            given: It has not changed since the moment that the replay begins at.
        """
        self._keep(ADDED, observed)
        if given:
            self._given[observed.key] = observed.checksum

    def snapshot(self) -> list[dict[str, Any]]:
        """Return what contexts show of all objects, by namespace and name."""
        return [self._objects[key].shown for key in sorted(self._objects)]

    def _keep(self, event: str, observed: ObservedObject) -> None:
        before = self._objects.pop(observed.key, None)
        self.size -= before.size if before is not None else 0
        if event != DELETED:
            self._objects[observed.key] = observed
            self.size += observed.size

    def _wanted(self, event: str, observed: ObservedObject) -> Change | None:
        return Change(event, observed) if event in self.binding.events else None
