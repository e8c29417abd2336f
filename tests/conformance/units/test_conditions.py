"""Conditions and their operators."""

from typing import Any

import pytest

from reconciler.engine import scalars
from reconciler.engine.context import Context
from reconciler.engine.preconditions import Decision, compile_conditions
from reconciler.engine.preconditions.durations import duration_pair
from reconciler.engine.preconditions.operators import DEPRECATED, OPERATORS
from reconciler.errors import EvaluationError, InvalidPolicy
from tests.conformance.units.cases import load

LOCATION = "preconditions"


def context(obj: Any) -> Context:
    return Context({"request": {"object": obj}})


@pytest.mark.parametrize("case", load("conditions.json", {"condition"}))
def test_condition(case: dict[str, Any]) -> None:
    given = dict(case["input"])
    obj = given.pop("object", {})
    if given.get("key") is None or given.get("value") is None:
        result = OPERATORS[given["operator"]](given["key"], given["value"])
    else:
        result = compile_conditions([given], location=LOCATION).evaluate(context(obj)).passed
    assert result is case["expected"]["result"]


@pytest.mark.parametrize("case", load("conditions.json", {"operator"}))
def test_operator(case: dict[str, Any]) -> None:
    given = case["input"]
    result = OPERATORS[given["operator"]](given["key"], given["value"])
    assert result is case["expected"]["result"]


@pytest.mark.parametrize("case", load("conditions.json", {"any-all"}))
def test_any_all(case: dict[str, Any]) -> None:
    """The blocks of a list of ``{any, all}`` are AND-ed until one fails."""
    decision = Decision(passed=True)
    for block in case["input"]["conditions"]:
        conditions = compile_conditions(block, location=LOCATION)
        decision = conditions.evaluate(context(case["input"]["object"]))
        if not decision.passed:
            break
    wanted = case["expected"]
    assert decision.passed is wanted["result"]
    assert wanted.get("message_contains", "") in decision.message
    assert wanted.get("message", decision.message) == decision.message


@pytest.mark.parametrize("case", load("match.json", {"any-all-conditions"}))
def test_any_all_with_errors(case: dict[str, Any]) -> None:
    given, wanted = case["input"], case["expected"]
    try:
        conditions = compile_conditions(given["conditions"], location=LOCATION)
        passed = conditions.evaluate(context(given["object"])).passed
    except (EvaluationError, InvalidPolicy):
        assert wanted["wantErr"]
    else:
        assert not wanted["wantErr"]
        assert passed is wanted["want"]


@pytest.mark.parametrize("case", load("conditions.json", {"duration-compare"}))
def test_duration_compare(case: dict[str, Any]) -> None:
    given = case["input"]
    result = OPERATORS[given["operator"]](given["key_seconds"], given["value_seconds"])
    assert result is case["expected"]["result"]


@pytest.mark.parametrize("case", load("conditions.json", {"parse-duration-pair"}))
def test_duration_pair(case: dict[str, Any]) -> None:
    pair = duration_pair(case["input"]["key"], case["input"]["value"])
    wanted = case["expected"]
    if wanted.get("not_durations"):
        assert pair is None
        return
    sides = [
        wanted.get(f"expected{side}_seconds", wanted.get(f"expected{side}"))
        for side in ("Key", "Value")
    ]
    assert pair == tuple(side * scalars.SECOND for side in sides)


@pytest.mark.parametrize("case", load("conditions.json", {"array-membership"}))
def test_array_membership(case: dict[str, Any]) -> None:
    """Invalid shows as: neither In nor NotIn holds. IsIn and IsNotIn are the deprecated pair."""
    given, wanted = case["input"], case["expected"]
    found = OPERATORS["In"](given["key"], given["value"])
    missing = OPERATORS["NotIn"](given["key"], given["value"])
    if case["test"] in ("TestIsIn", "TestIsNotIn"):
        assert (found if case["test"] == "TestIsIn" else missing) is wanted["expected"]
        return
    assert (not found and not missing) is wanted["expectInvalid"]
    assert (missing if given.get("notIn") else found) is wanted["expectKeyExist"]


@pytest.mark.parametrize("case", load("conditions.json", {"operator-info"}))
def test_operator_info(case: dict[str, Any]) -> None:
    wanted = case["expected"]
    name = case["input"].get("operator", "")
    if "operators_include" in wanted:
        assert set(wanted["operators_include"]) <= OPERATORS.keys()
    elif isinstance(wanted["expected"], list):
        assert list(DEPRECATED.get(name, ())) == wanted["expected"]
    elif case["test"] == "TestIsOperatorDeprecated":
        assert (name in DEPRECATED) is wanted["expected"]
    else:
        assert (name in OPERATORS) is wanted["expected"]
