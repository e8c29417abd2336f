"""Cases of ModRules."""

import json
from typing import Any

from reconciler.errors import EvaluationError, InvalidPolicy
from reconciler.languages.gval import UNDEFINED, compile_expression
from tests.conformance.dialects.cases import Case, runs


@runs("modrule/expressions")
def run_expression(case: Case) -> None:
    """One expression on one document; all languages of the data are parts of one."""
    given, wanted = case["input"], case["expected"]
    found = _outcome(given["expression"], given["data"])
    if wanted.get("unordered"):
        assert sorted(map(json.dumps, found["value"])) == sorted(map(json.dumps, wanted["value"]))
    else:
        assert found == wanted


def _outcome(source: str, data: Any) -> dict[str, Any]:
    try:
        expression = compile_expression(source)
    except InvalidPolicy:
        return {"parseError": True}
    try:
        value = expression.evaluate(data)
    except EvaluationError:
        return {"evalError": True}
    return {"undefined": True} if value is UNDEFINED else {"value": _shown(value)}


def _shown(value: Any) -> Any:
    if value is UNDEFINED:
        return {"$undefined": True}
    if isinstance(value, dict):
        return {key: _shown(item) for key, item in value.items()}
    return [_shown(item) for item in value] if isinstance(value, list) else value
