"""Limits on the cost of one expression or document; expressions are untrusted."""

from dataclasses import dataclass
from typing import Any

from reconciler.engine.allowance import STEPS_OF_ELEMENT, UNLIMITED, Allowance
from reconciler.engine.environment import ENVIRONMENT, NOTHING_KNOWN, EvaluationEnvironment
from reconciler.languages.jmespath.faults import Unforgiven


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds of compilation and evaluation.

    Attributes:
        source: Characters of one expression.
        depth: Levels of nesting in one expression.
        passes: Levels of variables inside variables.
        elements: Elements that one evaluation may visit or copy.
        output: Characters of text, and values plus text of a result.
        text: Characters that the functions of one evaluation may read and write, and that values
            add to a document; work that is slower than a plain copy counts several times.
        spliced: Expressions with inserted text that are kept compiled, per place.
    """

    source: int = 65_536
    depth: int = 128
    passes: int = 64
    elements: int = 1_000_000
    output: int = 2 * 1024 * 1024
    text: int = 32 * 1024 * 1024
    spliced: int = 64


DEFAULT_LIMITS = Limits()

_RUN = 160
"""Steps of each evaluation, in addition to those for its data."""
_CALL = 160
"""Characters that a function call counts as, in addition to those that it processes."""

_LOOK = 8
"""Characters that each measured value counts as."""


class Run:
    """One evaluation: the data at its root, its environment, and the rest of its allowance.

    A root may hold an `EvaluationEnvironment` under the key `ENVIRONMENT`, which is hidden from
    expressions. What counts raises `Unforgiven` once the allowance of the evaluation is used up.
    """

    __slots__ = (
        "_elements",
        "_text",
        "allowance",
        "environment",
        "left",
        "limits",
        "root",
        "text",
    )

    def __init__(
        self,
        root: Any,
        limits: Limits,
        allowance: Allowance = UNLIMITED,
        environment: EvaluationEnvironment = NOTHING_KNOWN,
    ) -> None:
        allowance.spend(_RUN)
        self.root = root
        self.limits = limits
        self.allowance = allowance
        # A run may not take more than is left of the shared allowance.
        self.left = self._elements = min(limits.elements, allowance.left // STEPS_OF_ELEMENT)
        self.text = self._text = min(limits.text, allowance.left)
        self.environment = environment
        if isinstance(root, dict) and isinstance(root.get(ENVIRONMENT), EvaluationEnvironment):
            self.root = {key: value for key, value in root.items() if key != ENVIRONMENT}
            self.environment = root[ENVIRONMENT]

    def settle(self) -> None:
        """Charge the cost of the run to the shared allowance; called once, at its end."""
        elements, text = self._elements - self.left, self._text - self.text
        self.allowance.take(elements * STEPS_OF_ELEMENT + text)

    def spend(self, elements: int) -> None:
        """Count elements that are about to be visited."""
        self.left -= elements
        if self.left < 0:
            raise Unforgiven(
                f"the expression visits more than {self.limits.elements} elements; narrow it down"
            )

    def read(self, characters: int) -> None:
        """Count characters that a function is about to process."""
        self.text -= characters
        if self.text < 0:
            raise Unforgiven(f"the functions work through more than {self.limits.text} characters")

    def put_in(self, characters: int) -> None:
        """Count characters of values that become part of a document."""
        self.text -= characters
        if self.text < 0:
            raise Unforgiven(f"the values have more than {self.limits.text} characters")

    def called(self) -> "Run":
        """Count a function call, which takes as long as many characters; return the run."""
        self.read(_CALL)
        return self

    def write(self, length: int) -> None:
        """Count a text before it is built, and refuse one that would be too long."""
        self.check_text(length)
        self.read(length)

    def check_text(self, length: int) -> None:
        """Refuse a text that would be too long, before it is built."""
        if length > self.limits.output:
            raise Unforgiven(f"the result is longer than {self.limits.output} characters")

    def measure(self, value: Any) -> None:
        """Refuse a value that is too large when written out.

        Shared parts count at each occurrence, because they are written each time. The measuring
        itself is counted, too.
        """
        room, seen = self.limits.output, 0
        waiting = [value]
        while waiting:
            current = waiting.pop()
            room -= 1
            seen += 1
            if isinstance(current, str):
                room -= len(current)
            elif isinstance(current, dict):
                waiting.extend(current.values())
                room -= sum(map(len, current))
            elif isinstance(current, list):
                waiting.extend(current)
            if room < 0:
                self.check_text(self.limits.output + 1)
        self.read(seen * _LOOK)
