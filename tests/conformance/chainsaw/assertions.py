"""The assertion language, which compares an object with a partial description of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from tests.conformance.chainsaw.expressions import (
    Bindings,
    ExpressionError,
    evaluate,
    expression_of,
)

_MODIFIERS = ("~", "->")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """One place where the object differs from the description."""

    path: str
    reason: str

    @override
    def __str__(self) -> str:
        return f"{self.path or '(root)'}: {self.reason}"


def compare(expected: Any, actual: Any, bindings: Bindings, path: str = "") -> list[Mismatch]:
    """Return every place where `actual` does not match `expected`, or an empty list for a match.

    Maps match as subsets, lists item by item at equal length. A key in parentheses is an
    expression on the value at its place. A value in parentheses returns the expected value.
    """
    if isinstance(expected, Mapping):
        return _compare_map(expected, actual, bindings, path)
    if isinstance(expected, list):
        return _compare_list(expected, actual, bindings, path)
    expression = expression_of(expected)
    if expression is not None:
        try:
            expected = evaluate(expression, actual, bindings)
        except ExpressionError as error:
            return [Mismatch(path=path, reason=str(error))]
    if _equal(expected, actual):
        return []
    return [Mismatch(path=path, reason=f"expected {expected!r}, found {_short(actual)}")]


def _compare_map(
    expected: Mapping[str, Any], actual: Any, bindings: Bindings, path: str
) -> list[Mismatch]:
    if not expected and not isinstance(actual, Mapping):
        return [Mismatch(path=path, reason=f"expected a map, found {_short(actual)}")]
    mismatches: list[Mismatch] = []
    for key, wanted in expected.items():
        place = f"{path}.{key}" if path else key
        try:
            found = _project(key, actual, bindings)
        except (ExpressionError, _AbsentError) as error:
            mismatches.append(Mismatch(path=place, reason=str(error)))
            continue
        mismatches += compare(wanted, found, bindings, place)
    return mismatches


def _project(key: str, actual: Any, bindings: Bindings) -> Any:
    if any(modifier in key for modifier in _MODIFIERS) and "(" in key:
        raise ExpressionError(f"{key}: this runner does not know the modifiers ~ and ->")
    expression = expression_of(key)
    if expression is not None:
        return evaluate(expression, actual, bindings)
    if not isinstance(actual, Mapping):
        raise _AbsentError(f"expected a map around it, found {_short(actual)}")
    if key not in actual:
        raise _AbsentError("expected, but absent")
    return actual[key]


class _AbsentError(Exception):
    pass


def _compare_list(
    expected: list[Any], actual: Any, bindings: Bindings, path: str
) -> list[Mismatch]:
    if not isinstance(actual, list):
        return [Mismatch(path=path, reason=f"expected a list, found {_short(actual)}")]
    if len(expected) != len(actual):
        reason = f"expected {len(expected)} items, found {len(actual)}: {_short(actual)}"
        return [Mismatch(path=path, reason=reason)]
    return [
        mismatch
        for index, (wanted, found) in enumerate(zip(expected, actual, strict=True))
        for mismatch in compare(wanted, found, bindings, f"{path}[{index}]")
    ]


def _equal(expected: Any, actual: Any) -> bool:
    if isinstance(expected, Mapping | list):
        # The result of an expression is a whole value, not a partial description.
        return bool(expected == actual)
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if isinstance(expected, int | float) and isinstance(actual, int | float):
        return expected == actual
    return type(expected) is type(actual) and bool(expected == actual)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
