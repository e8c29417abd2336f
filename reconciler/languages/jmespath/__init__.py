"""JMESPath as policies use it: compiled once, and run with the project's own null rules."""

from reconciler.languages.jmespath.expression import Expression, compile_expression
from reconciler.languages.jmespath.faults import MissingKey
from reconciler.languages.jmespath.functions.registry import IMPURE
from reconciler.languages.jmespath.limits import DEFAULT_LIMITS, Limits

__all__ = ["DEFAULT_LIMITS", "IMPURE", "Expression", "Limits", "MissingKey", "compile_expression"]
