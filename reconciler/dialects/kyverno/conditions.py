"""Preconditions that use only what is known where they stand."""

from typing import Any

from reconciler.dialects.kyverno.variables import Scope, check_scope
from reconciler.engine.preconditions import Conditions, compile_conditions


def checked_conditions(raw: Any, location: str, scope: Scope) -> Conditions | None:
    """Return compiled conditions, None where there are none.

    Raises:
        InvalidPolicy: They are malformed, or name something unknown.
    """
    if raw is None:
        return None
    conditions = compile_conditions(raw, location=location)
    for template in conditions.templates:
        check_scope(template, location, scope)
    return conditions
