"""Port for jq programs, evaluated where they can neither read files nor block the program."""

from collections.abc import Sequence
from typing import Any, Protocol

from reconciler.errors import EvaluationError


class Jq(Protocol):
    """Evaluates programs that `hooks.programs.check_program` has accepted."""

    async def compile(self, program: str, *, location: str) -> None:
        """Check that a program can be compiled.

        Raises:
            InvalidPolicy: It cannot.
        """

    async def evaluate(
        self, program: str, inputs: Sequence[Any]
    ) -> list[list[Any] | EvaluationError]:
        """Return the results for each input, or the error at it.

        Raises:
            Interrupted: It was interrupted for an outside reason; a retry may succeed.
        """
