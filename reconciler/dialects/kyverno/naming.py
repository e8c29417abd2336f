"""Detection of target names that may reveal confidential content of the trigger."""

from collections.abc import Iterable, Mapping

from reconciler.dialects.kyverno.entries import ConfigMapEntry, ElementEntry, Entry, VariableEntry
from reconciler.dialects.kyverno.readers import of_entries
from reconciler.dialects.kyverno.targets import Target
from reconciler.dialects.kyverno.template import Template
from reconciler.languages.jmespath import Expression

_OBJECTS = frozenset({"object", "oldObject"})
_TYPES = frozenset({"apiVersion", "kind"})
# Annotations are not included: any may hold a copy of the content, as that of kubectl apply does.
_IDENTITY = frozenset({"name", "generateName", "namespace", "uid", "labels", "ownerReferences"})


def is_named_by_content(target: Target, entries: Iterable[Entry]) -> bool:
    """Return whether a target's name or namespace may contain more than names and labels."""
    # In their order: an entry reads only those before it, and of one name the last one counts.
    known: dict[str, bool] = {}
    for entry in entries:
        known[entry.name] = _holds_content(entry, known)
    templates = (target.namespace, target.name)
    return any(template is not None and _reads_content(template, known) for template in templates)


def _reads_content(reader: Template | Expression, known: Mapping[str, bool]) -> bool:
    return reader.dynamic or any(_is_content(path, known) for path in reader.reads)


def _is_content(path: tuple[str, ...], known: Mapping[str, bool]) -> bool:
    root, *rest = path or ("",)
    if root in known:
        return known[root]
    if root != "request" or not rest:
        return root not in {"serviceAccountName", "serviceAccountNamespace"}
    if rest[0] not in _OBJECTS:
        return False
    if len(rest) > 1 and rest[1] in _TYPES:
        return False
    return not (len(rest) > 2 and rest[1] == "metadata" and rest[2] in _IDENTITY)  # noqa: PLR2004


def _holds_content(entry: Entry, known: Mapping[str, bool]) -> bool:
    if isinstance(entry, ConfigMapEntry | ElementEntry):
        return False
    if not isinstance(entry, VariableEntry):
        return True
    return any(_reads_content(reader, known) for reader in of_entries((entry,)))
