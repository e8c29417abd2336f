"""The exit codes of every command."""

from typing import Final

from reconciler.errors import EvaluationError, InvalidPolicy, RetrofitError

OK: Final = 0
FINDINGS: Final = 1
"""The command ran and found problems, or the changes that a flag checks for."""
NOT_RUN: Final = 2
"""The command could not run: a missing file, a wrong flag, no cluster."""
INTERRUPTED: Final = 130


def code_of(error: RetrofitError) -> int:
    """Return the exit code of a command that failed with an error."""
    # An error in a policy or an expression is a finding of the command, not a failure to run.
    return FINDINGS if isinstance(error, InvalidPolicy | EvaluationError) else NOT_RUN
