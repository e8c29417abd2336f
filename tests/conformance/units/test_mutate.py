"""Patches: strategic merge with anchors, JSON patch, and the difference of two documents."""

from typing import Any

import pytest

from reconciler.engine.patch import (
    LENIENT,
    SHIPPED,
    STRICT,
    Schema,
    Unmet,
    apply_operations,
    compile_operations,
    compile_strategic,
    equal,
    json_diff,
    merge,
    parse_operations,
)
from tests.conformance.units.cases import load

FILE = "mutate.json"


def patched(text: str, resource: Any) -> Any:
    decoded = parse_operations(text, location="patch")
    operations = compile_operations(decoded, location="patch")
    return apply_operations(resource, operations, profile=LENIENT)


def schema_of(resource: dict[str, Any]) -> Schema | None:
    return SHIPPED.of(resource)


def resolved(patch: Any, resource: dict[str, Any]) -> dict[str, Any] | Unmet:
    compiled = compile_strategic(patch, location="patch")
    return compiled.resolve(patch, resource, schema=schema_of(resource))


def merged(patch: Any, resource: dict[str, Any]) -> dict[str, Any]:
    plain = resolved(patch, resource)
    return resource if isinstance(plain, Unmet) else merge(resource, plain, SHIPPED)


@pytest.mark.parametrize("case", load(FILE, {"strategic-preprocess"}))
def test_preprocess(case: dict[str, Any]) -> None:
    plain = resolved(case["input"]["patch"], case["input"]["resource"])
    if "error" in case["expected"]:
        assert isinstance(plain, Unmet)
        assert plain.reason == case["expected"]["error"]
    else:
        assert plain == case["expected"]["patch"]


@pytest.mark.parametrize("case", load(FILE, {"map-conditions"}))
def test_conditions(case: dict[str, Any]) -> None:
    plain = resolved(case["input"]["pattern"], case["input"]["resource"])
    assert isinstance(plain, Unmet) is not case["expected"]["match"]


@pytest.mark.parametrize("case", load(FILE, {"strategic-merge"}))
def test_strategic_merge(case: dict[str, Any]) -> None:
    result = merged(case["input"]["patch"], case["input"]["resource"])
    assert equal(result, case["expected"]["resource"])


@pytest.mark.parametrize("case", load(FILE, {"strategic-merge-diff"}))
def test_strategic_merge_leads_where_the_operations_lead(case: dict[str, Any]) -> None:
    resource = case["input"]["resource"]
    allowed = compile_operations(case["expected"]["allowed_diff_ops"], location="expected")
    result = merged(case["input"]["patch"], resource)
    assert equal(result, apply_operations(resource, allowed, profile=STRICT))


@pytest.mark.parametrize("case", load(FILE, {"json6902"}))
def test_json_patch(case: dict[str, Any]) -> None:
    result = patched(case["input"]["patches"], case["input"]["resource"])
    assert equal(result, case["expected"]["resource"])


@pytest.mark.parametrize("case", load(FILE, {"json6902-diff"}))
def test_json_patch_changes_what_is_allowed(case: dict[str, Any]) -> None:
    resource = case["input"]["resource"]
    found = json_diff(resource, patched(case["input"]["patches"], resource))
    assert found
    assert all(operation in case["expected"]["allowed_diff_ops"] for operation in found)


@pytest.mark.parametrize("case", load(FILE, {"diff"}))
def test_diff_leads_from_before_to_after(case: dict[str, Any]) -> None:
    before, after = case["input"]["before"], case["input"]["after"]
    operations = compile_operations(json_diff(before, after), location="diff")
    assert equal(apply_operations(before, operations, profile=STRICT), after)
