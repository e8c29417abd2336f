"""Values as Go prints them; each expected text is the output of ``fmt.Sprintf("%v", ...)``."""

from typing import Any

import pytest

from reconciler.engine.values.gotext import go_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (80, "80"),
        (999_999, "999999"),
        (1_000_000, "1e+06"),
        (1_234_567, "1.234567e+06"),
        (1234567.5, "1.2345675e+06"),
        (123456.789, "123456.789"),
        (12345678901234567890, "1.2345678901234567e+19"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (-2.25, "-2.25"),
        (0, "0"),
        (5e-324, "5e-324"),
        (float("-inf"), "-Inf"),
        (-(10**400), "-Inf"),
        (True, "true"),
        (None, "<nil>"),
        ({"b": 1, "a": [1.5, None, "x y", True]}, "map[a:[1.5 <nil> x y true] b:1]"),
    ],
)
def test_values_are_printed_as_in_go(value: Any, text: str) -> None:
    assert go_text(value) == text
