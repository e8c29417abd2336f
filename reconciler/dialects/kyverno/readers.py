"""The readers of a rule: all of its templates and expressions, and what they read."""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

from reconciler.dialects.kyverno.entries import (
    ApiCallEntry,
    ConfigMapEntry,
    ElementEntry,
    Entry,
    GlobalEntry,
    VariableEntry,
)
from reconciler.dialects.kyverno.mutation import (
    Edit,
    ForeachEdit,
    JsonPatchEdit,
    StrategicEdit,
    with_nested,
)
from reconciler.dialects.kyverno.preconditions import Conditions
from reconciler.dialects.kyverno.targets import Target
from reconciler.dialects.kyverno.template import Template
from reconciler.engine.context import NOTHING_BOUND
from reconciler.engine.program import Paths, Projection
from reconciler.languages.jmespath import Expression, compile_expression

Readers = Iterator[Template | Expression]

_ANYTHING = compile_expression("@")
_USER_ROOTS = frozenset({"serviceAccountName", "serviceAccountNamespace"})


def of_target(target: Target) -> Readers:
    """Yield the readers of one target."""
    yield from target.templates
    yield from of_entries(target.entries)
    yield from of_conditions(target.preconditions)


def of_edits(edits: Iterable[Edit]) -> Readers:
    """Yield the readers of the edits of a rule."""
    for edit in with_nested(edits):
        match edit:
            case StrategicEdit():
                yield edit.template
            case JsonPatchEdit():
                yield edit.patch
            case ForeachEdit():
                yield edit.elements
                yield from of_entries(edit.entries)
                yield from of_conditions(edit.preconditions)


def of_entries(entries: Iterable[Entry]) -> Readers:
    """Yield the readers of context entries, without paths into an entry's own value."""
    for entry in entries:
        match entry:
            case VariableEntry():
                yield from _present(entry.value, entry.path, entry.default)
                yield from _of_context_path(entry)
            case ConfigMapEntry():
                yield from _present(entry.config_map, entry.namespace)
            case ApiCallEntry():
                yield from _present(entry.address, entry.call, entry.path)
            case GlobalEntry():
                yield from _present(entry.reference, entry.path)
            case ElementEntry():
                continue


def reads_any(entry: Entry, names: AbstractSet[str]) -> bool:
    """Return whether a context entry reads one of the names."""
    return any(not reader.roots.isdisjoint(names) for reader in of_entries((entry,)))


def reading_target(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return the entries of a rule that may read the target, and those that read such entries."""
    names = {"target"}
    for entry in entries:
        named = any(name in text for text in _fixed_texts(entry) for name in names)
        if named or reads_any(entry, names):
            names.add(entry.name)
    # All entries of such a name: a later one may read an earlier one.
    return tuple(entry for entry in entries if entry.name in names)


def _fixed_texts(entry: Entry) -> tuple[str, ...]:
    """Return the text around the variables in a path; what it reads is known only with them."""
    path = entry.path if isinstance(entry, VariableEntry) and entry.value is None else None
    parts = path.parts if path is not None and not path.constant else None
    return tuple(part for part in parts or () if isinstance(part, str))


def paths_of(readers: Iterable[Template | Expression]) -> Iterator[tuple[str, ...]]:
    """Yield the context paths that readers read; the empty path where the data decides."""
    for reader in readers:
        yield from reader.reads
        if reader.dynamic:
            yield ()


def find_projection(readers: Iterable[Template | Expression]) -> Projection:
    """Return what is read of the trigger, for UpdateRequests to record it."""
    readers = list(readers)
    return Projection(
        object=_of_object(readers, "object"),
        old_object=_of_object(readers, "oldObject"),
        request=_of_request(readers),
    )


def _of_object(readers: Sequence[Template | Expression], name: str) -> Paths:
    found: set[tuple[str, ...]] = set()
    for path in paths_of(readers):
        if path[:2] == ("request", name):
            found.add(path[2:])
        elif path in {(), ("request",)}:
            found.add(())
    # The whole pod specification is read for its images.
    whole = () in found or any("images" in reader.roots for reader in readers)
    return frozenset({()}) if whole else frozenset(found)


def _of_request(readers: Sequence[Template | Expression]) -> frozenset[str] | None:
    paths = frozenset(paths_of(readers))
    if not paths.isdisjoint({(), ("request",)}):
        return None
    roots = frozenset[str]().union(*(reader.roots for reader in readers))
    return roots & _USER_ROOTS | {path[1] for path in paths if path[0] == "request"}


def expressions_of(readers: Iterable[Template | Expression]) -> Iterator[Expression]:
    """Yield the expressions of readers."""
    for reader in readers:
        yield from reader.expressions if isinstance(reader, Template) else (reader,)


def of_conditions(conditions: Conditions | None) -> Readers:
    """Yield the readers of preconditions."""
    if conditions is not None:
        yield from conditions.templates


def _present(*templates: Template | None) -> Readers:
    yield from (template for template in templates if template is not None)


def _of_context_path(entry: VariableEntry) -> Readers:
    # In an entry without a value, the path is an expression on the context itself.
    if entry.value is None and entry.path is not None:
        constant = entry.path.constant
        yield compile_expression(entry.path.render(NOTHING_BOUND)) if constant else _ANYTHING
