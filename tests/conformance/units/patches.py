"""Patches: strategic merge with anchors, JSON patch, and the diff of two documents."""

from typing import Any

import jsonpatch

from reconciler.dialects.kyverno.anchors import compile_strategic
from reconciler.dialects.kyverno.patchtext import parse_operations
from reconciler.dialects.kyverno.pattern import AnchorKind, match_pattern, parse_anchor
from reconciler.engine.outcome import Unmet
from reconciler.engine.patch import (
    LENIENT,
    SHIPPED,
    apply_operations,
    compile_operations,
    equal,
    json_diff,
    merge,
)
from tests.conformance.units.cases import Case, Fields, attempt, runs


def patched(text: str, resource: Any) -> Any:
    decoded = parse_operations(text, location="patch")
    operations = compile_operations(decoded, location="patch")
    return apply_operations(resource, operations, profile=LENIENT)


def resolved(patch: Any, resource: dict[str, Any]) -> dict[str, Any] | Unmet:
    compiled = compile_strategic(patch, location="patch")
    return compiled.resolve(patch, resource, SHIPPED)


def merged(patch: Any, resource: dict[str, Any]) -> dict[str, Any]:
    plain = resolved(patch, resource)
    return resource if isinstance(plain, Unmet) else merge(resource, plain, SHIPPED)


def containers(document: Any) -> list[Any]:
    """Return the containers of an object or a patch, at any depth."""
    if isinstance(document, dict):
        if isinstance(document.get("containers"), list):
            return list(document["containers"])
        for value in document.values():
            if found := containers(value):
                return found
    return []


def check_outcome(case: Case, result: Any, error: str | None) -> None:
    """Compare the result of a patch with each expectation of the case about it."""
    case.check_error(error)
    if case.expects_error():
        return
    for name in ("patch", "resource"):
        if name in case.wanted:
            assert equal(result, case.wanted[name])
    if "containers_len" in case.wanted:
        assert len(containers(result)) == case.wanted["containers_len"]
    if "containers" in case.wanted:
        assert containers(result) == case.wanted["containers"]


@runs("strategic-preprocess")
def preprocess(case: Case) -> None:
    plain, error = attempt(lambda: resolved(case.given["patch"], case.given["resource"]))
    if isinstance(plain, Unmet):
        assert error is None
        error = plain.reason
    check_outcome(case, plain, error)


@runs("map-conditions")
def map_conditions(case: Case) -> None:
    plain = resolved(case.given["pattern"], case.given["resource"])
    assert isinstance(plain, Unmet) is not case.wanted["match"]
    case.check_error(plain.reason if isinstance(plain, Unmet) and case.expects_error() else None)


@runs("condition-check")
def condition_check(case: Case) -> None:
    """A pattern returns no reason for a mismatch here: its caller names the condition."""
    found = match_pattern(case.given["resource"], case.given["pattern"])
    assert found is case.wanted["match"]
    if "error" in case.wanted:
        assert bool(case.wanted["error"]) is not found


@runs("delete-anchors")
def delete_anchors(case: Case) -> None:
    """On an empty object, only the parts without conditions remain of a patch."""
    plain = resolved(case.given["patch"], {})
    assert not isinstance(plain, Unmet)
    name = "patch_after_anchor_removal"
    if f"{name}_containers" in case.wanted:
        assert containers(plain) == case.wanted[f"{name}_containers"]
    if name in case.wanted:
        assert plain == case.wanted[name]
    check_outcome(case, plain, None)


@runs("filter-keys")
def filter_keys(case: Case) -> None:
    kinds = (AnchorKind.CONDITION, AnchorKind.GLOBAL)
    found = [
        key
        for key in case.given["pattern"]
        if (anchor := parse_anchor(key)) and anchor.kind in kinds
    ]
    assert sorted(found) == sorted(case.wanted["condition_keys"] or ())


@runs("strategic-merge")
def strategic_merge(case: Case) -> None:
    patch = patch_of(case.given)
    result, error = attempt(lambda: merged(patch, case.given["resource"]))
    check_outcome(case, result, error)


def patch_of(given: Fields) -> Any:
    """Return the patch of a case, which must also be in the policy if the case has one."""
    patch = given["patch"]
    if given.get("policy"):
        rules = given["policy"]["spec"]["rules"]
        assert patch in [rule["mutate"]["patchStrategicMerge"] for rule in rules]
    return patch


@runs("strategic-merge-diff")
def strategic_merge_leads_where_the_operations_lead(case: Case) -> None:
    resource = case.given["resource"]
    result = merged(patch_of(case.given), resource)
    assert equal(result, jsonpatch.apply_patch(resource, case.wanted["allowed_diff_ops"]))


@runs("json6902")
def json_patch(case: Case) -> None:
    given = case.given
    result, error = attempt(lambda: patched(given["patches"], given["resource"]))
    check_outcome(case, result, error)


@runs("json6902-diff")
def json_patch_changes_what_is_allowed(case: Case) -> None:
    resource = case.given["resource"]
    found = json_diff(resource, patched(case.given["patches"], resource))
    allowed = case.wanted["allowed_diff_ops"]
    assert bool(found) is bool(allowed)
    assert all(operation in allowed for operation in found)


@runs("diff")
def diff_leads_from_before_to_after(case: Case) -> None:
    before, after = case.given["before"], case.given["after"]
    found = json_diff(before, after)
    result = jsonpatch.apply_patch(before, found)
    assert equal(result, after) is case.wanted.get("roundtrip", True)
    if "allowed_diff_ops" in case.wanted:
        assert all(operation in case.wanted["allowed_diff_ops"] for operation in found)
