"""Compilation and evaluation of match and exclude of a rule."""

from reconciler.dialects.kyverno.match.matcher import Matcher, compile_match

__all__ = ["Matcher", "compile_match"]
