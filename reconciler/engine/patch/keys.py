"""Tables of the lists of Kubernetes kinds that merge by key, and the decoder of `keytable`.

Format of the text there. A node is one object type, written as its fields: ``spec:12`` leads to
node 12, ``containers[name]7`` is a list merged by ``name`` whose elements are node 7,
``finalizers[]`` a set of scalars, ``*`` any other field. Fields without a keyed list below them
are omitted. A line that starts with a space continues the one before.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from reconciler.engine.patch import keytable

_FIELD: Final = re.compile(r"([^:\[]+)(?::(\d+)|\[([^\]]*)\](\d*))")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The schema of one value, as far as strategic merge needs it.

    Attributes:
        merge_keys: The fields that identify an element of this list; empty for a set of scalars;
            None when this is not a list or one that is replaced as a whole.
        items: The schema of the elements of a keyed list.
        fields: The schemas of the fields; use `field` for look-ups.
    """

    merge_keys: tuple[str, ...] | None = None
    items: "Schema | None" = None
    fields: Mapping[str, "Schema"]

    def field(self, name: str) -> "Schema | None":
        """Return the schema of a field; None where nothing below it merges by key."""
        found = self.fields.get(name)
        return self.fields.get("*") if found is None else found


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyTable:
    """The schemas of some kinds.

    Attributes:
        kinds: By apiVersion and kind.
    """

    kinds: Mapping[tuple[str, str], Schema]

    def of(self, obj: Mapping[str, Any]) -> Schema | None:
        """Return the schema of an object, by its own apiVersion and kind."""
        return self.kinds.get((str(obj.get("apiVersion", "")), str(obj.get("kind", ""))))

    def with_kinds(self, kinds: Mapping[tuple[str, str], Schema]) -> "KeyTable":
        """Return a table in which these kinds are added or replaced."""
        return KeyTable(kinds={**self.kinds, **kinds}) if kinds else self


def _records(text: str) -> Iterator[str]:
    return iter(text.replace("\n ", " ").splitlines())


def _decode_nodes(text: str) -> tuple[Schema, ...]:
    nodes: list[Schema] = []
    for record in _records(text):
        fields: dict[str, Schema] = {}
        for name, node, keys, items in _FIELD.findall(record):
            fields[name.strip()] = (
                nodes[int(node)]
                if node
                else Schema(
                    merge_keys=tuple(keys.split(",")) if keys else (),
                    items=nodes[int(items)] if items else None,
                    fields={},
                )
            )
        nodes.append(Schema(fields=fields))
    return tuple(nodes)


def _decode_kinds(text: str, nodes: tuple[Schema, ...]) -> dict[tuple[str, str], Schema]:
    kinds: dict[tuple[str, str], Schema] = {}
    for record in _records(text):
        api_version, *entries = record.split()
        for entry in entries:
            kind, _, node = entry.partition(":")
            kinds[api_version, kind] = nodes[int(node)]
    return kinds


SHIPPED: Final = KeyTable(kinds=_decode_kinds(keytable.KINDS, _decode_nodes(keytable.NODES)))
"""The built-in kinds of the Kubernetes version that `keytable` names."""
