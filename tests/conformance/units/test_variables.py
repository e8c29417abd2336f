from typing import Any

import pytest

from reconciler.engine.context import Context
from reconciler.engine.jmes.braces import replace
from reconciler.engine.jmes.references import absolute_path
from reconciler.engine.variables import compile_template, is_reference, is_variable
from tests.conformance.units.cases import attempt, load


def context_of(given) -> Context:
    context = given["context"]
    data: dict[str, Any] = dict(context.get("raw", {}))
    if "object" in context:
        data["request"] = {"object": context["object"]}
    if "userInfo" in given:
        data.setdefault("request", {})["userInfo"] = given["userInfo"]
    return Context(data)


def render(document, given):
    """Render as the reference does: a patch is named by its rule, so `{{@}}` starts below it."""
    overlay = document.get("mutate", {}).get("overlay") if isinstance(document, dict) else None
    if overlay is not None:
        rendered = compile_template(overlay).render(context_of(given))
        return {"mutate": {"overlay": rendered}}
    return compile_template(document).render(context_of(given))


def check(case, document):
    expected = case["expected"]
    result, error = attempt(lambda: render(document, case["input"]))
    assert (error is not None) is ("error" in expected), error
    assert expected.get("message_contains", "") in (error or "")
    return result


@pytest.mark.parametrize("case", load("variables.json", {"substitute"}))
def test_substitute(case):
    result = check(case, case["input"]["document"])
    expected = case["expected"]
    if "document" in expected:
        assert result == expected["document"]
    for path, value in expected.get("at", {}).items():
        found = result
        for key in path.split("."):
            found = found[key]
        assert found == value


@pytest.mark.parametrize("case", load("variables.json", {"substitute-string"}))
def test_substitute_string(case):
    result = check(case, case["input"]["string"])
    if "string" in case["expected"]:
        assert result == case["expected"]["string"]


@pytest.mark.parametrize("case", load("variables.json", {"replace-all-vars"}))
def test_replace_all_vars(case):
    given = case["input"]
    result = replace(given["string"], lambda _variable: given["replace_each_with"])
    assert result == case["expected"]["string"]


@pytest.mark.parametrize("case", load("variables.json", {"is-variable"}))
def test_is_variable(case):
    text = case["input"].get("string", case["input"].get("input"))
    assert is_variable(text) is case["expected"]["result"]


@pytest.mark.parametrize("case", load("variables.json", {"is-reference"}))
def test_is_reference(case):
    assert is_reference(case["input"]["input"]) is case["expected"]["result"]


@pytest.mark.parametrize("case", load("variables.json", {"absolute-path"}))
def test_absolute_path(case):
    given = case["input"]
    path = absolute_path(given["referencePath"], given["absolutePath"])
    assert path == case["expected"]["path"]
