"""Limits on the cost of hostile expressions, which fail before they take long."""

import time
from typing import Any

import pytest

from reconciler.errors import EvaluationError
from reconciler.languages.jmespath import compile_expression

MANY = 900_000
ENOUGH = 20.0
"""Processor seconds, several times those of the worst case on a slow machine."""


@pytest.mark.parametrize(
    ("source", "data"),
    [
        ("map(&parse_json(@), @)", ["{}"] * MANY),
        ("map(&add(@, `1`), @)", [1] * MANY),
        ("map(&length(@), @)", ["x"] * MANY),
        ("[?starts_with(@, 'y')]", ["x"] * MANY),
        ("sum(@)", ["1Ki"] * MANY),
        ("map(&semver_compare('1.2.3', @), @)", [">1.0.0 <2.0.0 || 3.x"] * MANY),
        ("map(&regex_match(@, 'x'), @)", [rf"[\pL\pN]{{20}}{n}" for n in range(20_000)]),
    ],
)
def test_many_calls_are_refused_in_time(source: str, data: Any) -> None:
    expression = compile_expression(source)
    began = time.process_time()
    with pytest.raises(EvaluationError, match="work through more than"):
        expression.search(data)
    assert time.process_time() - began < ENOUGH


def test_as_many_calls_as_a_rule_needs_are_not_refused() -> None:
    assert len(compile_expression("map(&to_upper(@), @)").search(["x"] * 100_000)) == 100_000
    assert compile_expression("sum(@)").search(["1Ki"] * 100_000) == "100000Ki"
