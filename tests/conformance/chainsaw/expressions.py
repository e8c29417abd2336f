"""JMESPath as in chainsaw, with bindings such as ``$name`` and a few additional functions."""

import json
import re
from collections.abc import Mapping
from typing import Any

import jmespath
from jmespath import exceptions, functions

Bindings = Mapping[str, Any]

# A binding is outside of raw strings, quoted identifiers and literals.
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
    """Return the expression in a text like ``(expression)``, or None for other values.

    The dot does not match a line break: a folded CEL expression in parentheses is plain text.
    """
    found = _EXPRESSION.fullmatch(text) if isinstance(text, str) else None
    return found[1] if found else None


def evaluate(expression: str, value: Any, bindings: Bindings) -> Any:
    """Return the result of an expression on a value.

    Raises:
        ExpressionError: The expression cannot be evaluated.
    """
    try:
        return jmespath.search(_bind(expression, bindings), value, _OPTIONS)
    except exceptions.JMESPathError as error:
        raise ExpressionError(f"{expression}: {error}") from error


def expand(value: Any, bindings: Bindings) -> Any:
    """Return a document with its values ``(expression)`` replaced and its keys unchanged.

    Raises:
        ExpressionError: An expression cannot be evaluated.
    """
    if isinstance(value, dict):
        return {key: expand(item, bindings) for key, item in value.items()}
    if isinstance(value, list):
        return [expand(item, bindings) for item in value]
    expression = expression_of(value)
    # There is no current value, but a multi-select on null would be null.
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
