"""Limits on the cost of one expression; expressions are untrusted."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from reconciler.engine.allowance import STEPS_OF_ELEMENT, Allowance, Exhausted
from reconciler.errors import EvaluationError

RUN_STEPS: Final = 160
"""Steps of each evaluation, in addition to those for its data."""


MAX_SOURCE: Final = 65_536
"""Characters of one expression."""
MAX_DEPTH: Final = 96
"""Levels of nesting in one expression."""
_MAX_STEPS: Final = 32_000_000
"""Steps that one evaluation may take from an `Allowance`."""
_MAX_OUTPUT: Final = 2 * 1024 * 1024
"""Characters of one text that an evaluation makes."""


class Run:
    """One evaluation; what counts its steps raises EvaluationError once it takes too long.

    Attributes:
        root: The value of ``$``.
        captured: The keys of the hit for which a map key is computed.
    """

    __slots__ = ("_allowance", "_given", "_left", "captured", "root")

    def __init__(self, root: Any, allowance: Allowance) -> None:
        allowance.spend(RUN_STEPS)
        self.root = root
        self.captured: tuple[Any, ...] = ()
        self._allowance = allowance
        self._left = self._given = min(_MAX_STEPS, allowance.left)

    def capture(self, keys: tuple[Any, ...]) -> tuple[Any, ...]:
        """Set the captured keys; return the previous ones."""
        self.captured, before = keys, self.captured
        return before

    def settle(self) -> None:
        """Charge the cost of the run to the shared allowance; called once, at its end."""
        self._allowance.take(self._given - self._left)

    def spend(self, steps: int) -> None:
        """Count characters that are about to be processed."""
        self._left -= steps
        if self._left <= 0:
            if self._given < _MAX_STEPS:
                raise Exhausted("the allowance for evaluating is used up")
            raise EvaluationError("the expression processes too much data; narrow it down")

    def visit(self, elements: int) -> None:
        """Count elements that are about to be visited."""
        self.spend(elements * STEPS_OF_ELEMENT)

    def made(self, value: Any) -> Any:
        """Count and return a value that an operator made; a text may be too long."""
        if isinstance(value, str):
            if len(value) > _MAX_OUTPUT:
                raise EvaluationError(f"the result is longer than {_MAX_OUTPUT} characters")
            self.spend(len(value))
        return value


def weigh(value: Any, spend: Callable[[int], None]) -> None:
    """Spend the steps for all parts of a value, before it is compared or written out."""
    if not isinstance(value, dict | list | str):
        return
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if isinstance(current, str):
            spend(len(current))
            continue
        members: Iterable[Any] = current
        if isinstance(current, dict):
            spend(sum(map(len, current)))
            members = current.values()
        spend(len(current) * STEPS_OF_ELEMENT)
        waiting += [member for member in members if isinstance(member, dict | list | str)]
