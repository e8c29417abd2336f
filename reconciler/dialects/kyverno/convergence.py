"""Static analysis of whether a patch changes its own result."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

from reconciler.dialects.kyverno.pattern import (
    Anchor,
    AnchorKind,
    has_anchor,
    matches,
    parse_anchor,
)
from reconciler.dialects.kyverno.template import Template
from reconciler.dialects.kyverno.variables import Scope
from reconciler.engine.outcome import Convergence
from reconciler.engine.patch import Operation
from reconciler.engine.patch.paths import APPEND
from reconciler.engine.values import scalars
from reconciler.languages.jmespath import IMPURE

_STABLE = frozenset({"add", "replace", "remove"})
_ADDING = frozenset({"add", "copy"})
_POSITIVE = frozenset({AnchorKind.CONDITION, AnchorKind.GLOBAL})


def of_strategic(raw: Any, template: Template, scope: Scope) -> Convergence:
    """Return whether a strategic merge patch converges; ``raw`` is the patch as written."""
    stable = is_stable(template, scope) and not _meets_itself(raw)
    return Convergence.YES if stable else Convergence.PROBED


def of_operations(operations: Iterable[Operation]) -> Convergence:
    """Return whether the operations of a JSON patch converge."""
    stable = all(item.name in _STABLE and not _names_element(item) for item in operations)
    return Convergence.YES if stable else Convergence.PROBED


def appends(operations: Iterable[Operation]) -> bool:
    """Return whether operations add to a list by position, so that each run adds again."""
    return any(item.name in _ADDING and _names_element(item) for item in operations)


def is_stable(template: Template, scope: Scope) -> bool:
    """Return whether the variables of a patch have the same values when it is applied again.

    Variables that use a context entry may not: it may read the target, or change each time.
    """
    return not (
        template.dynamic
        or any(path[:1] in {(), ("target",)} for path in template.reads)
        or not template.roots.isdisjoint(scope.entries)
        or any(not IMPURE.isdisjoint(item.functions) for item in template.expressions)
    )


def _names_element(operation: Operation) -> bool:
    # An index inside a path only navigates; at its end it inserts or removes. - always appends.
    last = str(operation.path[-1]) if operation.path else ""
    return APPEND in operation.path or last.lstrip("-").isdigit()


def _meets_itself(patch: Any) -> bool:
    """Return whether one part of a patch may change what another part of it tests."""
    match patch:
        case list():
            parts = [_Part.of(item) for item in patch]
            return any(one.meets(other) for one, other in permutations(parts, 2)) or any(
                map(_meets_itself, patch)
            )
        case Mapping():
            return _names_twice(patch) or any(map(_meets_itself, patch.values()))
        case _:
            return False


def _names_twice(patch: Mapping[str, Any]) -> bool:
    """Return whether a map has a field both with and without an anchor."""
    fields = {key if anchor is None else anchor.key for key, anchor, _ in _fields(patch)}
    return len(fields) < len(patch)


def _fields(patch: Mapping[str, Any]) -> Iterator[tuple[str, Anchor | None, Any]]:
    return ((key, parse_anchor(key), value) for key, value in patch.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One element of a list in a patch.

    Attributes:
        asks: The fields that decide whether and what it changes; empty for a plain element.
        wants: Those of them that must be present, with the text to compare them with; None where
            the text is not known before the patch is applied.
        sets: The other fields with their texts, None as above.
        template: It patches matching elements of the object, and is not added itself.
    """

    asks: frozenset[str] = frozenset()
    wants: Mapping[str, str | None] = field(default_factory=dict)
    sets: Mapping[str, str | None] = field(default_factory=dict)
    template: bool = False

    @classmethod
    def of(cls, element: Any) -> "_Part":
        """Return the fields that an element tests and sets."""
        if not isinstance(element, Mapping):
            return cls()
        asks: set[str] = set()
        wants: dict[str, str | None] = {}
        sets: dict[str, str | None] = {}
        for written, anchor, value in _fields(element):
            key = written if anchor is None else anchor.key
            nested = isinstance(value, Mapping | list)
            text = None if nested or "{{" in f"{written}{value}" else scalars.text(value)
            if anchor is not None:
                asks.add(key)
            if anchor is not None and anchor.kind in _POSITIVE:
                wants[key] = text
            # A value below a condition is written, except for nested conditions.
            if anchor is None or anchor.kind is AnchorKind.ADD_IF_ABSENT or nested:
                sets[key] = text
        template = bool(asks) or any(map(has_anchor, element.values()))
        return cls(asks=frozenset(asks), wants=wants, sets=sets, template=template)

    def meets(self, other: "_Part") -> bool:
        """Return whether this part, as a template, may match what another part has written."""
        if not self.template:
            return False
        asked = not self.asks.isdisjoint(other.sets)
        if other.template:
            return asked
        # Once applied, a plain element is an element of the object.
        return not self._differs(other) if asked else not self.wants

    def _differs(self, other: "_Part") -> bool:
        """Return whether this part can never match a plain element."""
        both = ((self.wants[key], other.sets.get(key)) for key in self.wants)
        return any(
            wanted is not None and text is not None and not matches(text, wanted)
            for wanted, text in both
        )
