"""Which variables a part of a rule may use."""

from enum import Enum
from typing import Any

from reconciler.engine.variables import Template, compile_template
from reconciler.errors import InvalidPolicy

_REQUEST = frozenset({"request", "serviceAccountName", "serviceAccountNamespace", "images"})


class Scope(Enum):
    """What is known where an expression stands: the trigger, or a target as well."""

    TRIGGER = "trigger"
    TARGET = "target"


def checked_template(
    document: Any, location: str, scope: Scope, *, mirrors: bool = False
) -> Template:
    """Return a compiled document that uses only what is known in its scope.

    Args:
        document: The JSON tree.
        location: Of the document in the policy.
        scope: What is known where it is rendered.
        mirrors: The document has the shape of the target, so that ``{{ @ }}`` means something.

    Raises:
        InvalidPolicy: An expression is wrong, or names something unknown.
    """
    template = compile_template(document, location=location, at=() if mirrors else None)
    check_scope(template, location, scope)
    return template


def check_scope(template: Template, location: str, scope: Scope) -> None:
    """Refuse names that will never have a value.

    Raises:
        InvalidPolicy: With the expression and what may be used instead.
    """
    allowed = _REQUEST | {"target", "@"} if scope is Scope.TARGET else _REQUEST
    for expression in template.expressions:
        for name in sorted(expression.roots - allowed):
            raise InvalidPolicy(location, _reason(name, expression.source, scope))


def _reason(name: str, source: str, scope: Scope) -> str:
    if name in {"target", "@"} and scope is Scope.TRIGGER:
        return (
            f"variable {{{{ {source} }}}} uses {name}, but no target is known yet here; target.*"
            " can be used in the patch and in a target's preconditions"
        )
    if name.startswith("element"):
        return f"variable {{{{ {source} }}}}: {name} is only present inside of foreach"
    return (
        f"variable {{{{ {source} }}}}: nothing is called {name}; use request.*, target.*, "
        "serviceAccountName, serviceAccountNamespace or images"
    )
