"""Bounds on what compiling and rendering a template may cost; templates come from other people."""

from collections.abc import Sized
from dataclasses import dataclass
from typing import Any, Final

from reconciler.engine.allowance import STEPS_OF_ELEMENT, UNLIMITED, Allowance
from reconciler.engine.environment import NOTHING_KNOWN, EvaluationEnvironment
from reconciler.errors import EvaluationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds of one template.

    Attributes:
        source: Characters of its text.
        nesting: Levels of control structures and parentheses in its text.
        depth: Levels of both that it may be in while it is rendered, templates that call templates
            included.
        steps: Steps of one rendering.
        output: Characters of what it gives, and of any text that a function makes.
        elements: Elements of a list that a function makes.
    """

    source: int = 65_536
    nesting: int = 60
    depth: int = 80
    steps: int = 40_000_000
    output: int = 1024 * 1024
    elements: int = 100_000


DEFAULT_LIMITS: Final = Limits()

RENDERING: Final = 160
"""Steps that a rendering takes beside what it works through."""
_CALL: Final = 160
"""Steps that a call takes beside what it works through."""


class Run:
    """One rendering: what is left of its steps, and what surrounds it."""

    __slots__ = ("_steps", "allowance", "environment", "left", "limits")

    def __init__(
        self,
        limits: Limits = DEFAULT_LIMITS,
        allowance: Allowance = UNLIMITED,
        environment: EvaluationEnvironment = NOTHING_KNOWN,
    ) -> None:
        allowance.spend(RENDERING)
        self.limits = limits
        self.allowance = allowance
        self.environment = environment
        # It takes no more than is left for everything that is evaluated.
        self.left = self._steps = min(limits.steps, allowance.left)

    def settle(self) -> None:
        """Take what it cost out of the allowance that it shares; called once, at its end."""
        self.allowance.take(self._steps - self.left)

    def spend(self, steps: int) -> None:
        """Count steps that are about to be done.

        Raises:
            EvaluationError: There are not so many left.
        """
        self.left -= steps
        if self.left < 0:
            raise EvaluationError("the template takes too many steps; make it do less").bare(
                "the template takes too many steps"
            )

    def visit(self, elements: int) -> None:
        """Count elements that are about to be looked at or copied."""
        self.spend(elements * STEPS_OF_ELEMENT)

    def call(self, arguments: list[Any]) -> None:
        """Count a call and what it gets."""
        self.spend(_CALL + sum(len(each) for each in arguments if isinstance(each, Sized)))

    def write(self, length: int) -> None:
        """Refuse a text that would be too long, before it is built, and count it."""
        if length > self.limits.output:
            reason = f"the template makes a text of more than {self.limits.output} characters"
            raise EvaluationError(reason).bare(reason)
        self.spend(length)

    def grow(self, elements: int) -> None:
        """Refuse a list that would be too long, before it is built, and count it."""
        if elements > self.limits.elements:
            reason = f"the template makes a list of more than {self.limits.elements} elements"
            raise EvaluationError(reason).bare(reason)
        self.visit(elements)
