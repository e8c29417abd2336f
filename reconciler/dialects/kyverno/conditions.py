"""Preconditions that use only names in their scope."""

from functools import partial
from typing import Any

from reconciler.dialects.kyverno.preconditions import Conditions, compile_conditions
from reconciler.dialects.kyverno.variables import Scope, check_expression


def checked_conditions(raw: Any, location: str, scope: Scope) -> Conditions | None:
    """Return compiled conditions, None for null.

    Raises:
        InvalidPolicy: They are malformed, or use an unknown name.
    """
    if raw is None:
        return None
    check = partial(check_expression, scope=scope)
    return compile_conditions(raw, location=location, check=check)
