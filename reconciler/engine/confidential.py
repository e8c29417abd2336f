"""What an evaluation reads that not everybody may see: the content of Secrets."""

from collections.abc import Iterable, Mapping
from urllib.parse import unquote

from reconciler.engine.entries import (
    ApiLoad,
    ConfigMapEntry,
    ElementEntry,
    Entry,
    GlobalLoad,
    Load,
    VariableEntry,
)
from reconciler.engine.program import Program
from reconciler.engine.readers import of_entries
from reconciler.engine.variables import Template

_SECRET = ("", "Secret")
_CONFIDENTIAL_SEGMENTS = frozenset({"secrets", "token"})
_OBJECTS = frozenset({"object", "oldObject"})
_TYPES = frozenset({"apiVersion", "kind"})
# A copy of the content may stand in any annotation, and does in that of kubectl apply.
_IDENTITY = frozenset({"name", "generateName", "namespace", "uid", "labels", "ownerReferences"})
_NAMES = ("namespace", "name")


def is_secret(group: str, kind: str) -> bool:
    """Return whether objects of a kind are Secrets, their subresources too."""
    return (group, kind.partition("/")[0]) == _SECRET


def may_hold_secrets(load: Load) -> bool:
    """Return whether what was read from outside may be a Secret, or made of one.

    An entry that is kept for many rules does not tell here what it was made of.
    """
    if isinstance(load, ApiLoad):
        path = unquote(load.path.partition("?")[0])
        return not _CONFIDENTIAL_SEGMENTS.isdisjoint(path.split("/"))
    return isinstance(load, GlobalLoad)


def named_by_content(program: Program, index: int) -> bool:
    """Return whether a target's name or namespace may be made of more than names and labels."""
    target, entries = program.targets[index], {item.name: item for item in program.entries}
    templates = (getattr(target, field) for field in _NAMES)
    return any(
        template is not None and _reads_content(template, entries) for template in templates
    )


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
