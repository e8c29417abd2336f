"""Addresses of calls in which the policy uses variables."""

from reconciler.dialects.kyverno.template import Scope, Template
from reconciler.engine.values.addresses import join_path, join_url
from reconciler.errors import EvaluationError, InvalidPolicy


def render_path(template: Template, context: Scope) -> str:
    """Return a path of the API server.

    Raises:
        EvaluationError: A variable does not resolve, or its value would redirect the call.
    """
    return join_path(template.pieces(context))


def render_url(template: Template, context: Scope) -> str:
    """Return the URL of a service; a variable at its beginning may hold scheme and host.

    Raises:
        EvaluationError: As `render_path`.
    """
    return join_url(template.pieces(context))


def check_path(template: Template, location: str) -> None:
    """Refuse a path with a variable where no value can be safe.

    Raises:
        InvalidPolicy: It begins with a variable, or uses one as the name of a query parameter.
    """
    _check(template, location, "x")


def check_url(template: Template, location: str) -> None:
    """Refuse a URL with a variable where no value can be safe.

    Raises:
        InvalidPolicy: A variable is used as the name of a query parameter.
    """
    _check(template, location, "http://x")


def _check(template: Template, location: str, first: str) -> None:
    if template.parts is None:
        raise InvalidPolicy(location, "expected a string")
    samples = [
        (part, False) if isinstance(part, str) else ("x" if index else first, True)
        for index, part in enumerate(template.parts)
    ]
    try:
        (join_path if first == "x" else join_url)(samples)
    except EvaluationError as error:
        raise InvalidPolicy(location, str(error)) from error
