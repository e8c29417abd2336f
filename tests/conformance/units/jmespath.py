"""Queries, and the errors of functions."""

import math
import re
import sys
from collections.abc import Callable
from typing import Any

from reconciler.languages.jmespath import IMPURE, compile_expression
from reconciler.languages.jmespath.functions import arithmetic, quantities, signature
from reconciler.languages.jmespath.functions.arithmetic import whole_number
from reconciler.languages.jmespath.functions.signature import refusal
from reconciler.languages.jmespath.values import kind_of, plain
from tests.conformance.units.cases import Case, Fields, attempt, runs
from tests.conformance.units.subjects import ENVIRONMENT

# Numbers that the cases name as in Go.
NUMBERS = {
    "Inf": math.inf,
    "NaN": math.nan,
    "MaxFloat64": sys.float_info.max,
    "SmallestNonzeroFloat64": 5e-324,
    "MaxFloat32": 3.4028234663852886e38,
    "MaxInt64": 2**63 - 1,
    "MinInt64": -(2**63),
    "MaxUint64": 2**64 - 1,
    "MaxInt32": 2**31 - 1,
    "MinInt32": -(2**31),
    "MaxUint32": 2**32 - 1,
}
FORMATS = {
    "genericError": "{}",
    "invalidArgumentTypeError": signature.WRONG_TYPE,
    "argOutOfBoundsError": signature.OUT_OF_BOUNDS,
    "zeroDivisionError": quantities.ZERO_DIVISOR,
    "nonIntModuloError": quantities.NOT_WHOLE,
    "typeMismatchError": quantities.TYPES_MISMATCH,
    "nonIntRoundError": arithmetic.NOT_WHOLE_DIGITS,
}
PARSES = {
    "time": ("time_add({}, '0s')", None),
    "duration": ("time_add('2026-01-01T00:00:00Z', {})", "2026-01-01T00:00:00Z"),
}


def searched(source: str, data: Any) -> Any:
    """Search data, with a fixed time and random numbers for functions that need them."""
    expression = compile_expression(source)
    if expression.functions & IMPURE:
        data = {**(data or {}), **ENVIRONMENT}
    return expression.search(data)


def verdict(case: Case, work: Callable[[], Any]) -> None:
    result, error = attempt(work)
    case.check_error(error)
    if "result" in case.wanted and not case.expects_error():
        # The cases contain large integers, which no JSON decoder except Python's preserves.
        assert result == plain(case.wanted["result"])
    if "type" in case.wanted:
        assert kind_of(result) == case.wanted["type"]


@runs("query")
def query(case: Case) -> None:
    source, data = case.given["query"], case.given.get("data")
    verdict(case, lambda: searched(source, data))


@runs("call")
def call(case: Case) -> None:
    given = case.given
    values = given.get("arguments") or []
    arguments = ", ".join(f"a[{index}]" for index in range(len(values)))
    source = f"{given['function']}({arguments})"
    verdict(case, lambda: searched(source, {"a": values}))


@runs("argparse")
def argparse(case: Case) -> None:
    """The reference's function returns a value; here a function that accepts it returns it."""
    given = case.given
    source, start = given.one_of("parse", PARSES)
    argument = (given.get("arguments") or [])[given["index"] :][:1]
    expression = source.format("a[0]") if argument else "time_utc()"
    result, error = attempt(lambda: compile_expression(expression).search({"a": argument}))
    case.check_error(error)
    if "value" in case.wanted and not case.expects_error():
        value = case.wanted["value"]
        if start is not None:
            value = compile_expression("time_add(a, b)").search({"a": start, "b": value})
        assert result == value


def number_of(given: Fields) -> float:
    number = given["number"]
    if isinstance(number, int | float):
        # The argument of the reference's function is a float.
        return float(number)
    found = re.fullmatch(r"([+-]?)(?:math\.)?(\w+?)(?:\((-?1?)\))?", number)
    if found is None or found[2] not in NUMBERS:
        given.refuse("number", number)
    sign = -1 if (found[1] == "-") is not (found[3] == "-1") else 1
    return sign * float(NUMBERS[found[2]])


@runs("intNumber")
def int_number(case: Case) -> None:
    number = number_of(case.given)
    verdict(case, lambda: whole_number(number))


@runs("error-format")
def error_format(case: Case) -> None:
    given = case.given
    reason = given.one_of("format", FORMATS).format(*(given.get("values") or []))
    case.check_message(str(refusal(given["function"], reason)))
