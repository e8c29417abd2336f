"""Value patterns, which the values of anchors and of range conditions are matched against.

Scalars can have operators (``>=``, ``!``), ranges (``1-10``, ``1!-10``), ``|``, ``&`` and
wildcards; trees can have anchors. The source is the pattern language of Kyverno's validate rules.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from reconciler.engine.allowance import STEPS_OF_ELEMENT, UNLIMITED, Allowance
from reconciler.engine.values import scalars, wildcard

_BOUND = r"([-+]?[0-9]+(?:\.[0-9]+)?[A-Za-z]*)"
_RANGE: Final = re.compile(rf"{_BOUND}(!?)-{_BOUND}")
_ANCHOR: Final = re.compile(r"([+<=X^]?)\((.+)\)")


class AnchorKind(Enum):
    """The kind of an anchor; the value is the mark in front of the parentheses."""

    CONDITION = ""
    GLOBAL = "<"
    NEGATION = "X"
    ADD_IF_ABSENT = "+"
    EQUALITY = "="
    EXISTENCE = "^"


_KINDS: Final[Mapping[str, AnchorKind]] = {kind.value: kind for kind in AnchorKind}
_KEY: Final = 48
"""Steps of comparing one key of a pattern, beside those for its value."""
_PART: Final = 96
"""Steps of matching a part of a pattern, which may be an amount or a duration."""
_TURN: Final = 16
_SEARCHED: Final = 2
"""Steps of matching a character of a text, with a ``?`` in the pattern and without."""
_SKIPPING: Final = frozenset({AnchorKind.CONDITION, AnchorKind.GLOBAL})
_COMPARISONS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    ">=": lambda left, right: left >= right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    "<": lambda left, right: left < right,
    "!": lambda left, right: left != right,
    "": lambda left, right: left == right,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """A key with an anchor around it."""

    kind: AnchorKind
    key: str

    @property
    def text(self) -> str:
        """The anchored key as it is written in a policy."""
        return f"{self.kind.value}({self.key})"


def parse_anchor(key: str) -> Anchor | None:
    """Parse ``(k)``, ``<(k)``, ``X(k)``, ``+(k)``, ``=(k)``, ``^(k)``; None for a plain key."""
    if ")" not in key:
        return None
    found = _ANCHOR.fullmatch(key.strip())
    return Anchor(kind=_KINDS[found[1]], key=found[2]) if found else None


def is_range(text: str) -> bool:
    """Return whether the text is a range like ``1Mi-1Gi``; the negated ``a!-b`` is not."""
    found = _RANGE.fullmatch(text)
    return found is not None and not found[2]


def in_range(value: Any, text: str, *, negated: bool = False) -> bool:
    """Return whether a value is in a range with inclusive bounds, or outside if ``negated``.

    A value that cannot be ordered with the bounds is neither inside nor outside.
    """
    found = _RANGE.fullmatch(text)
    if found is None:
        return False
    low, inverse, high = found.groups()
    if bool(inverse) != negated:
        return _compare(value, low, "<") or _compare(value, high, ">")
    return _compare(value, low, ">=") and _compare(value, high, "<=")


def matches(value: Any, pattern: Any, allowance: Allowance = UNLIMITED) -> bool:
    """Return whether a scalar matches a scalar pattern; a map as pattern matches any map."""
    match pattern:
        case str():
            return value == pattern or any(
                all(_matches_part(value, part.strip(" "), allowance) for part in choice.split("&"))
                for choice in pattern.split("|")
            )
        case bool():
            return value is pattern
        case int() | float():
            return _matches_number(value, pattern)
        case None:
            return value is None or (isinstance(value, (bool, int, float, str)) and not value)
        case dict():
            return isinstance(value, dict)
        case _:
            return False


def _pace(pattern: str) -> int:
    """Return the steps of matching a character of a text."""
    # With a `?` each character takes a turn, and a number with a bit for each one of the pattern.
    return _TURN + len(pattern) // 256 if "?" in pattern else _SEARCHED


def match_pattern(resource: Any, pattern: Any, allowance: Allowance = UNLIMITED) -> bool:
    """Return whether a tree matches a pattern, which may have anchors."""
    return _compare_trees(resource, pattern, allowance) is _Result.MATCH


def _matches_number(value: Any, pattern: float) -> bool:
    if scalars.is_number(value):
        return value == pattern
    if not isinstance(value, str):
        return False
    read = scalars.parse_int if isinstance(pattern, int) else scalars.parse_float
    return read(value) == pattern


def _matches_part(value: Any, part: str, allowance: Allowance) -> bool:
    allowance.spend(_PART + (len(value) * _pace(part) if isinstance(value, str) else 0))
    for operator in (">=", "<=", ">", "<", "!"):
        if len(part) > 1 and part.startswith(operator):
            return _compare(value, part[len(operator) :].strip(), operator)
    if _RANGE.fullmatch(part):
        return in_range(value, part)
    return _compare(value, part.strip(), "")


def _compare(value: Any, operand: str, operator: str) -> bool:
    """Compare as durations, else as quantities, else as text, which has only equality."""
    written = _comparable(value)
    if written is None:
        return False
    for read in (scalars.parse_duration, _amount):
        right = read(operand)
        left = None if right is None else read(written)
        if left is not None and right is not None:
            return _COMPARISONS[operator](left, right)
    if value is None or operator not in ("", "!"):
        return False
    return wildcard.matches(operand, written) is (operator == "")


def _comparable(value: Any) -> str | None:
    if value is None:
        return "0"
    return scalars.text(value) if isinstance(value, (str, bool, int, float)) else None


def _amount(text: str) -> int | None:
    quantity = scalars.parse_quantity(text)
    return None if quantity is None else quantity.nano


class _Result(Enum):
    MATCH = "match"
    SKIP = "skip"  # a condition anchor does not hold, so the pattern does not apply to this part
    FAIL = "fail"


def _compare_trees(resource: Any, pattern: Any, allowance: Allowance) -> _Result:
    match pattern:
        case dict():
            if not isinstance(resource, dict):
                return _Result.FAIL
            return _compare_map(resource, pattern, allowance)
        case list():
            if not isinstance(resource, list):
                return _Result.FAIL
            return _compare_list(resource, pattern, allowance)
        case _:
            values = resource if isinstance(resource, list) else [resource]
            allowance.spend(STEPS_OF_ELEMENT * len(values))
            held = all(matches(value, pattern, allowance) for value in values)
            return _Result.MATCH if held else _Result.FAIL


def _compare_map(
    resource: dict[str, Any], pattern: dict[str, Any], allowance: Allowance
) -> _Result:
    allowance.spend(_KEY * len(pattern))
    anchored: list[tuple[Anchor, Any]] = []
    plain: list[tuple[str, Any]] = []
    for key, wanted in _expand_metadata(resource, pattern, allowance).items():
        anchor = parse_anchor(key)
        if anchor is None or anchor.kind is AnchorKind.ADD_IF_ABSENT:
            plain.append((key, wanted))
        else:
            anchored.append((anchor, wanted))
    anchored.sort(key=lambda item: item[0].kind not in _SKIPPING)
    for anchor, wanted in anchored:
        result = _compare_anchor(resource, anchor, wanted, allowance)
        if result is not _Result.MATCH:
            return result
    # Nested anchors first: they may decide that the pattern does not apply to this part.
    plain.sort(key=lambda item: not has_anchor(item[1], allowance))
    for key, wanted in plain:
        result = _compare_plain(resource.get(key), wanted, allowance)
        if result is not _Result.MATCH:
            return result
    return _Result.MATCH


def _compare_plain(value: Any, wanted: Any, allowance: Allowance) -> _Result:
    if wanted == "*":
        return _Result.FAIL if value is None else _Result.MATCH
    return _compare_trees(value, wanted, allowance)


def _compare_anchor(
    resource: dict[str, Any], anchor: Anchor, wanted: Any, allowance: Allowance
) -> _Result:
    present = anchor.key in resource
    value = resource.get(anchor.key)
    match anchor.kind:
        case AnchorKind.NEGATION:
            return _Result.FAIL if present else _Result.MATCH
        case AnchorKind.EXISTENCE:
            return _compare_existence(value, wanted, allowance) if present else _Result.MATCH
        case AnchorKind.EQUALITY:
            return _compare_trees(value, wanted, allowance) if present else _Result.MATCH
        case AnchorKind.CONDITION if not present:
            return _Result.SKIP
        case _:
            held = not present or _compare_trees(value, wanted, allowance) is _Result.MATCH
            return _Result.MATCH if held else _Result.SKIP


def _compare_existence(value: Any, wanted: Any, allowance: Allowance) -> _Result:
    if not isinstance(value, list) or not isinstance(wanted, list):
        return _Result.FAIL
    held = all(
        isinstance(item, dict)
        and any(_compare_trees(element, item, allowance) is _Result.MATCH for element in value)
        for item in wanted
    )
    return _Result.MATCH if held else _Result.FAIL


def _compare_list(resource: list[Any], pattern: list[Any], allowance: Allowance) -> _Result:
    if not pattern:
        return _Result.FAIL
    match pattern[0]:
        case dict() as wanted:
            return _join(_compare_trees(element, wanted, allowance) for element in resource)
        case list():
            if len(resource) < len(pattern):
                return _Result.FAIL
            pairs = zip(resource, pattern, strict=False)
            return _join(_compare_trees(element, item, allowance) for element, item in pairs)
        case wanted:
            return _compare_trees(resource, wanted, allowance)


def _join(results: Iterable[_Result]) -> _Result:
    """Return FAIL if any element fails, SKIP if some skip and none matches, else MATCH."""
    matched = skipped = False
    for result in results:
        if result is _Result.FAIL:
            return result
        matched = matched or result is _Result.MATCH
        skipped = skipped or result is _Result.SKIP
    return _Result.SKIP if skipped and not matched else _Result.MATCH


def has_anchor(pattern: Any, allowance: Allowance = UNLIMITED) -> bool:
    """Return whether a part of a pattern or of a patch contains an anchor."""
    match pattern:
        case dict():
            allowance.spend(STEPS_OF_ELEMENT * len(pattern))
            return any(
                parse_anchor(key) is not None or has_anchor(value, allowance)
                for key, value in pattern.items()
            )
        case list():
            allowance.spend(STEPS_OF_ELEMENT * len(pattern))
            return any(has_anchor(item, allowance) for item in pattern)
        case _:
            return False


def _expand_metadata(
    resource: dict[str, Any], pattern: dict[str, Any], allowance: Allowance
) -> dict[str, Any]:
    """Replace wildcard keys of labels and annotations with the keys that they match."""
    actual = resource.get("metadata")
    if not isinstance(actual, dict):
        return pattern
    return {
        key: _expand_tags(actual, wanted, allowance)
        if _plain_key(key) == "metadata" and isinstance(wanted, dict)
        else wanted
        for key, wanted in pattern.items()
    }


def _expand_tags(
    metadata: dict[str, Any], pattern: dict[str, Any], allowance: Allowance
) -> dict[str, Any]:
    expanded = dict(pattern)
    for key, wanted in pattern.items():
        tag = _plain_key(key)
        actual = metadata.get(tag)
        if tag in ("labels", "annotations") and isinstance(wanted, dict):
            names = list(actual) if isinstance(actual, dict) else []
            expanded[key] = {
                _expand_key(item, names, allowance): value for item, value in wanted.items()
            }
    return expanded


def _expand_key(key: str, names: list[str], allowance: Allowance) -> str:
    plain = _plain_key(key)
    if not wildcard.has_wildcard(plain):
        return key
    allowance.spend(len(names) * _PART + sum(map(len, names)) * _pace(plain))
    name = next((name for name in names if wildcard.matches(plain, name)), plain)
    anchor = parse_anchor(key)
    return name if anchor is None else Anchor(kind=anchor.kind, key=name).text


def _plain_key(key: str) -> str:
    anchor = parse_anchor(key)
    return key if anchor is None else anchor.key
