"""Conditions that allow or refuse a request: ``template.condition``."""

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final, Protocol

from typing_extensions import override

from reconciler.dialects.kinitiras.texts import ABSENT, read_number, read_text
from reconciler.dialects.kinitiras.values import (
    Constant,
    PartOf,
    Source,
    read_reference,
    read_source,
    values_of,
)
from reconciler.engine import reading
from reconciler.engine.context import Context
from reconciler.engine.outcome import ConditionResult
from reconciler.engine.ports import Condition
from reconciler.errors import EvaluationError, InvalidPolicy

_FIELDS: Final = (
    "affectMode", "cond", "message", "dataRef", "value", "valueRef", "valueProcess",
)  # fmt: skip
_MODES: Final = ("reject", "allow")
SIGNS: Final[Mapping[str, str]] = MappingProxyType(
    {"Equal": "==", "NotEqual": "!=", "Gt": ">", "Gte": ">=", "Lt": "<", "Lte": "<="}
)
"""The signs of conditions in messages; all other conditions are shown by name."""
_ORDERS: Final[Mapping[str, Callable[[Any, Any], bool]]] = MappingProxyType(
    {"Gt": operator.gt, "Gte": operator.ge, "Lt": operator.lt, "Lte": operator.le}
)
_EXISTENCE: Final = frozenset({"Exist", "NotExist"})
_LISTS: Final = frozenset({"In", "NotIn"})
_CONDITIONS: Final = (*SIGNS, "Exist", "NotExist", "In", "NotIn")
_CALCULATIONS: Final[Mapping[str, Callable[[Fraction, Fraction], Fraction]]] = MappingProxyType(
    {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A calculation on the value before the comparison."""

    operation: str
    operand: float

    def result(self, value: Any) -> Fraction:
        """Return the result of the calculation.

        Raises:
            EvaluationError: The value is not a number.
        """
        if not _is_number(value):
            raise EvaluationError("valueProcess takes a number")
        return _CALCULATIONS[self.operation](_exact(value), _exact(self.operand))


class Refuses(Condition, Protocol):
    """A condition under which a rule refuses a request."""

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources of the values that the condition reads."""

    @property
    @override
    def roots(self) -> frozenset[str]:
        return frozenset({"request"})

    @property
    @override
    def reads(self) -> frozenset[tuple[str, ...]]:
        return frozenset().union(*(source.reads for source in self.sources))

    def reason(self, context: Context) -> str:
        """Return the message of the refusal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstOf(Refuses):
    """Several conditions, each of which refuses a request by itself."""

    conditions: tuple[Refuses, ...]

    @property
    @override
    def sources(self) -> tuple[Source, ...]:
        return tuple(source for item in self.conditions for source in item.sources)

    @override
    def evaluate(self, context: Context) -> ConditionResult:
        """Return the first result that refuses the request, or else the last result."""
        *first, last = self.conditions
        results = (item.evaluate(context) for item in first)
        return next((item for item in results if item.passed), None) or last.evaluate(context)

    @override
    def reason(self, context: Context) -> str:
        refusing = (item for item in self.conditions if item.evaluate(context).passed)
        return next(refusing).reason(context)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedWhen(Refuses):
    """A comparison that refuses requests; see `reconciler.engine.ports.Condition`.

    Attributes:
        condition: The comparison, as ``Equal``.
        data: The source of the left side: a part of an object or of an answer.
        wanted: The source of the right side.
        process: A calculation on the right side before the comparison.
        allows: The rule refuses requests that do not fit, instead of those that do.
        text: The message of the refusal.
    """

    condition: str
    data: PartOf
    wanted: Source | None
    process: Process | None
    allows: bool
    text: str

    @override
    def reason(self, context: Context) -> str:
        return self.text

    @override
    def evaluate(self, context: Context) -> ConditionResult:
        """Return whether the request is refused.

        Raises:
            EvaluationError: The values cannot be compared.
        """
        fits = self._fits(context)
        # A missing value does not fit. With `allows` it refuses: the original negates the result.
        if bool(fits) is not self.allows:
            return ConditionResult(passed=True)
        if fits is None:
            missing = f"there is nothing at {self.data.path.text}"
            return ConditionResult(passed=False, message=missing)
        sign = SIGNS.get(self.condition, self.condition)
        return ConditionResult(passed=False, message=f"{self.data.path.text} {sign}: {fits}")

    @property
    @override
    def sources(self) -> tuple[Source, ...]:
        if self.wanted is None or self.condition in _EXISTENCE:
            return (self.data,)
        return (self.data, self.wanted)

    def _fits(self, context: Context) -> bool | None:
        """Return whether the comparison holds, or None if a value is missing."""
        data, *others = values_of(self.sources, context)
        if self.condition in _EXISTENCE:
            return (data is not ABSENT) is (self.condition == "Exist")
        value = others[0] if others else ABSENT
        if data is ABSENT or value is ABSENT:
            return None
        if self.process is not None:
            value = self.process.result(value)
            data = _exact(data) if _is_number(data) else data
        return _compare(self.condition, data, value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Fraction) and not isinstance(value, bool)


def _exact(number: float) -> Fraction:
    """Return a number exactly as it is written, so that 7% of 100 equals 7.

    Raises:
        EvaluationError: The number is not finite.
    """
    if not math.isfinite(number):
        raise EvaluationError("valueProcess takes a number")
    return Fraction(str(number))


def _compare(condition: str, data: Any, value: Any) -> bool:
    if condition in _LISTS:
        if not isinstance(value, list):
            raise EvaluationError(f"{condition} takes a list")
        return any(_equal(data, item) for item in value) is (condition == "In")
    if condition in _ORDERS:
        numbers = _is_number(data) and _is_number(value)
        if not numbers and not (isinstance(data, str) and isinstance(value, str)):
            raise EvaluationError(f"{condition} takes two numbers or two strings")
        return _ORDERS[condition](data, value)
    kinds = {_kind_of(item) for item in (data, value) if item is not None}
    if len(kinds) > 1:
        found = " and ".join(sorted(kinds))
        raise EvaluationError(f"{condition} takes two values of one type, found {found}")
    return _equal(data, value) is (condition == "Equal")


def _kind_of(value: Any) -> str:
    if isinstance(value, str):
        return "a string"
    return "a number" if _is_number(value) else reading.kind_of(value)


def _equal(one: Any, other: Any) -> bool:
    return bool(one == other) and isinstance(one, bool) is isinstance(other, bool)


def read_head(raw: Any, location: str) -> tuple[Mapping[str, Any], str, bool]:
    """Return the fields of a condition, its ``cond``, and whether its ``affectMode`` is ``allow``.

    Raises:
        InvalidPolicy: A field is unknown, or one of these two is invalid.
    """
    fields = reading.mapping(raw, location, allowed=_FIELDS)
    condition, mode = fields.get("cond"), read_text(fields, "affectMode", location) or "reject"
    if condition not in _CONDITIONS:
        raise InvalidPolicy(f"{location}.cond", f"expected one of {', '.join(_CONDITIONS)}")
    if mode not in _MODES:
        raise InvalidPolicy(f"{location}.affectMode", "expected reject or allow")
    return fields, str(condition), mode == "allow"


def read_condition(raw: Any, location: str) -> RefusedWhen:
    """Read a condition of a ClusterValidatePolicy.

    Raises:
        InvalidPolicy: The condition is invalid.
    """
    fields, condition, allows = read_head(raw, location)
    source = read_source(fields, location, "")
    if source is None and condition not in _EXISTENCE:
        raise InvalidPolicy(f"{location}.value", "expected a value or a valueRef")
    process = fields.get("valueProcess")
    if process is not None:
        process = _process(process, f"{location}.valueProcess")
    if isinstance(source, Constant) and condition not in _EXISTENCE:
        _check_value(source.value, condition, process, f"{location}.value")
    return RefusedWhen(
        condition=condition,
        data=read_reference(fields.get("dataRef"), f"{location}.dataRef", ""),
        wanted=source,
        # The calculation does not apply to lists.
        process=None if condition in _LISTS else process,
        allows=allows,
        text=read_text(fields, "message", location) or "it is refused",
    )


def _check_value(value: Any, condition: str, process: Process | None, location: str) -> None:
    """Refuse a constant with which every request of the rule would end in an error."""
    reason = ""
    if condition in _LISTS:
        if not isinstance(value, list):
            reason = f"{condition} takes a list: stringSlice, integerSlice or floatSlice"
    elif process is not None and not _is_number(value):
        reason = "valueProcess takes a number: integer or float"
    elif condition in _ORDERS and not (_is_number(value) or isinstance(value, str)):
        reason = f"{condition} takes a number or a string: integer, float or string"
    if reason:
        raise InvalidPolicy(location, reason)


def _process(raw: Any, location: str) -> Process:
    fields = reading.mapping(raw, location, allowed=("operation", "operationWith"))
    name = fields.get("operation")
    if not isinstance(name, str) or name not in _CALCULATIONS:
        raise InvalidPolicy(f"{location}.operation", f"expected one of {', '.join(_CALCULATIONS)}")
    number = read_number(fields.get("operationWith"), f"{location}.operationWith")
    if name == "/" and not number.value:
        raise InvalidPolicy(f"{location}.operationWith", "a division by zero")
    return Process(operation=name, operand=number.value)
