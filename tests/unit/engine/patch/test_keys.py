"""The table of merge keys, and its generator."""

from typing import Any

import pytest
from click.testing import CliRunner

from devcluster import schemas
from reconciler.engine.patch import SHIPPED, Schema, keytable
from reconciler.errors import InvalidSetting


def at(api_version: str, kind: str, *path: str) -> Schema | None:
    schema = SHIPPED.kinds.get((api_version, kind))
    for name in path:
        schema = schema and (schema.items if name == "[]" else schema.field(name))
    return schema


@pytest.mark.parametrize(
    ("place", "keys"),
    [
        (("v1", "Pod", "spec", "containers"), ("name",)),
        (("v1", "Pod", "spec", "containers", "[]", "env"), ("name",)),
        (("v1", "Pod", "spec", "containers", "[]", "ports"), ("containerPort", "protocol")),
        (("v1", "Pod", "spec", "volumes"), ("name",)),
        (("v1", "Pod", "spec", "hostAliases"), ("ip",)),
        (("v1", "Pod", "status", "conditions"), ("type",)),
        (("v1", "Pod", "metadata", "ownerReferences"), ("uid",)),
        (("v1", "Pod", "metadata", "finalizers"), ()),
        (("v1", "Service", "spec", "ports"), ("port", "protocol")),
        (("v1", "Node", "status", "addresses"), ("type",)),
        (("v1", "ServiceAccount", "secrets"), ("name",)),
        (
            ("apps/v1", "Deployment", "spec", "template", "spec", "topologySpreadConstraints"),
            ("topologyKey", "whenUnsatisfiable"),
        ),
        (
            ("batch/v1", "CronJob", "spec", "jobTemplate", "spec", "template", "spec", "volumes"),
            ("name",),
        ),
    ],
)
def test_keyed_lists_have_their_merge_keys(place: tuple[str, ...], keys: tuple[str, ...]) -> None:
    schema = at(*place)
    assert schema is not None
    assert schema.merge_keys == keys


@pytest.mark.parametrize(
    "place",
    [
        ("v1", "Pod", "spec", "tolerations"),
        ("v1", "Pod", "spec", "containers", "[]", "args"),
        ("v1", "ServiceAccount", "imagePullSecrets"),
        ("networking.k8s.io/v1", "Ingress", "spec", "rules"),
        ("rbac.authorization.k8s.io/v1", "Role", "rules"),
        ("example.org/v1", "Thing"),
        ("v1", "Deployment"),
    ],
)
def test_other_lists_and_unknown_kinds_have_no_schema(place: tuple[str, ...]) -> None:
    assert at(*place) is None


def document(**definitions: Any) -> dict[str, Any]:
    return {"info": {"version": "v1.99.0"}, "definitions": definitions}


KEYED = {
    "type": "array",
    "items": {"$ref": "#/definitions/Part"},
    "x-kubernetes-patch-strategy": "merge,retainKeys",
    "x-kubernetes-patch-merge-key": "id",
}
PART = {"$ref": "#/definitions/Part"}
GVK = [{"group": "acme.io", "version": "v1", "kind": "Car"}]


def test_the_generator_keeps_only_paths_to_keyed_lists() -> None:
    text = schemas.render(
        document(
            Part={"properties": {"tags": {**KEYED, "items": {"type": "string"}}}},
            Car={
                "x-kubernetes-group-version-kind": GVK,
                "properties": {
                    "parts": KEYED,
                    "colour": {"type": "string"},
                    "lists": {"type": "array", "items": {"$ref": "#/definitions/Part"}},
                    "more": {"type": "object", "additionalProperties": PART},
                    "car": {"$ref": "#/definitions/Car"},
                },
            },
        )
    )  # fmt: skip
    assert 'VERSION = "1.99.0"' in text
    assert "\ntags[id]\n*:0\nmore:1 parts[id]0\n" in text
    assert "\nacme.io/v1 Car:2\n" in text


def test_long_records_are_wrapped_and_read_again() -> None:
    namespace: dict[str, Any] = {}
    fields = {f"field{number}": KEYED for number in range(40)}
    car = {"x-kubernetes-group-version-kind": GVK, "properties": fields}
    text = schemas.render(document(Part={}, Car=car))
    assert max(map(len, text.splitlines())) <= 99
    exec(text, namespace)
    assert namespace["NODES"].replace("\n ", " ").count("[id]") == 40


def test_a_document_that_is_not_openapi_v2_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="kubectl get --raw /openapi/v2"):
        schemas.render({"openapi": "3.0.0"})


def test_the_command_reports_an_error_without_a_traceback(tmp_path: Any) -> None:
    output = str(tmp_path / "table.py")
    result = CliRunner().invoke(schemas.main, ["--output", output], input="{")
    assert result.exit_code == 2
    assert result.output.startswith("schemas: ")


def test_the_table_records_its_kubernetes_version() -> None:
    assert keytable.VERSION.startswith("1.")
