"""Cases of Go templates: the rendered text, or the text parsed as a YAML value."""

import copy
import re
from datetime import UTC, datetime
from typing import Any

from reconciler.engine.environment import EvaluationEnvironment
from reconciler.errors import EvaluationError
from reconciler.languages import gotemplate, goyaml
from reconciler.languages.gotemplate import Int, Pointer, Record, Template, TemplateSyntaxError
from tests.conformance.dialects.cases import Case, runs

_SHORT = re.compile(r"\.#([0-9]+)")


@runs("gotemplate/template", "gotemplate/sprig")
def run_template(case: Case) -> None:
    """Render a template with data, and accept the result of either release of Go."""
    answers = [case, *([case["go118"]] if "go118" in case else [])]
    phase, found = _rendered(case)
    fitting = [each for each in answers if each.get("phase", "done") == phase]
    assert fitting, f"{phase}: {found!r}"
    if phase == "done":
        assert found.decode() in [each["want"] for each in fitting]
    elif ": fail: " in found:  # the template itself contains the message
        assert found.endswith(f": fail: {case['errorContains']}")


@runs("gotemplate/value")
def run_value(case: Case) -> None:
    """Render a template and parse the text as a value."""
    phase, found = _rendered(case)
    if phase == "done":
        try:
            found = goyaml.parse(found)
        except goyaml.YAMLError as error:
            phase, found = "yaml", str(error)
    assert phase == case.get("phase", "done"), found
    if phase == "done":
        assert _same(found, case["want"]), found


def _rendered(case: Case) -> tuple[str, Any]:
    """Return the phase that a template reaches, with its bytes or its error."""
    try:
        template, data = _compiled(case)
    except TemplateSyntaxError as error:
        return "parse", str(error)
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    environment = EvaluationEnvironment(now=now, randbelow=lambda _: 0)
    try:
        return "done", template.render_bytes(data, environment=environment)
    except EvaluationError as error:
        return "exec", str(error)


def _compiled(case: Case) -> tuple[Template, Record]:
    given = copy.deepcopy(case["data"])
    fields = {"Namespace": given.get("Namespace", ""), "Target": Pointer(given.get("Target"))}
    text, name = case["template"], "core.RejectTemplateContext"
    if case.get("context") != "reject":
        text = _SHORT.sub(r"(index .SelectKeyParts \1)", text)
        name = "*core.PatchTemplateContext"
        parts = given.get("SelectKeyParts", [])
        fields["SelectKeyParts"] = [Int(each) if type(each) is int else each for each in parts]
        fields["SelectedItem"] = given.get("SelectedItem")
    builtin = case.get("functions") == "builtin"
    functions = gotemplate.BUILTIN if builtin else gotemplate.SPRIG
    return gotemplate.compile(text, functions=functions), Record(name, fields)


def _same(one: Any, other: Any) -> bool:
    """Compare values as in JSON, where a boolean is not a number."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
