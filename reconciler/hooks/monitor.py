"""Objects of a Kubernetes binding: finds the changes that count, and keeps its snapshot.

An informer passes each object with the result of the jq filter, and receives the changes for which
the hook runs. An object whose filter result is the same as before has not changed.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.api.meta import Object
from reconciler.errors import EvaluationError
from reconciler.hooks.bindings import ADDED, DELETED, MODIFIED, KubernetesBinding
from reconciler.hooks.values import input_text, result_of

_Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class ObservedObject:
    """An object as its binding keeps it.

    Attributes:
        shown: Its fields in contexts and snapshots: ``object``, ``filterResult``, or both.
        checksum: Digest of the part whose change counts as a change.
        size: Approximate bytes of JSON of what is shown.
    """

    namespace: str
    name: str
    shown: dict[str, Any]
    checksum: bytes
    size: int = 0

    @property
    def key(self) -> _Key:
        """Return the key of the object, which is also the sort key of snapshots."""
        return self.namespace, self.name


@dataclass(frozen=True, slots=True)
class Change:
    """A change that counts: one of `EVENTS`, and the object at that time."""

    event: str
    observed: ObservedObject


def observe(
    binding: KubernetesBinding, obj: Object, results: Sequence[Any] | EvaluationError | None
) -> ObservedObject:
    """Return an object as a binding keeps it.

    Args:
        obj: As read from the API server.
        results: Results of the binding's jq filter, or why it failed; None if it has none.

    Raises:
        EvaluationError: The filter failed, or the object is nested too deeply.
    """
    if isinstance(results, EvaluationError):
        raise results
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

    The current objects and those that the hook has received differ while missed events are
    replayed: snapshots show the former, and changes are detected against the latter.

    Attributes:
        size: Approximate bytes of JSON of the snapshot.
    """

    def __init__(self, binding: KubernetesBinding) -> None:
        self.binding = binding
        self.size = 0
        self._objects: dict[_Key, ObservedObject] = {}
        self._given: dict[_Key, bytes] = {}

    def take(
        self, event: str, observed: ObservedObject, *, replayed: bool = False
    ) -> Change | None:
        """Process an event of a watch; return the change if the hook runs for it.

        Args:
            event: One of `EVENTS`; for a known object, Added counts as Modified.
            replayed: The event is older than the list that the snapshot was made from. An unknown
                object may have existed then, so the event's own type is used.
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
        """Process a whole list; return the changes since the last one.

        Existing objects come first, in the order of the list, then deleted ones.
        """
        found = list(listed)
        gone = self._objects.keys() - {observed.key for observed in found}
        changes = [self.take(ADDED, observed) for observed in found]
        changes += [self.take(DELETED, self._objects[key]) for key in sorted(gone)]
        return [change for change in changes if change is not None]

    def resume(self, observed: ObservedObject, *, given: bool) -> None:
        """Add an object of a first list, before events are replayed.

        Args:
            given: It has not changed since the start of the replay, so the hook has received it.
        """
        self._keep(ADDED, observed)
        if given:
            self._given[observed.key] = observed.checksum

    def snapshot(self) -> list[dict[str, Any]]:
        """Return all objects as contexts show them, sorted by namespace and name."""
        return [self._objects[key].shown for key in sorted(self._objects)]

    def _keep(self, event: str, observed: ObservedObject) -> None:
        before = self._objects.pop(observed.key, None)
        self.size -= before.size if before is not None else 0
        if event != DELETED:
            self._objects[observed.key] = observed
            self.size += observed.size

    def _wanted(self, event: str, observed: ObservedObject) -> Change | None:
        return Change(event, observed) if event in self.binding.events else None
