"""JMESPath as policies use it: compiled once, run with this project's own null rules."""

from reconciler.engine.jmes.environment import surround
from reconciler.engine.jmes.expression import Expression, compile_expression
from reconciler.engine.jmes.faults import MissingKey
from reconciler.engine.jmes.functions.registry import IMPURE
from reconciler.engine.jmes.limits import DEFAULT_LIMITS, Limits

__all__ = [
    "DEFAULT_LIMITS",
    "IMPURE",
    "Expression",
    "Limits",
    "MissingKey",
    "compile_expression",
    "surround",
]
