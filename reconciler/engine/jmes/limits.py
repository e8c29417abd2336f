"""Bounds on what one expression or document may cost; expressions come from other people."""

from dataclasses import dataclass
from typing import Any

from reconciler.errors import EvaluationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds of compilation and evaluation.

    Attributes:
        source: Characters of one expression.
        depth: Levels of nesting in one expression.
        passes: Variables inside variables.
        elements: Elements that one evaluation may visit or copy.
        output: Characters of text, and values plus text of a result.
        spliced: Expressions with text put into them that are kept compiled, per place.
    """

    source: int = 65_536
    depth: int = 128
    passes: int = 64
    elements: int = 1_000_000
    output: int = 2 * 1024 * 1024
    spliced: int = 64


DEFAULT_LIMITS = Limits()


class Run:
    """One evaluation: the data at its root and what is left of its allowance."""

    __slots__ = ("left", "limits", "root")

    def __init__(self, root: Any, limits: Limits) -> None:
        self.root = root
        self.limits = limits
        self.left = limits.elements

    def spend(self, elements: int) -> None:
        """Count elements that are about to be visited.

        Raises:
            EvaluationError: The allowance of this evaluation is used up.
        """
        self.left -= elements
        if self.left < 0:
            msg = (
                f"the expression visits more than {self.limits.elements} elements; narrow it down"
            )
            raise EvaluationError(msg)

    def check_text(self, length: int) -> None:
        """Refuse a text that would be too long, before it is built."""
        if length > self.limits.output:
            msg = f"the result is longer than {self.limits.output} characters"
            raise EvaluationError(msg)

    def measure(self, value: Any) -> None:
        """Refuse a value that is too large when written out.

        Parts that a result shares count each time: they are written each time.
        """
        room = self.limits.output
        waiting = [value]
        while waiting:
            current = waiting.pop()
            room -= 1
            if isinstance(current, str):
                room -= len(current)
            elif isinstance(current, dict):
                waiting.extend(current.values())
                room -= sum(map(len, current))
            elif isinstance(current, list):
                waiting.extend(current)
            if room < 0:
                self.check_text(self.limits.output + 1)
