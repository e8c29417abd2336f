"""Scalars against value patterns."""

from typing import Any

import pytest

from reconciler.engine import pattern
from tests.conformance.units.cases import load

OPERATORS = {
    "operator.Equal": "",
    "operator.NotEqual": "!",
    "operator.Less": "<",
    "operator.LessEqual": "<=",
    "operator.More": ">",
    "operator.MoreEqual": ">=",
}


@pytest.mark.parametrize("case", load("pattern.json", {"pattern"}))
def test_pattern(case: dict[str, Any]) -> None:
    function, args = case["input"]["function"], case["input"]["args"]
    wanted = case["expected"]["result"]
    if function == "operator.GetOperatorFromStringPattern":
        # Which operator a text carries shows in what it accepts: itself, and nothing else.
        operator = OPERATORS[wanted]
        assert pattern.matches(args[0], operator + args[0])
        assert not pattern.matches(f"{args[0]}x", args[0])
        return
    value, wanted_pattern, *operator_names = args
    for name in operator_names:
        wanted_pattern = f"{OPERATORS[name]}{wanted_pattern}"
    assert pattern.matches(value, wanted_pattern) is wanted
