"""Match and exclude of a rule, compiled once."""

from reconciler.dialects.kyverno.match.matcher import Matcher, compile_match

__all__ = ["Matcher", "compile_match"]
