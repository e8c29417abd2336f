"""Templates of operations: documents with variables ``{{ expr }}`` in their texts.

A text that is exactly one variable becomes its value, of any type; within other text the value is
converted to text. Values are never searched for variables again. Keys cannot have variables.
"""

from collections.abc import Callable, Mapping
from typing import Any

from reconciler.engine.allowance import Allowance
from reconciler.errors import ErrorList, EvaluationError, InvalidPolicy
from reconciler.languages.jmespath import braces
from reconciler.languages.jmespath.expression import compile_expression
from reconciler.languages.jmespath.limits import DEFAULT_LIMITS, Run
from reconciler.languages.jmespath.values import as_text, copy_value

Render = Callable[[Mapping[str, Any], Allowance], Any]
"""Renders a document; raises an `EvaluationError` that names the location."""
_Part = Callable[[Run], Any]


def compile_document(document: Any, *, location: str) -> Render:
    """Compile the variables of a document.

    Raises:
        InvalidPolicy: Some are invalid; lists all locations.
    """
    try:
        with ErrorList() as errors:
            part = _compiled(document, location, errors)
    except RecursionError as error:
        raise InvalidPolicy(location, "is nested too deeply") from error

    def render(data: Mapping[str, Any], allowance: Allowance) -> Any:
        run = Run(dict(data), DEFAULT_LIMITS, allowance)
        try:
            return part(run)
        except RecursionError as error:
            msg = f"{location}: is nested too deeply"
            raise EvaluationError(msg).bare(msg) from error
        finally:
            run.settle()

    return render


def _compiled(value: Any, location: str, errors: ErrorList) -> _Part:
    match value:
        case str():
            return errors.attempt(_text, value, location) or _constant(value)
        case dict():
            fields = {
                key: _compiled(item, f"{location}.{key}", errors) for key, item in value.items()
            }
            return lambda run: {key: part(run) for key, part in fields.items()}
        case list():
            items = [
                _compiled(item, f"{location}[{index}]", errors) for index, item in enumerate(value)
            ]
            return lambda run: [part(run) for part in items]
        case _:
            return _constant(value)


def _constant(value: Any) -> _Part:
    return lambda _run: value


def _text(text: str, location: str) -> _Part:
    parts: list[str | _Part] = []
    place = 0
    for variable in braces.find(text, passes=DEFAULT_LIMITS.passes, location=location):
        if variable.inner:
            raise InvalidPolicy(location, "a variable is nested in another: write one expression")
        if place < variable.start:
            parts.append(braces.unescape(text[place : variable.start]))
        parts.append(_variable(variable.body, location))
        place = variable.end
    if place < len(text) or not parts:
        parts.append(braces.unescape(text[place:]))
    if len(parts) == 1:
        (only,) = parts
        return _constant(only) if isinstance(only, str) else only
    return lambda run: "".join(
        part if isinstance(part, str) else as_text(part(run), run) for part in parts
    )


def _variable(source: str, location: str) -> _Part:
    expression = compile_expression(source, location=location)

    def value(run: Run) -> Any:
        try:
            return copy_value(expression.resolve(run), run)
        except EvaluationError as error:
            said = f"{location}: {{{{ {source} }}}}"
            raise EvaluationError(f"{said}: {error}").bare(said) from error

    return value
