"""Limits on the cost of compiling and rendering templates, whose authors are not trusted."""

from dataclasses import dataclass
from typing import Any, Final

from reconciler.engine.allowance import STEPS_OF_ELEMENT, UNLIMITED, Allowance
from reconciler.engine.environment import NOTHING_KNOWN, EvaluationEnvironment
from reconciler.errors import EvaluationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one template.

    Attributes:
        source: Characters of its text.
        nesting: Levels of control structures and parentheses in its text.
        depth: Levels of both during the rendering, including templates that call templates.
        steps: Steps of one rendering.
        output: Characters of the output, and of any text that a function returns.
        elements: Elements of a list that a function returns.
    """

    source: int = 65_536
    nesting: int = 60
    depth: int = 80
    steps: int = 40_000_000
    output: int = 1024 * 1024
    elements: int = 100_000


DEFAULT_LIMITS: Final = Limits()

RENDERING: Final = 160
"""The steps that a rendering costs beside those for its nodes and data."""
_CALL: Final = 160
"""The steps that a call costs beside those for its arguments and result."""
_SIZED: Final = (str, list, dict)


class Run:
    """The limits, the remaining steps and the environment of one rendering."""

    __slots__ = ("_changed", "_steps", "allowance", "environment", "left", "limits")

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
        # A rendering may use no more steps than the shared allowance has left.
        self.left = self._steps = min(limits.steps, allowance.left)
        self._changed: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}

    def settle(self) -> None:
        """Take the used steps, and give maps their entries back; called once, at the end."""
        self.allowance.take(self._steps - self.left)
        for entries, before in self._changed.values():
            entries.clear()
            entries.update(before)

    def change(self, entries: dict[str, Any]) -> None:
        """Keep the entries of a map before it is changed: it may be part of the data."""
        if id(entries) not in self._changed:
            self.visit(len(entries))
            self._changed[id(entries)] = entries, dict(entries)

    def spend(self, steps: int) -> None:
        """Count steps before they are executed.

        Raises:
            EvaluationError: Fewer steps are left.
        """
        self.left -= steps
        if self.left < 0:
            raise EvaluationError("the template takes too many steps; simplify it").bare(
                "the template takes too many steps"
            )

    def visit(self, elements: int) -> None:
        """Count elements before they are read or copied."""
        self.spend(elements * STEPS_OF_ELEMENT)

    def call(self, arguments: list[Any]) -> None:
        """Count a call and its arguments."""
        self.spend(_CALL + sum(len(each) for each in arguments if isinstance(each, _SIZED)))

    def write(self, length: int) -> None:
        """Count a text before it is built, and refuse one that would be too long."""
        self.fit(length)
        self.spend(length)

    def fit(self, length: int) -> None:
        """Refuse a text that would be too long."""
        if length > self.limits.output:
            reason = f"the template makes a text of more than {self.limits.output} characters"
            raise EvaluationError(reason).bare(reason)

    def returned(self, result: Any) -> Any:
        """Return the result of a function, after a check of its length if it is a text."""
        if type(result) is str:
            self.fit(len(result))
        return result

    def grow(self, elements: int) -> None:
        """Count a list before it is built, and refuse one that would be too long."""
        if elements > self.limits.elements:
            reason = f"the template makes a list of more than {self.limits.elements} elements"
            raise EvaluationError(reason).bare(reason)
        self.visit(elements)
