"""Limits on the cost of one expression; expressions are untrusted."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from reconciler.engine.allowance import STEPS_OF_ELEMENT, Allowance, Exhausted
from reconciler.errors import EvaluationError

RUN_STEPS = 160
"""Steps of each evaluation, in addition to those for its data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds of compilation and evaluation.

    Attributes:
        source: Characters of one expression.
        depth: Levels of nesting in one expression.
        steps: Steps that one evaluation may take from an `Allowance`.
        output: Characters of one text that it makes.
    """

    source: int = 65_536
    depth: int = 96
    steps: int = 32_000_000
    output: int = 2 * 1024 * 1024


DEFAULT_LIMITS = Limits()


class Run:
    """One evaluation.

    Attributes:
        root: The value of ``$``.
        captured: The keys of the hit for which a map key is computed.
    """

    __slots__ = ("_allowance", "_given", "_left", "_limits", "captured", "root")

    def __init__(self, root: Any, limits: Limits, allowance: Allowance) -> None:
        allowance.spend(RUN_STEPS)
        self.root = root
        self.captured: tuple[Any, ...] = ()
        self._allowance = allowance
        self._limits = limits
        self._left = self._given = min(limits.steps, allowance.left)

    def capture(self, keys: tuple[Any, ...]) -> tuple[Any, ...]:
        """Set the captured keys; return the previous ones."""
        self.captured, before = keys, self.captured
        return before

    def settle(self) -> None:
        """Charge the cost of the run to the shared allowance; called once, at its end."""
        self._allowance.take(self._given - self._left)

    def spend(self, steps: int) -> None:
        """Count characters that are about to be processed.

        Raises:
            EvaluationError: The evaluation would take too long.
        """
        self._left -= steps
        if self._left <= 0:
            if self._given < self._limits.steps:
                raise Exhausted("the allowance for evaluating is used up")
            raise EvaluationError("the expression processes too much data; narrow it down")

    def visit(self, elements: int) -> None:
        """Count elements that are about to be visited.

        Raises:
            EvaluationError: The evaluation would take too long.
        """
        self.spend(elements * STEPS_OF_ELEMENT)

    def made(self, value: Any) -> Any:
        """Count and return a value that an operator made; only a text can be long.

        Raises:
            EvaluationError: It is too long, or the evaluation takes too long.
        """
        if isinstance(value, str):
            if len(value) > self._limits.output:
                msg = f"the result is longer than {self._limits.output} characters"
                raise EvaluationError(msg)
            self.spend(len(value))
        return value

    def weigh(self, value: Any) -> None:
        """Count all parts of a value, before it is compared or written out.

        Raises:
            EvaluationError: The evaluation takes too long.
        """
        weigh(value, self.spend)


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
