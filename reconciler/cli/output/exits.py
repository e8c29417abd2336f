"""The exit codes of every command."""

from typing import Final

from reconciler.errors import EvaluationError, InvalidPolicy, RetrofitError

OK: Final = 0
FINDINGS: Final = 1
"""The command did its work and found something wrong, or the changes that a flag asks about."""
NOT_RUN: Final = 2
"""The command could not do its work: a missing file, a wrong flag, no cluster."""
INTERRUPTED: Final = 130


def code_of(error: RetrofitError) -> int:
    """Return the exit code of a command that an error ended."""
    # What a policy or an expression gets wrong is what the command was asked to find out.
    return FINDINGS if isinstance(error, InvalidPolicy | EvaluationError) else NOT_RUN
