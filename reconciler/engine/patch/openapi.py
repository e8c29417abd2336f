"""Merge keys from OpenAPI documents and CustomResourceDefinitions.

Built-in kinds declare how strategic merge treats a list (``x-kubernetes-patch-strategy``). Custom
resources cannot, so ``x-kubernetes-list-type: map`` counts, as for server-side apply.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from reconciler.engine.patch.keys import SHIPPED, Schema

Kinds = dict[tuple[str, str], Schema]

_STRATEGY: Final = "x-kubernetes-patch-strategy"
_MERGE_KEY: Final = "x-kubernetes-patch-merge-key"
_LIST_TYPE: Final = "x-kubernetes-list-type"
_MAP_KEYS: Final = "x-kubernetes-list-map-keys"
_KINDS: Final = "x-kubernetes-group-version-kind"
_METADATA: Final = SHIPPED.kinds["v1", "ConfigMap"]


def read_document(document: Mapping[str, Any]) -> Kinds:
    """Return the schemas of the kinds in an OpenAPI document, version 2 or 3.

    Kinds without a keyed list anywhere are left out.

    Raises:
        ValueError: It is no OpenAPI document with definitions.
    """
    definitions = _map(
        document.get("definitions") or _map(document.get("components")).get("schemas")
    )
    if not definitions:
        raise ValueError("it has neither definitions nor components.schemas")
    reader = _Reader(definitions)
    kinds: Kinds = {}
    for name in sorted(definitions):
        listed = _list(_map(definitions[name]).get(_KINDS))
        # Several kinds share a definition only in DeleteOptions and WatchEvent, never stored.
        schema = reader.definition(name) if len(listed) == 1 else None
        if schema is not None:
            kind = _map(listed[0])
            parts = (part for part in (kind.get("group"), kind.get("version")) if part)
            kinds["/".join(parts), str(kind.get("kind"))] = schema
    return kinds


def read_definitions(objects: Iterable[Mapping[str, Any]]) -> Kinds:
    """Return the schemas of all versions that CustomResourceDefinitions define.

    Other objects are ignored, and definitions are not validated: missing parts are ignored, too.
    """
    return {
        key: schema
        for obj in objects
        if obj.get("kind") == "CustomResourceDefinition"
        for key, schema in _defined(_map(obj.get("spec")))
    }


def _defined(spec: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], Schema]]:
    kind = str(_map(spec.get("names")).get("kind"))
    for version in _list(spec.get("versions")):
        root = _map(_map(_map(version).get("schema")).get("openAPIV3Schema"))
        known = _Reader({}).inline(root)
        # Every object has metadata, which a CustomResourceDefinition does not describe.
        fields = {**(known.fields if known else {}), **_METADATA.fields}
        key = (f"{spec.get('group')}/{_map(version).get('name')}", kind)
        yield key, Schema(fields=fields)


class _Reader:
    """Reads the schemas of definitions, each only once."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._made: dict[str, Schema | None] = {}
        self._open: set[str] = set()

    def definition(self, name: str) -> Schema | None:
        """Return the schema of a definition, None if no keyed list lies below it."""
        if name in self._made:
            return self._made[name]
        if name in self._open:
            # A cycle, as in JSONSchemaProps: none in Kubernetes contains a keyed list.
            return None
        self._open.add(name)
        made = self._made[name] = self.inline(_map(self._definitions.get(name)))
        self._open.discard(name)
        return made

    def inline(self, schema: Mapping[str, Any]) -> Schema | None:
        """Return the schema of an object type that is written inline."""
        written = dict(sorted(_map(schema.get("properties")).items()))
        if isinstance(schema.get("additionalProperties"), dict):
            written["*"] = schema["additionalProperties"]
        found = {name: self._field(_map(field)) for name, field in written.items()}
        fields = {name: field for name, field in found.items() if field is not None}
        return Schema(fields=fields) if fields else None

    def _field(self, schema: Mapping[str, Any]) -> Schema | None:
        if schema.get("type") != "array":
            return self._value(schema)
        items = _map(schema.get("items"))
        keys = _merge_keys(schema, items)
        if keys is None:
            return None
        return Schema(merge_keys=keys, items=self._value(items), fields={})

    def _value(self, schema: Mapping[str, Any]) -> Schema | None:
        reference = _reference(schema)
        return self.inline(schema) if reference is None else self.definition(reference)


def _merge_keys(schema: Mapping[str, Any], items: Mapping[str, Any]) -> tuple[str, ...] | None:
    keys = tuple(str(key) for key in _list(schema.get(_MAP_KEYS)))
    if "merge" in str(schema.get(_STRATEGY, "")).split(","):
        return keys or tuple(key for key in (schema.get(_MERGE_KEY),) if key)
    # Elements of built-in lists are references, and such a list without a strategy is replaced;
    # elements in custom resources are written inline.
    custom = schema.get(_LIST_TYPE) == "map" and _reference(items) is None
    return keys if custom and keys else None


def _reference(schema: Mapping[str, Any]) -> str | None:
    """Return the definition that a schema refers to; OpenAPI 3 wraps it to add a default."""
    for part in (schema, *_list(schema.get("allOf"))):
        reference = _map(part).get("$ref")
        if isinstance(reference, str):
            return reference.rpartition("/")[2]
    return None


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
