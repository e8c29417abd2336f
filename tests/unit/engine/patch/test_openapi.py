"""Merge keys read from documents and definitions; tests/contract reads those of a real server."""

from typing import Any

import pytest

from reconciler.engine.patch import SHIPPED
from reconciler.engine.patch.openapi import read_definitions, read_document

GVK = [{"group": "acme.io", "version": "v1", "kind": "Car"}]
CONFIG_MAP = SHIPPED.kinds.get(("v1", "ConfigMap"))
assert CONFIG_MAP is not None
METADATA = CONFIG_MAP.field("metadata")
ROUTES = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["host", "path"],
    "items": {"type": "object", "properties": {"host": {"type": "string"}}},
}


def keyed(reference: str) -> dict[str, Any]:
    return {
        "type": "array",
        "items": {"default": {}, "allOf": [{"$ref": reference}]},
        "x-kubernetes-patch-strategy": "merge",
        "x-kubernetes-patch-merge-key": "id",
    }


def definition(**fields: Any) -> dict[str, Any]:
    root = {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}
    return {
        "kind": "CustomResourceDefinition",
        "spec": {
            "group": "acme.io",
            "names": {"kind": "Car"},
            "versions": [{"name": "v1", "schema": {"openAPIV3Schema": root}}],
        },
    }


def test_references_of_version_3_are_followed() -> None:
    part = {"properties": {"parts": keyed("#/components/schemas/Part")}}
    car = {**part, "x-kubernetes-group-version-kind": GVK}
    document = {"components": {"schemas": {"Part": part, "Car": car}}}
    parts = read_document(document)["acme.io/v1", "Car"].field("parts")
    assert parts is not None
    assert parts.merge_keys == ("id",)


def test_a_list_of_a_built_in_kind_needs_a_strategy() -> None:
    claims = {**ROUTES, "items": {"$ref": "#/definitions/Claim"}}
    car = {"properties": {"claims": claims}, "x-kubernetes-group-version-kind": GVK}
    assert read_document({"definitions": {"Claim": {}, "Car": car}}) == {}


def test_a_definition_has_the_keys_of_its_lists_and_of_the_metadata() -> None:
    (schema,) = read_definitions([definition(routes=ROUTES), {"kind": "Car"}]).values()
    assert schema is not None
    assert schema.field("metadata") == METADATA
    spec = schema.field("spec")
    assert spec is not None
    routes = spec.field("routes")
    assert routes is not None
    assert routes.merge_keys == ("host", "path")


@pytest.mark.parametrize(
    "routes",
    [
        {**ROUTES, "x-kubernetes-list-type": "atomic"},
        {**ROUTES, "x-kubernetes-list-type": "set"},
        {**ROUTES, "x-kubernetes-list-map-keys": []},
        {"type": "array"},
        "no schema",
    ],
)
def test_other_lists_of_a_definition_have_no_keys(routes: Any) -> None:
    (schema,) = read_definitions([definition(routes=routes)]).values()
    assert schema.field("spec") is None


@pytest.mark.parametrize(
    "spec",
    [
        None,
        {"versions": 5},
        {"versions": [None]},
        {"versions": [{"schema": []}], "names": "x"},
        {"versions": [{"schema": {"openAPIV3Schema": {"properties": {"a": {"allOf": 3}}}}}]},
        {"versions": [{"schema": {"openAPIV3Schema": {"properties": {"a": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": 7,
        }}}}}]},
    ],
)  # fmt: skip
def test_an_invalid_definition_is_ignored(spec: Any) -> None:
    read_definitions([{"kind": "CustomResourceDefinition", "spec": spec}])


@pytest.mark.parametrize("document", [{}, {"definitions": []}, {"components": {"schemas": None}}])
def test_an_invalid_document_is_refused(document: Any) -> None:
    with pytest.raises(ValueError, match="neither definitions nor"):
        read_document(document)
