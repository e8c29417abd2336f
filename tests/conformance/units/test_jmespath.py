import pytest

from reconciler.engine.jmes import compile_expression
from tests.conformance.units.cases import LATER, attempt, load


@pytest.mark.parametrize("case", load("jmespath.json", {"query"}))
def test_query(case):
    given, expected = case["input"], case["expected"]
    result, error = attempt(lambda: compile_expression(given["query"]).search(given["data"]))
    if "result" in expected:
        assert error is None
        assert result == expected["result"]
    else:
        assert error is not None
        assert expected.get("message_contains", "") in error


@pytest.mark.parametrize("case", load("jmespath.json", {"error-format"}))
def test_error_format(case):
    # Only functions beyond the standard ones use these formats.
    assert case["expected"]["message"]
    pytest.skip(LATER)
