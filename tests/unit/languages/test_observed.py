"""The results of the original programs on small inputs, observed by running them.

``observed/`` has templates (text/template with Sprig 3.2), select expressions (gval 1.0.1 with the
JSONPath of KubeMod) and values (YAML as Go reads it). A case is an input and its output, or
null and the phase that failed.
"""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from reconciler.errors import EvaluationError, InvalidPolicy
from reconciler.languages import gotemplate, goyaml
from reconciler.languages.gotemplate import Int, Pointer, Record, TemplateSyntaxError
from reconciler.languages.gval import UNDEFINED, compile_expression
from reconciler.languages.gval.values import Count, Moment

Case = tuple[str, Any, str]
_HERE = Path(__file__).parent / "observed"
_DONE = "done"
_KEY = re.compile(r"\.#(\d+)")


def observed(name: str) -> tuple[Any, list[Case]]:
    found = json.loads((_HERE / f"{name}.json").read_text())
    return found["data"], [
        (given, wanted, phase[0] if phase else _DONE) for given, wanted, *phase in found["cases"]
    ]


def shown(value: Any) -> Any:
    """Return a value in the notation of the files, with numbers as floats."""
    if value is UNDEFINED:
        return {"$undefined": True}
    match value:
        case bool():
            return value
        case Count():
            return {"$int": float(value)}
        case Moment():
            return {"$time": str(value)}
        case int() | float():
            return float(value) if math.isfinite(value) else {"$float": infinite(value)}
        case list():
            return [shown(item) for item in value]
        case dict():
            return {key: shown(item) for key, item in value.items()}
        case _:
            return value


def infinite(number: float) -> str:
    return "NaN" if math.isnan(number) else "+Inf" if number > 0 else "-Inf"


TARGET, TEMPLATES = observed("templates")
DOCUMENT, EXPRESSIONS = observed("expressions")
_, VALUES = observed("values")


def rendered(text: str) -> tuple[str | None, str]:
    fields = {
        "Namespace": "shop",
        "Target": Pointer(TARGET),
        "SelectKeyParts": [Int(0), "k"],
        "SelectedItem": {"x": 1},
    }
    try:
        template = gotemplate.compile(_KEY.sub(r"(index .SelectKeyParts \1)", text))
        return template.render(Record("*core.PatchTemplateContext", fields)), _DONE
    except TemplateSyntaxError:
        return None, "parse"
    except EvaluationError:
        return None, "exec"


def evaluated(source: str) -> tuple[Any, str]:
    try:
        expression = compile_expression(source)
    except InvalidPolicy:
        return None, "parse"
    try:
        return shown(expression.evaluate(DOCUMENT)), _DONE
    except EvaluationError:
        return None, "exec"


def read(text: str) -> tuple[Any, str]:
    try:
        return shown(goyaml.parse(text)), _DONE
    except goyaml.YAMLError:
        return None, "yaml"


@pytest.mark.parametrize(("text", "wanted", "phase"), TEMPLATES)
def test_templates_render_as_observed(text: str, wanted: str | None, phase: str) -> None:
    assert rendered(text) == (wanted, phase)


@pytest.mark.parametrize(("source", "wanted", "phase"), EXPRESSIONS)
def test_expressions_evaluate_as_observed(source: str, wanted: Any, phase: str) -> None:
    assert evaluated(source) == (shown(wanted), phase)


@pytest.mark.parametrize(("text", "wanted", "phase"), VALUES)
def test_yaml_values_are_read_as_observed(text: str, wanted: Any, phase: str) -> None:
    assert read(text) == (shown(wanted), phase)
