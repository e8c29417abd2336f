"""Detection of target names that may reveal confidential content of the trigger."""

from collections.abc import Iterable, Mapping

from reconciler.dialects.kyverno.entries import ConfigMapEntry, ElementEntry, Entry, VariableEntry
from reconciler.dialects.kyverno.readers import of_entries
from reconciler.dialects.kyverno.targets import Target
from reconciler.dialects.kyverno.template import Template

_OBJECTS = frozenset({"object", "oldObject"})
_TYPES = frozenset({"apiVersion", "kind"})
# Annotations are not included: any may hold a copy of the content, as that of kubectl apply does.
_IDENTITY = frozenset({"name", "generateName", "namespace", "uid", "labels", "ownerReferences"})


def is_named_by_content(target: Target, entries: Iterable[Entry]) -> bool:
    """Return whether a target's name or namespace may contain more than names and labels."""
    known = {item.name: item for item in entries}
    templates = (target.namespace, target.name)
    return any(template is not None and _reads_content(template, known) for template in templates)


def _reads_content(reader: Template, entries: Mapping[str, Entry]) -> bool:
    return reader.dynamic or any(_is_content(path, entries) for path in reader.reads)


def _is_content(path: tuple[str, ...], entries: Mapping[str, Entry]) -> bool:
    root, *rest = path or ("",)
    if root in entries:
        return _holds_content(entries[root], entries)
    if root != "request" or not rest:
        return root not in {"serviceAccountName", "serviceAccountNamespace"}
    if rest[0] not in _OBJECTS:
        return False
    if len(rest) > 1 and rest[1] in _TYPES:
        return False
    return not (len(rest) > 2 and rest[1] == "metadata" and rest[2] in _IDENTITY)  # noqa: PLR2004


def _holds_content(entry: Entry, entries: Mapping[str, Entry]) -> bool:
    if isinstance(entry, ConfigMapEntry | ElementEntry):
        return False
    if not isinstance(entry, VariableEntry):
        return True
    earlier = dict(_before(entry, entries.values()))
    return any(
        reader.dynamic or any(_is_content(path, earlier) for path in reader.reads)
        for reader in of_entries((entry,))
    )


def _before(entry: Entry, entries: Iterable[Entry]) -> Iterable[tuple[str, Entry]]:
    for item in entries:
        if item is entry:
            return
        yield item.name, item
