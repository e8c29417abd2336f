"""Cases of kinitiras."""

from collections.abc import Callable
from typing import Any

import pytest

from reconciler.dialects.kinitiras import KINITIRAS
from reconciler.dialects.kinitiras.condition import SIGNS
from reconciler.dialects.kinitiras.origin import read_origin
from reconciler.dialects.kinitiras.selectors import read_selector
from reconciler.dialects.kinitiras.texts import (
    ABSENT,
    Path,
    filled,
    filled_selector,
    placeholders,
    read_number,
    read_path,
)
from reconciler.dialects.kinitiras.tolerations import read_tolerations
from reconciler.errors import EvaluationError, InvalidPolicy
from tests.conformance.dialects.cases import Case, runs
from tests.conformance.verdicts import NOT_YET


@runs("kinitiras/selectors")
def run_selectors(case: Case) -> None:
    """Whether any of some selectors selects an object; one that is refused selects nothing."""
    obj = case["input"]["object"]
    found = [_selects(raw, obj) for raw in case["input"]["selectors"]]
    assert any(found) is case["expected"]["match"]


def _selects(raw: Any, obj: dict[str, Any]) -> bool:
    try:
        selector = read_selector(raw, "spec.resourceSelectors[0]")
    except InvalidPolicy:
        return False
    meta = obj["metadata"]
    return selector.matches(obj, name=meta["name"], namespace=meta.get("namespace", ""))


@runs("kinitiras/operators")
def run_operators(case: Case) -> None:
    """One of the small notations."""
    assert _OPERATORS[case["kind"]](case["input"]) == case["expected"]


def _placeholder(given: Any) -> Any:
    obj = given["value"]
    for key in reversed(given["keys"]):
        obj = {key: obj}
    try:
        found = filled(given["reference"], obj)
    except EvaluationError:
        return {"error": True}
    return {"found": found is not None, "value": found or ""}


def _label_reference(given: Any) -> Any:
    found = filled_selector(given["selector"], given["object"])
    return {"found": found is not None, "selector": found}


def _pod_phase(given: Any) -> Any:
    obj = given["object"] or {}
    found = Path(("status", "phase")).look_up(obj) if obj.get("kind") == "Pod" else ABSENT
    return {"value": "" if found is ABSENT else found}


def _number(given: Any) -> Any:
    number = read_number(given["number"], "operationWith")
    return {"value": number.value, "isPercent": number.is_percent}


_OPERATORS: dict[str, Callable[[Any], Any]] = {
    "placeholder": _placeholder,
    "label-reference": _label_reference,
    "placeholder-key": lambda given: {"value": placeholders(given["text"])[0]},
    "path": lambda given: {"value": read_path(given["path"], "path").text},
    "condition-sign": lambda given: {"value": SIGNS.get(given["condition"], given["condition"])},
    "number": _number,
    "pod-phase": _pod_phase,
}


@runs("kinitiras/overridepolicies")
def run_override(case: Case) -> None:
    """What a policy, or one typed edit, makes of an object."""
    if case["kind"] != "origin-edit":
        pytest.skip(f"{NOT_YET}CUE is not evaluated")
    edit, *_ = read_origin(case["input"]["origin"], "spec.overrideRules[0].overriders.origin")
    operation = edit.patch(case["input"]["object"])
    path = "/" + "/".join(operation.path)
    found = {"op": operation.name, "path": path, "value": operation.value}
    assert found == case["expected"]["firstPatch"]


@runs("kinitiras/validation")
def run_validation(case: Case) -> None:
    """Whether a policy is accepted."""
    if case["kind"] == "apply":
        pytest.skip(f"{NOT_YET}CUE is not evaluated")
    assert _accepted(case["kind"], case["input"]) is case["expected"]["accepted"]


def _accepted(kind: str, given: Any) -> bool:
    try:
        match kind:
            case "policy-tolerations":
                read_tolerations(given["tolerations"], "tolerations")
            case "policy-origin":
                read_origin(given["origin"], "origin")
            case _:
                KINITIRAS.compile({"metadata": {"name": "policy"}, **given["object"]})
    except InvalidPolicy:
        return False
    return True
