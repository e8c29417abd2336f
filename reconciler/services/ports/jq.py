"""jq programs, evaluated where they can neither read nor stop anything."""

from collections.abc import Sequence
from typing import Any, Protocol

from reconciler.errors import EvaluationError


class Jq(Protocol):
    """Evaluates programs that `hooks.programs.check_program` has let pass."""

    async def compile(self, program: str, *, location: str) -> None:
        """Look whether a program can be compiled.

        Raises:
            InvalidPolicy: It cannot.
        """
        ...

    async def evaluate(
        self, program: str, inputs: Sequence[Any]
    ) -> list[list[Any] | EvaluationError]:
        """Return for each input the results, or why there are none.

        Raises:
            Interrupted: That is nobody's fault who wrote the program; another attempt may succeed.
        """
        ...
