"""What evaluating may cost, across everything that one request or one attempt evaluates.

The limits of an expression hold for that expression; a policy may have thousands of them. Steps
are counted, not seconds: a busy machine changes no result. A step is the time of a character that
is copied, some twelve nanoseconds.
"""

from typing import Final

from reconciler.errors import EvaluationError

STEPS_OF_ELEMENT: Final = 32
"""An element that an expression visits takes the time of so many characters."""
BRIEF_STEPS: Final = 400_000
"""What evaluating may cost where everything else waits for it: about five milliseconds."""
EVALUATION_STEPS: Final = 80_000_000
"""What evaluating a rule at one object may cost: about a second."""
_ANY: Final = 1 << 62


class Exhausted(EvaluationError):
    """The allowance is used up; whoever gave it decides what that means."""


class Allowance:
    """Steps that are left of what a caller gave for all that it has evaluated.

    Attributes:
        left: Below zero once it is used up; the last to take of it may overdraw.
    """

    __slots__ = ("left",)

    def __init__(self, steps: int = _ANY) -> None:
        self.left = steps

    @property
    def exhausted(self) -> bool:
        """Return whether it is used up."""
        return self.left <= 0

    def take(self, steps: int) -> None:
        """Count steps that were done already."""
        self.left -= steps

    def spend(self, steps: int) -> None:
        """Count steps that are about to be done.

        Raises:
            Exhausted: There are not so many left.
        """
        self.left -= steps
        if self.left <= 0:
            raise Exhausted("the allowance for evaluating is used up")


UNLIMITED: Final = Allowance()
"""For who evaluates what is his own."""
