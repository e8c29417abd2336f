"""The select language of ModRules: JSONPath with the operators of gval, and ``undefined``."""

from reconciler.languages.gval.expression import (
    Expression,
    Hit,
    Selection,
    compile_expression,
    compile_selection,
    faults_of,
)
from reconciler.languages.gval.limits import weigh
from reconciler.languages.gval.values import UNDEFINED, Failure, text_of

__all__ = [
    "UNDEFINED",
    "Expression",
    "Failure",
    "Hit",
    "Selection",
    "compile_expression",
    "compile_selection",
    "faults_of",
    "text_of",
    "weigh",
]
