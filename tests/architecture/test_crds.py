"""The schemas of the CRDs: a description of every field, and no default inside a list."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.dialects.registry import compile_policy
from reconciler.engine.program import CompiledPolicy

ROOT = Path(__file__).parents[2]
FILES = [
    path for path in sorted((ROOT / "crds").rglob("*.yaml")) if path.name != "kustomization.yaml"
]
ROOT_FIELDS = {"apiVersion", "kind", "metadata"}
"""The API server describes these itself."""


def schemas(path: Path) -> Iterator[Any]:
    for version in yaml.safe_load(path.read_text())["spec"]["versions"]:
        yield version["schema"]["openAPIV3Schema"]


def fields(schema: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every field with its path; ``[]`` stands for the items of a list."""
    for name, field in schema.get("properties", {}).items():
        if path or name not in ROOT_FIELDS:
            yield f"{path}.{name}", field
            yield from fields(field, f"{path}.{name}")
    for part, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(part), dict):
            yield f"{path}{mark}", schema[part]
            yield from fields(schema[part], f"{path}{mark}")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_field_has_a_description(path: Path) -> None:
    for schema in schemas(path):
        named = [(name, field) for name, field in fields(schema) if name[-1] not in "]}"]
        silent = [name for name, field in [("", schema), *named] if not field.get("description")]
        assert silent == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_nothing_inside_a_list_has_a_default(path: Path) -> None:
    """With a default, an object that is applied from a repository would always show a diff."""
    for schema in schemas(path):
        assert [
            name for name, field in fields(schema) if "[]" in name and "default" in field
        ] == []


def described(name: str) -> Iterator[tuple[str, str]]:
    """Yield every field of a CRD with its description."""
    for schema in schemas(ROOT / "crds" / name):
        yield from ((path, field.get("description", "")) for path, field in fields(schema))


def settings(**more: bool) -> dict[str, Any]:
    """Compile a policy that changes objects, and return what it says about its requests."""
    match = {"any": [{"resources": {"kinds": ["Pod"]}}]}
    rule = {"name": "r", "match": match, "mutate": {"patchStrategicMerge": {"metadata": {}}}}
    policy = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p"},
        "spec": {"rules": [rule], **more},
    }
    compiled = compile_policy(policy)
    assert isinstance(compiled, CompiledPolicy)
    return {
        name: getattr(compiled, name) for name in ("emit_warning", "failure_policy", "timeout")
    }


@pytest.mark.parametrize("name", ["clusterpolicies.yaml", "policies.yaml"])
def test_a_flag_described_as_for_other_rules_changes_no_mutate_rule(name: str) -> None:
    flags = {
        path.rpartition(".")[2]
        for path, text in described(name)
        if path.count(".") == 2 and text.endswith("rules only.") and "eprecated" not in text
    }
    assert "useServerSideApply" in flags
    assert {flag for flag in flags if settings(**{flag: True}) != settings()} == set()


def test_selectors_of_exceptions_say_whose_labels_they_compare() -> None:
    texts = {
        (path.rpartition(".")[2], text)
        for path, text in described("policyexceptions.yaml")
        if path.endswith("elector")
    }
    assert len(texts) == 2
    for name, text in texts:
        assert ("namespace" in text) == (name == "namespaceSelector"), text
