"""Limits on the size of an object that is compiled.

Controller and webhook compile it, on their event loop and again at every start. So its size is
checked first, at no more cost than reading it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from reconciler.dialects.kyverno.jsonpatch import Path, count_values
from reconciler.dialects.kyverno.template import place
from reconciler.errors import InvalidPolicy
from reconciler.languages.jmespath import braces
from reconciler.languages.jmespath.limits import DEFAULT_LIMITS
from reconciler.languages.jmespath.yamltext import TooManyValues

MAX_DEPTH: Final = 100
MAX_VALUES: Final = 20_000
"""Values of a policy, including those in the texts of patchesJson6902 and behind YAML aliases."""
MAX_VARIABLES: Final = 2_000
MAX_TEXT: Final = 262_144
"""Characters of all texts that contain variables."""
MAX_EXPRESSIONS: Final = 131_072
"""Characters of all expressions; a nested expression counts in the outer one, too."""
MAX_REFERENCES: Final = 200

_SHOWN: Final = 6
"""Steps of the path to a value that is too deep; the whole path would fill the message."""
_SPEC: Final = "spec"
_TEXT_PATCH: Final = "patchesJson6902"


def check_bounds(spec: Any) -> None:
    """Refuse an object that is too large or too deep to be compiled.

    Raises:
        InvalidPolicy: With the limit, and the location where it is exceeded.
    """
    count = _Count()
    patches: list[tuple[Path, str]] = []
    for steps, value in _walk(spec):
        count.add(steps)
        if isinstance(value, str):
            count.add_text(steps, value)
            if steps and steps[-1] == _TEXT_PATCH:
                patches.append((steps, value))
    for steps, text in patches:
        try:
            count.add(steps, count_values(text, most=MAX_VALUES - count.values))
        except TooManyValues:
            raise count.too_many(steps) from None


@dataclass(slots=True)
class _Count:
    values: int = 0
    variables: int = 0
    characters: int = 0
    expressions: int = 0
    references: int = 0

    def add(self, steps: Path, values: int = 1) -> None:
        self.values += values
        if self.values > MAX_VALUES:
            raise self.too_many(steps)

    def add_text(self, steps: Path, text: str) -> None:
        at = place(_SPEC, steps)
        self.references += text.count("$(")
        if self.references > MAX_REFERENCES:
            reason = (
                f"including those here, there are more than {MAX_REFERENCES} references $(...)"
            )
            raise InvalidPolicy(at, reason)
        if "{{" not in text:
            return
        self.variables += text.count("{{")
        self.characters += len(text)
        if self.variables > MAX_VARIABLES:
            reason = f"including those here, there are more than {MAX_VARIABLES} variables"
            raise InvalidPolicy(at, reason)
        if self.characters > MAX_TEXT:
            reason = (
                f"including this one, the strings with variables are longer than {MAX_TEXT}"
                " characters; move constant parts elsewhere, such as into a ConfigMap"
            )
            raise InvalidPolicy(at, reason)
        found = braces.find(text, passes=DEFAULT_LIMITS.passes, location=at)
        self.expressions += sum(len(one.body) for outer in found for one in outer.walk())
        if self.expressions > MAX_EXPRESSIONS:
            reason = (
                "including those here, the expressions are longer than"
                f" {MAX_EXPRESSIONS} characters; a nested one also counts in the outer one"
            )
            raise InvalidPolicy(at, reason)

    def too_many(self, steps: Path) -> InvalidPolicy:
        reason = (
            f"including those here, there are more than {MAX_VALUES} values; those that YAML"
            " aliases repeat count each time"
        )
        return InvalidPolicy(place(_SPEC, steps), reason)


def _walk(spec: Any) -> Iterator[tuple[Path, Any]]:
    """Yield every value with its path, and keys that contain variables.

    Raises:
        InvalidPolicy: A value is nested too deeply.
    """
    waiting: list[tuple[Path, Any, int]] = [((), spec, 0)]
    while waiting:
        steps, value, depth = waiting.pop()
        yield steps, value
        if not isinstance(value, Mapping | list):
            continue
        if depth >= MAX_DEPTH:
            shown = place(_SPEC, steps[:_SHOWN])
            raise InvalidPolicy(shown, f"the value is nested deeper than {MAX_DEPTH} levels")
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for step, item in items:
            nested = (*steps, step)
            waiting.append((nested, item, depth + 1))
            if isinstance(step, str) and "{{" in step:
                waiting.append((nested, step, depth + 1))
