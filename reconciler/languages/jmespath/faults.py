"""Errors of running expressions, in addition to the plain `EvaluationError`."""

from reconciler.errors import EvaluationError


class MissingKey(EvaluationError):
    """A field was looked up on a map that lacks it.

    Only some positions of an expression swallow this (operands of ``||``, arguments, pipes);
    everywhere else a missing key is an error, never a silent null.
    """

    def __init__(self, key: str) -> None:
        super().__init__(f'Unknown key "{key}" in path')


class Unforgiven(EvaluationError):
    """An error that no position of an expression swallows: of a limit or an inner variable."""
