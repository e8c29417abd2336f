"""The fields of its trigger that a rule reads, for UpdateRequests to record them."""

from collections.abc import Iterable, Sequence

from reconciler.dialects.kyverno.entries import Entry
from reconciler.dialects.kyverno.mutation import Edit
from reconciler.dialects.kyverno.preconditions import Conditions
from reconciler.dialects.kyverno.readers import of_rule
from reconciler.dialects.kyverno.targets import Target
from reconciler.dialects.kyverno.template import Template
from reconciler.engine.program import Projection
from reconciler.languages.jmespath import Expression

_Reader = Template | Expression
_USER_ROOTS = frozenset({"serviceAccountName", "serviceAccountNamespace"})


def find_projection(
    entries: Sequence[Entry],
    preconditions: Conditions | None,
    targets: Sequence[Target],
    edits: Sequence[Edit],
) -> Projection:
    """Return the paths of ``request.object`` and ``request.oldObject`` that a rule may read."""
    readers = list(of_rule(entries, preconditions, targets, edits))
    return Projection(
        object=_paths(readers, "object"),
        old_object=_paths(readers, "oldObject"),
        request=_fields(readers),
    )


def _paths(readers: Iterable[_Reader], name: str) -> frozenset[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    for reader in readers:
        if reader.dynamic or "images" in reader.roots:
            # The data decides what is read, or the whole pod specification is read.
            found.add(())
        for path in reader.reads:
            if path[:2] == ("request", name):
                found.add(path[2:])
            elif path in {(), ("request",)}:
                found.add(())
    return frozenset({()}) if () in found else frozenset(found)


def _fields(readers: Iterable[_Reader]) -> frozenset[str] | None:
    found: set[str] = set()
    for reader in readers:
        if reader.dynamic or not reader.reads.isdisjoint({(), ("request",)}):
            return None
        found |= {path[1] for path in reader.reads if path[0] == "request"}
        found |= reader.roots & _USER_ROOTS
    return frozenset(found)
