"""Programs in CUE, evaluated by a command of somebody else."""

from typing import Any, Protocol

from reconciler.engine.loads import CueLoad


class Cue(Protocol):
    """Evaluates them where they can neither read nor stop anything."""

    @property
    def available(self) -> bool:
        """Whether there is a command at all."""
        ...

    async def check(self, source: str, *, location: str) -> None:
        """Look whether a program can be read.

        Raises:
            InvalidPolicy: It cannot, or there is no command.
        """
        ...

    async def evaluate(self, load: CueLoad) -> Any:
        """Return what a program gives, None where it has no such field.

        Raises:
            Invalid: It cannot be evaluated within its limits, or there is no command.
            Unavailable: The command cannot be started; another time it may be.
        """
        ...
