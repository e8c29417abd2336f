"""Where what takes long is evaluated."""

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Isolation(Protocol):
    """Evaluates where nothing else waits for it, and where it can do no harm."""

    async def evaluate(self, work: Callable[[], T], tenant: str) -> T:
        """Return what a pure function gives, which may take long.

        Args:
            work: Changes nothing that the caller sees; its result can be pickled.
            tenant: Whose work it is; tenants take turns.

        Raises:
            EvaluationError: It needs more memory than it may have, or its result is too large.
            Interrupted: It was ended before it had a result.
        """
        ...
