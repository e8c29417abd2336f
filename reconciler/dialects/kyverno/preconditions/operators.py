"""The operators of conditions by name."""

import operator
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from reconciler.dialects.kyverno.preconditions import durations, equality, membership, ordering

Operator = Callable[[Any, Any], bool]

_COMPARISONS: Final = {
    "GreaterThan": operator.gt,
    "GreaterThanOrEquals": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEquals": operator.le,
}
_TYPED: Final[Mapping[str, Operator]] = {
    "Equals": equality.equals,
    "Equal": equality.equals,
    "NotEquals": equality.not_equals,
    "NotEqual": equality.not_equals,
    "AnyIn": membership.any_in,
    "AllIn": membership.all_in,
    "AnyNotIn": membership.any_not_in,
    "AllNotIn": membership.all_not_in,
    "In": membership.in_,
    "NotIn": membership.not_in,
}
_ORDERED: Final[Mapping[str, Operator]] = {
    name: partial(ordering.compare_values, compare=compare)
    for name, compare in _COMPARISONS.items()
} | {
    f"Duration{name}": partial(durations.compare_durations, compare=compare)
    for name, compare in _COMPARISONS.items()
}
_ANY_CASE: Final = {name.lower(): function for name, function in _TYPED.items()}

OPERATORS: Final[Mapping[str, Operator]] = MappingProxyType({**_TYPED, **_ORDERED})
DEPRECATED: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "In": ("AllIn", "AnyIn"),
        "NotIn": ("AllNotIn", "AnyNotIn"),
        **{f"Duration{name}": (name,) for name in _COMPARISONS},
    }
)


def find_operator(name: str) -> Operator | None:
    """Return an operator by name; only names of orderings are case-sensitive."""
    return OPERATORS.get(name) or _ANY_CASE.get(name.lower())
