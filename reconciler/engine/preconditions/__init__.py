"""Preconditions: conditions on variables, with one file per operator family."""

from reconciler.engine.preconditions.conditions import (
    Condition,
    Conditions,
    Decision,
    compile_conditions,
)
from reconciler.engine.preconditions.operators import OPERATORS

__all__ = ["OPERATORS", "Condition", "Conditions", "Decision", "compile_conditions"]
