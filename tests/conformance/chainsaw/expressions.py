"""JMESPath as chainsaw speaks it: ``$name`` is a binding, and there are a few functions more."""

import json
import re
from collections.abc import Mapping
from typing import Any

import jmespath
from jmespath import exceptions, functions

Bindings = Mapping[str, Any]

# A binding stands outside of raw strings, quoted identifiers and literals.
_PIECE = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`(?:\\.|[^`\\])*`|\$(?P<name>\w+)""")
_EXPRESSION = re.compile(r"\((.+)\)")


class ExpressionError(Exception):
    """An expression is not JMESPath, names an unknown binding or fails on its value."""


class _Functions(functions.Functions):
    @functions.signature({"types": ["string"]})
    def _func_json_parse(self, text: str) -> Any:
        try:
            return json.loads(text)
        except ValueError as error:
            raise ExpressionError(f"json_parse: {error}") from error

    @functions.signature({"types": ["string"]})
    def _func_trim_space(self, text: str) -> str:
        return text.strip()


_OPTIONS = jmespath.Options(custom_functions=_Functions())


def expression_of(text: object) -> str | None:
    """Return what stands in the parentheses of ``(text)``, or None.

    The dot does not match a line break: a folded CEL expression in parentheses is plain text.
    """
    found = _EXPRESSION.fullmatch(text) if isinstance(text, str) else None
    return found[1] if found else None


def evaluate(expression: str, value: Any, bindings: Bindings) -> Any:
    """Return the result of an expression on a value.

    Raises:
        ExpressionError: It cannot be evaluated.
    """
    try:
        return jmespath.search(_bind(expression, bindings), value, _OPTIONS)
    except exceptions.JMESPathError as error:
        raise ExpressionError(f"{expression}: {error}") from error


def expand(value: Any, bindings: Bindings) -> Any:
    """Return a document whose values ``(expression)`` are replaced; keys stay as they are.

    Raises:
        ExpressionError: One of them cannot be evaluated.
    """
    if isinstance(value, dict):
        return {key: expand(item, bindings) for key, item in value.items()}
    if isinstance(value, list):
        return [expand(item, bindings) for item in value]
    expression = expression_of(value)
    # There is no value to speak of, but a multi-select of nothing would be nothing.
    return value if expression is None else evaluate(expression, {}, bindings)


def _bind(expression: str, bindings: Bindings) -> str:
    def literal(piece: re.Match[str]) -> str:
        name = piece["name"]
        if name is None:
            return piece[0]
        if name not in bindings:
            raise ExpressionError(f"{expression}: there is no binding ${name}")
        return "`" + json.dumps(bindings[name]).replace("`", "\\`") + "`"

    return _PIECE.sub(literal, expression)
