"""Preconditions: conditions on variables, with one module per operator family."""

from reconciler.dialects.kyverno.preconditions.conditions import (
    Condition,
    Conditions,
    compile_conditions,
)
from reconciler.dialects.kyverno.preconditions.operators import OPERATORS

__all__ = ["OPERATORS", "Condition", "Conditions", "compile_conditions"]
