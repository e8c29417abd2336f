"""The cost limit across all evaluations of one request or one attempt.

The limits of an expression hold for that expression only, and a policy may have thousands of
them. The unit is steps, not seconds, so that the load of the machine changes no result. A step is
the time to copy a character, some twelve nanoseconds.
"""

from typing import Final

from reconciler.errors import EvaluationError

STEPS_OF_ELEMENT: Final = 32
"""The cost of one element that an expression visits."""
BRIEF_STEPS: Final = 400_000
"""The limit for evaluations that block the event loop: about five milliseconds."""
EVALUATION_STEPS: Final = 80_000_000
"""The limit for evaluating a rule at one object: about a second."""
_ANY: Final = 1 << 62


class Exhausted(EvaluationError):
    """The allowance is used up; the caller that set it decides what follows."""


class Allowance:
    """The steps that are left for a caller's evaluations.

    Attributes:
        left: May fall below zero, because the last evaluation may overdraw it.
    """

    __slots__ = ("left",)

    def __init__(self, steps: int = _ANY) -> None:
        self.left = steps

    @property
    def exhausted(self) -> bool:
        """Return whether no steps are left."""
        return self.left <= 0

    def take(self, steps: int) -> None:
        """Deduct steps that were done already, without a check."""
        self.left -= steps

    def spend(self, steps: int) -> None:
        """Deduct steps that are about to be done.

        Raises:
            Exhausted: No steps are left after it.
        """
        self.left -= steps
        if self.left <= 0:
            raise Exhausted("the allowance for evaluating is used up")


UNLIMITED: Final = Allowance()
"""For evaluations of trusted input, whose cost needs no limit."""
