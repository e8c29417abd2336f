import math
import sys

import pytest

from reconciler.engine.jmes import compile_expression
from reconciler.engine.jmes.functions import amounts, arithmetic, signature
from reconciler.engine.jmes.functions.arithmetic import whole_number
from reconciler.engine.jmes.functions.signature import refusal
from reconciler.engine.jmes.values import plain
from tests.conformance.units.cases import attempt, load

# What the cases call by the names of a programming language.
NUMBERS = {"-Inf": -math.inf, "+Inf": math.inf, "math.MaxFloat64": sys.float_info.max}
FORMATS = {
    "genericError": "{}",
    "argOutOfBoundsError": signature.OUT_OF_BOUNDS,
    "zeroDivisionError": amounts.ZERO_DIVISOR,
    "nonIntModuloError": amounts.NOT_WHOLE,
    "typeMismatchError": amounts.TYPES_MISMATCH,
    "nonIntRoundError": arithmetic.NOT_WHOLE_DIGITS,
}


def verdict(work, expected):
    result, error = attempt(work)
    if expected.get("error") or expected.get("compile_error"):
        assert error is not None
        assert expected.get("message_contains", "") in error
        assert expected.get("message", error) == error
    else:
        assert error is None
        # The cases write integers out that no decoder of JSON but Python's keeps.
        assert result == plain(expected["result"])


@pytest.mark.parametrize("case", load("jmespath.json", {"query"}))
def test_query(case):
    given = case["input"]
    verdict(lambda: compile_expression(given["query"]).search(given["data"]), case["expected"])


@pytest.mark.parametrize("case", load("jmespath.json", {"call"}))
def test_call(case):
    given = case["input"]
    arguments = ", ".join(f"a[{index}]" for index in range(len(given["arguments"])))
    source = f"{given['function']}({arguments})"
    verdict(lambda: compile_expression(source).search({"a": given["arguments"]}), case["expected"])


@pytest.mark.parametrize("case", load("jmespath.json", {"argparse"}))
def test_argparse(case):
    given, expected = case["input"], case["expected"]
    argument = given["arguments"][given["index"] :][:1]
    source, written = {
        "time": ("time_add({}, '0s')", expected.get("value")),
        "duration": ("time_add('2026-01-01T00:00:00Z', {})", "2026-01-01T00:00:20Z"),
    }[given["parse"]]
    expression = source.format("a[0]") if argument else "time_utc()"
    verdict(
        lambda: compile_expression(expression).search({"a": argument}),
        expected if "error" in expected else {"result": written},
    )


@pytest.mark.parametrize("case", load("jmespath.json", {"intNumber"}))
def test_int_number(case):
    number = case["input"]["number"]
    verdict(lambda: whole_number(NUMBERS.get(number, number)), case["expected"])


@pytest.mark.parametrize("case", load("jmespath.json", {"error-format"}))
def test_error_format(case):
    given = case["input"]
    reason = FORMATS[given["format"]].format(*(given["values"] or []))
    assert str(refusal(given["function"], reason)) == case["expected"]["message"]
