"""Port for CUE programs, which the external ``cue`` command evaluates."""

from typing import Any, Protocol

from reconciler.engine.loads import CueLoad


class Cue(Protocol):
    """Evaluates CUE programs in isolation: they can neither read files nor block the program."""

    async def check(self, source: str, *, location: str) -> None:
        """Check that a program can be parsed.

        Raises:
            InvalidPolicy: It cannot, or the command is not installed.
        """

    async def evaluate(self, load: CueLoad) -> Any:
        """Return the value of a program's field, None if it has no such field.

        Raises:
            Invalid: It cannot be evaluated within its limits, or the command is not installed.
            Unavailable: The command cannot be started; a retry may succeed.
        """
