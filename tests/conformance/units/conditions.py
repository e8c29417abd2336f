"""Conditions and their operators."""

from typing import Any

from reconciler.dialects.kyverno.preconditions import compile_conditions
from reconciler.dialects.kyverno.preconditions.durations import duration_pair
from reconciler.dialects.kyverno.preconditions.operators import (
    DEPRECATED,
    OPERATORS,
    find_operator,
)
from reconciler.engine.context import Context
from reconciler.engine.outcome import ConditionResult
from reconciler.engine.values import scalars
from tests.conformance.units.cases import Case, Fields, attempt, runs
from tests.conformance.units.subjects import ENVIRONMENT, values_of

LOCATION = "preconditions"
# A case may name only types that JSON distinguishes.
KEY_TYPES = {"int64": int, "float64": float, "string": str, "bool": bool, "[]string": list}


def scope(given: Fields) -> Context:
    """Return the context of the conditions of a case: an object, and values by name."""
    request = {"object": given.get("object") or {}}
    return Context({**values_of(given), **ENVIRONMENT, "request": request})


def typed(given: Fields, name: str) -> Any:
    value = given[name]
    if f"{name}_type" in given:
        kind = given.one_of(f"{name}_type", KEY_TYPES)
        value = kind(value) if kind in {int, float} else value
        assert isinstance(value, kind)
    return value


def compared(name: str, key: Any, value: Any) -> bool:
    """Return the result of an operator, which is false for an unknown operator."""
    operator = find_operator(name)
    return operator is not None and operator(key, value)


@runs("condition")
def condition(case: Case) -> None:
    """A condition without key, value or a known operator is refused when it is compiled."""
    given = case.given
    raw = {name: given[name] for name in ("key", "operator", "value") if name in given}
    known = find_operator(str(raw.get("operator"))) is not None
    context = scope(given)
    result, error = attempt(
        lambda: compile_conditions([raw], location=LOCATION).evaluate(context).passed
    )
    if error is not None and known and {"key", "value"} <= raw.keys() and None in raw.values():
        result, error = compared(raw["operator"], raw["key"], raw["value"]), None
    elif error is not None and not known and not case.expects_error():
        result, error = False, None
    case.check_error(error)
    if "result" in case.wanted:
        assert result is case.wanted["result"]


@runs("operator")
def operator(case: Case) -> None:
    given = case.given
    result = compared(given["operator"], typed(given, "key"), typed(given, "value"))
    if "result" in case.wanted:
        assert result is case.wanted["result"]


@runs("any-all")
def any_all(case: Case) -> None:
    """The blocks of a list of ``{any, all}`` are AND-ed until one fails."""
    context = scope(case.given)
    blocks = case.given["conditions"]

    def decide() -> ConditionResult:
        decision = ConditionResult(passed=True)
        for block in blocks if isinstance(blocks, list) else [blocks]:
            decision = compile_conditions(block, location=LOCATION).evaluate(context)
            if not decision.passed:
                break
        return decision

    decision, error = attempt(decide)
    if case.expects_error() or error is not None:
        case.check_error(error)
        return
    if "result" in case.wanted:
        assert decision.passed is case.wanted["result"]
    case.check_message(decision.message)


@runs("any-all-conditions")
def any_all_with_errors(case: Case) -> None:
    raw, context = case.given["conditions"], scope(case.given)
    passed, error = attempt(
        lambda: compile_conditions(raw, location=LOCATION).evaluate(context).passed
    )
    case.check_error(error)
    wanted = case.wanted.get("want")
    assert wanted is None or bool(passed) is wanted


@runs("duration-compare")
def duration_compare(case: Case) -> None:
    given = case.given
    result = compared(given["operator"], given["key_seconds"], given["value_seconds"])
    assert result is case.wanted["result"]


@runs("parse-duration-pair")
def parse_duration_pair(case: Case) -> None:
    pair = duration_pair(typed(case.given, "key"), typed(case.given, "value"))
    wanted = case.wanted
    if wanted.get("not_durations"):
        assert pair is None
        return
    assert pair is not None
    for side, found in zip(("Key", "Value"), pair, strict=True):
        names = [f"expected{side}_seconds", f"expected{side}"]
        expected = [wanted[name] for name in names if name in wanted]
        assert all(found == seconds * scalars.SECOND for seconds in expected)


@runs("array-membership")
def array_membership(case: Case) -> None:
    """An invalid value satisfies neither of the deprecated operators In and NotIn."""
    given, wanted = case.given, case.wanted
    found = OPERATORS["In"](given["key"], given["value"])
    missing = OPERATORS["NotIn"](given["key"], given["value"])
    negated = given.get("notIn", case.test == "TestIsNotIn")
    if "expected" in wanted:
        assert (missing if negated else found) is wanted["expected"]
    if "expectInvalid" in wanted:
        assert (not found and not missing) is wanted["expectInvalid"]
    if "expectKeyExist" in wanted:
        assert (missing if negated else found) is wanted["expectKeyExist"]


@runs("operator-info")
def operator_info(case: Case) -> None:
    wanted = case.wanted
    name = case.given.get("operator", "")
    if "operators_include" in wanted:
        assert set(wanted["operators_include"]) <= OPERATORS.keys()
        return
    expected = wanted["expected"]
    if isinstance(expected, list):
        assert list(DEPRECATED.get(name, ())) == expected
    elif "Deprecated" in case.test:
        assert (name in DEPRECATED) is expected
    else:
        assert (name in OPERATORS) is expected
