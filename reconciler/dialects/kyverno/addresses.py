"""Addresses of calls that are written with variables."""

from reconciler.dialects.kyverno.template import Scope, Template
from reconciler.engine.values.addresses import join_path, join_url
from reconciler.errors import EvaluationError, InvalidPolicy


def render_path(template: Template, context: Scope) -> str:
    """Return a path of the API server.

    Raises:
        EvaluationError: A variable does not resolve, or its value would lead elsewhere.
    """
    return join_path(template.pieces(context))


def render_url(template: Template, context: Scope) -> str:
    """Return the URL of a service; a variable that it begins with may hold scheme and host.

    Raises:
        EvaluationError: As `render_path`.
    """
    return join_url(template.pieces(context))


def check_path(template: Template, location: str) -> None:
    """Refuse a path in which a variable stands where no value of it can be safe.

    Raises:
        InvalidPolicy: It begins with a variable, or one stands for the name of a parameter.
    """
    _check(template, location, "x")


def check_url(template: Template, location: str) -> None:
    """Refuse a URL in which a variable stands where no value of it can be safe.

    Raises:
        InvalidPolicy: A variable stands for the name of a parameter.
    """
    _check(template, location, "http://x")


def _check(template: Template, location: str, first: str) -> None:
    if template.parts is None:
        raise InvalidPolicy(location, "expected a text")
    samples = [
        (part, False) if isinstance(part, str) else ("x" if index else first, True)
        for index, part in enumerate(template.parts)
    ]
    try:
        (join_path if first == "x" else join_url)(samples)
    except EvaluationError as error:
        raise InvalidPolicy(location, str(error)) from error
