"""Port for evaluations that may take long."""

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Isolation(Protocol):
    """Evaluates in isolation, so that nothing else waits for it and it can do no harm."""

    async def evaluate(self, work: Callable[[], T], tenant: str) -> T:
        """Return the result of a pure function that may take long.

        Args:
            work: Has no side effects that the caller relies on; its result can be pickled.
            tenant: Whose work it is; tenants take turns.

        Raises:
            EvaluationError: It exceeds its memory limit, or its result is too large.
            Interrupted: It was stopped before it had a result.
        """
