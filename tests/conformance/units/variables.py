"""Documents and texts with variables and references."""

from collections.abc import Iterator
from typing import Any

from reconciler.dialects.kyverno.template import compile_template
from reconciler.engine.context import Context
from reconciler.languages.jmespath import braces, references
from reconciler.languages.jmespath.references import absolute_path, resolve
from tests.conformance.units.cases import Case, Fields, attempt, runs
from tests.conformance.units.subjects import ENVIRONMENT


def context_of(given: Fields) -> Context:
    """Return the context of expressions: raw data, the objects of a request, and its user."""
    context = given.part("context")
    data = {**(context.get("raw") or {}), **given.part("variables"), **ENVIRONMENT}
    request = {name: context[name] for name in ("object", "oldObject") if name in context}
    if "userInfo" in given:
        request["userInfo"] = given["userInfo"]
    if request:
        data["request"] = {**data.get("request", {}), **request}
    return Context(data)


def render(document: Any, context: Context) -> Any:
    """Render as the reference does: a patch is rendered by itself, so `{{@}}` starts in it."""
    mutate = document.get("mutate") if isinstance(document, dict) else None
    overlay = mutate.get("overlay") if isinstance(mutate, dict) else None
    if overlay is not None:
        rendered = compile_template(overlay).render(context)
        return {"mutate": {"overlay": rendered}}
    return compile_template(document).render(context)


def checked(case: Case, document: Any) -> Any:
    context = context_of(case.given)
    result, error = attempt(lambda: render(document, context))
    case.check_error(error)
    return result


def at(value: Any, path: str) -> Any:
    for step in path.replace("/", ".").strip(".").split("."):
        value = value[int(step)] if isinstance(value, list) else value[step]
    return value


@runs("substitute")
def substitute(case: Case) -> None:
    result = checked(case, case.given["document"])
    if "document" in case.wanted:
        assert result == case.wanted["document"]
    for path, value in (case.wanted.get("at") or {}).items():
        assert at(result, path) == value


@runs("substitute-string")
def substitute_string(case: Case) -> None:
    result = checked(case, case.given["string"])
    if "string" in case.wanted:
        assert result == case.wanted["string"]


@runs("replace-all-vars")
def replace_all_vars(case: Case) -> None:
    """The reference's function makes one pass, so it replaces only innermost variables."""
    text = case.given["string"]
    found = [one for outer in braces.find(text, passes=len(text)) for one in outer.walk()]
    for variable in reversed([one for one in found if not one.inner]):
        word = case.given["replace_each_with"]
        text = f"{text[: variable.start]}{word}{text[variable.end :]}"
    assert text == case.wanted["string"]


@runs("is-variable")
def variable(case: Case) -> None:
    name = "string" if "string" in case.given else "input"
    assert braces.contains(case.given[name]) is case.wanted["result"]


@runs("is-reference")
def reference(case: Case) -> None:
    name = "string" if "string" in case.given else "input"
    assert references.contains(case.given[name]) is case.wanted["result"]


@runs("absolute-path")
def path_of_reference(case: Case) -> None:
    given = case.given
    path = absolute_path(given["referencePath"], given["absolutePath"])
    assert path == case.wanted["path"]


@runs("object-has-variables")
def object_has_variables(case: Case) -> None:
    name = "input" if "input" in case.given else "document"
    found = any(map(braces.contains, _texts(case.given[name])))
    wanted = case.expects_error() or bool(case.wanted.get("result"))
    assert found is wanted


def _texts(value: Any) -> Iterator[str]:
    """Yield the keys and values of a document that are strings."""
    match value:
        case str():
            yield value
        case dict():
            for part in (*value, *value.values()):
                yield from _texts(part)
        case list():
            for part in value:
                yield from _texts(part)
        case _:
            return


@runs("allowed-variables")
def allowed_variables(case: Case) -> None:
    """The variables that a part of a rule may read are checked when the policy is compiled."""
    document = case.given["document"]
    roots = compile_template(document).reads
    allowed = [tuple(name.split(".")) for name in case.given["allowed_variables"]]
    outside = [
        read for read in sorted(roots) if not any(read[: len(path)] == path for path in allowed)
    ]
    case.check_error(str(outside) if outside else None)


@runs("resolve-reference")
def resolve_reference(case: Case) -> None:
    given = case.given
    document, text = given["document"], given["reference"]
    result, error = attempt(lambda: resolve(text, document, given["at"], location=""))
    case.check_error(error)
    if "value" in case.wanted:
        assert result == case.wanted["value"]
