"""What a rule reads of its trigger, so that a request can keep what will be gone later."""

from collections.abc import Iterable, Iterator, Sequence

from reconciler.engine.context import Context
from reconciler.engine.edits import Edit, ForeachEdit, JsonPatchEdit, StrategicEdit
from reconciler.engine.entries import (
    ApiCallEntry,
    ConfigMapEntry,
    ElementEntry,
    Entry,
    GlobalEntry,
    VariableEntry,
)
from reconciler.engine.jmes import compile_expression
from reconciler.engine.preconditions import Conditions
from reconciler.engine.program import Projection
from reconciler.engine.targets import Target
from reconciler.engine.variables import Template

_NOTHING = Context({})

_Read = tuple[frozenset[str], frozenset[tuple[str, ...]], bool]
"""Roots, paths, and whether data decides what is read."""


def find_projection(
    entries: Sequence[Entry],
    preconditions: Conditions | None,
    targets: Sequence[Target],
    edits: Sequence[Edit],
) -> Projection:
    """Return the paths of ``request.object`` and ``request.oldObject`` that a rule may read."""
    reads = [
        *_of_entries(entries),
        *_of_conditions(preconditions),
        *(read for target in targets for read in _of_target(target)),
        *(read for edit in edits for read in _of_edit(edit)),
    ]
    return Projection(
        object=_paths(reads, "object"),
        old_object=_paths(reads, "oldObject"),
        request=_fields(reads),
    )


def _of_template(template: Template | None) -> Iterator[_Read]:
    if template is not None:
        yield template.roots, template.reads, template.dynamic


def _of_conditions(conditions: Conditions | None) -> Iterator[_Read]:
    for template in () if conditions is None else conditions.templates:
        yield from _of_template(template)


def _of_target(target: Target) -> Iterator[_Read]:
    for template in target.templates:
        yield from _of_template(template)
    yield from _of_entries(target.entries)
    yield from _of_conditions(target.preconditions)


def _of_entries(entries: Iterable[Entry]) -> Iterator[_Read]:
    for entry in entries:
        match entry:
            case VariableEntry():
                yield from _of_template(entry.value)
                yield from _of_template(entry.default)
                yield from _of_path(entry)
            case ConfigMapEntry():
                yield from _of_template(entry.config_map)
                yield from _of_template(entry.namespace)
            case ApiCallEntry():
                yield from _of_template(entry.call)
                yield from _of_template(entry.path)
            case GlobalEntry():
                yield from _of_template(entry.reference)
                yield from _of_template(entry.path)
            case ElementEntry():
                continue


def _of_path(entry: VariableEntry) -> Iterator[_Read]:
    yield from _of_template(entry.path)
    if entry.path is None or entry.value is not None:
        return
    if entry.path.constant:
        expression = compile_expression(entry.path.render(_NOTHING))
        yield expression.roots, expression.reads, expression.dynamic
    else:
        yield frozenset(), frozenset({()}), True


def _of_edit(edit: Edit) -> Iterator[_Read]:
    match edit:
        case StrategicEdit():
            yield from _of_template(edit.template)
        case JsonPatchEdit():
            yield from _of_template(edit.patch)
        case ForeachEdit():
            yield edit.elements.roots, edit.elements.reads, edit.elements.dynamic
            yield from _of_entries(edit.entries)
            yield from _of_conditions(edit.preconditions)
            for inner in edit.edits:
                yield from _of_edit(inner)


def _paths(reads: Iterable[_Read], name: str) -> frozenset[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    for roots, paths, dynamic in reads:
        if dynamic or "images" in roots:
            # What is read is decided by the data, or is the whole pod specification.
            found.add(())
        for path in paths:
            if path[:2] == ("request", name):
                found.add(path[2:])
            elif path in {(), ("request",)}:
                found.add(())
    return frozenset({()}) if () in found else frozenset(found)


def _fields(reads: Iterable[_Read]) -> frozenset[str] | None:
    found: set[str] = set()
    for _, paths, dynamic in reads:
        if dynamic or not paths.isdisjoint({(), ("request",)}):
            return None
        found |= {path[1] for path in paths if path[0] == "request"}
    return frozenset(found)
