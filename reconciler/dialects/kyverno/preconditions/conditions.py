"""Conditions of a rule, compiled: ``{any, all}`` or the older plain list."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from reconciler.dialects.kyverno.preconditions.operands import Operand, compile_operand
from reconciler.dialects.kyverno.preconditions.operators import OPERATORS, Operator, find_operator
from reconciler.dialects.kyverno.template import Check, Template
from reconciler.engine.context import Context
from reconciler.engine.outcome import ConditionResult
from reconciler.errors import ErrorList, EvaluationError, InvalidPolicy, read_each
from reconciler.languages.jmespath.values import walk

_PAIR: Final = 160
"""Steps to compare two values, beside those for their characters."""
_COMPARISON: Final = 256
"""Steps of a comparison as a whole, which may have to parse quantities or durations."""
_STAR: Final = 16
_ENCODED: Final = 4
"""Steps of a star in a pattern, and of a character in what may be a JSON list."""
_INCOMPLETE: Final = "entered value of `key`, `value` or `operator` is missing or misspelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A compiled condition."""

    key: Operand
    operator: Operator
    value: Operand
    message: str

    def evaluate(self, context: Context) -> bool:
        """Return whether the condition holds in a context.

        Raises:
            EvaluationError: A variable cannot be resolved.
        """
        key = _resolve(self.key, context, "key")
        value = _resolve(self.value, context, "value")
        context.allowance.spend(_comparing(key, value))
        return self.operator(key, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """All conditions of one preconditions block; see `compile_conditions`.

    Attributes:
        any: At least one must hold; None when the policy has no ``any``.
        all: Every one must hold.
        first_message: Report the message of the first failing condition only (the plain list).
    """

    any: tuple[Condition, ...] | None = None
    all: tuple[Condition, ...] = ()
    first_message: bool = False

    def evaluate(self, context: Context) -> ConditionResult:
        """Return whether the conditions hold; ``all`` is evaluated even when ``any`` has failed.

        Raises:
            EvaluationError: A variable of an evaluated condition cannot be resolved.
        """
        passed = True
        messages: dict[bool, list[str]] = {True: [], False: []}
        if self.any is not None:
            passed = _search(self.any, context, wanted=True, messages=messages)
        stopped = _search(self.all, context, wanted=False, messages=messages)
        passed = passed and not stopped
        reported = [message for message in messages[passed] if message]
        if self.first_message and not passed:
            reported = messages[False][:1]
        return ConditionResult(passed=passed, message="; ".join(reported))

    @property
    def templates(self) -> tuple[Template, ...]:
        """All templates, in the order of the policy."""
        conditions = (*(self.any or ()), *self.all)
        sides = (side for item in conditions for side in (item.key, item.value))
        return tuple(template for side in sides for template in side.templates)

    @property
    def roots(self) -> frozenset[str]:
        """The names at the top of the context that the conditions read."""
        return frozenset[str]().union(*(template.roots for template in self.templates))

    @property
    def reads(self) -> frozenset[tuple[str, ...]]:
        """The paths that the conditions read."""
        return frozenset[tuple[str, ...]]().union(*(item.reads for item in self.templates))


def _search(
    conditions: tuple[Condition, ...],
    context: Context,
    *,
    wanted: bool,
    messages: dict[bool, list[str]],
) -> bool:
    """Evaluate conditions until one has the wanted result; return whether one had."""
    for condition in conditions:
        result = condition.evaluate(context)
        messages[result].append(condition.message)
        if result is wanted:
            return True
    return False


def _comparing(key: Any, value: Any) -> int:
    """Return the steps of a comparison, in which each item may be compared with each other one."""
    if not isinstance(key, str | list | dict) and not isinstance(value, str | list | dict):
        return _COMPARISON
    keys, values = _size(key), _size(value)
    many_keys = len(key) if isinstance(key, list) else 1
    many_values = len(value) if isinstance(value, list) else 1
    pairs = _PAIR * many_keys * many_values
    return _COMPARISON + pairs + 2 * (many_values * keys + many_keys * values)


def _size(value: Any) -> int:
    """Return the size of a value: its characters, and one for each value within it."""
    if isinstance(value, str):
        return len(value) * (_ENCODED if value[:1] == "[" else 1) + _STAR * value.count("*")
    return sum(
        len(item) + 1 + _STAR * item.count("*") if isinstance(item, str) else 1
        for item in walk(value)
    )


def _resolve(operand: Operand, context: Context, side: Literal["key", "value"]) -> Any:
    try:
        return operand.resolve(context)
    except EvaluationError as error:
        msg = f"failed to substitute variables in condition {side}: {error}"
        raise EvaluationError(msg) from error


def compile_conditions(raw: Any, *, location: str, check: Check | None = None) -> Conditions:
    """Compile preconditions; null always holds.

    Args:
        check: Refuses an expression that is not allowed there.

    Raises:
        InvalidPolicy: The shape is neither ``{any, all}`` nor a list, or a condition is wrong.
    """
    match raw:
        case None:
            return Conditions()
        case list():
            return Conditions(all=_compile_list(raw, location, check), first_message=True)
        case Mapping():
            return _compile_blocks(raw, location, check)
        case _:
            reason = "invalid preconditions: expected an object with any and all, or a list"
            raise InvalidPolicy(location, reason)


def _compile_blocks(raw: Mapping[str, Any], location: str, check: Check | None) -> Conditions:
    found: dict[str, tuple[Condition, ...] | None] = {}
    with ErrorList() as errors:
        for field, listed in raw.items():
            if field not in ("any", "all"):
                reason = f"unknown field {field!r}, expected any or all"
                errors.add(InvalidPolicy(f"{location}.{field}", reason))
            elif listed is not None:
                found[field] = errors.attempt(_compile_list, listed, f"{location}.{field}", check)
    return Conditions(any=found.get("any"), all=found.get("all") or ())


def _compile_list(raw: Any, location: str, check: Check | None) -> tuple[Condition, ...]:
    if not isinstance(raw, list):
        raise InvalidPolicy(location, "expected a list of conditions")
    return read_each(partial(_compile_condition, check=check), raw, location)


def _compile_condition(raw: Any, location: str, *, check: Check | None) -> Condition:
    if not isinstance(raw, Mapping):
        raise InvalidPolicy(location, "expected an object with key, operator and value")
    name = raw.get("operator")
    if not isinstance(name, str) or not name or raw.get("key") is None or raw.get("value") is None:
        raise InvalidPolicy(location, _INCOMPLETE)
    operator = find_operator(name)
    if operator is None:
        reason = (
            f"entered value of `operator` is invalid: {name!r}. "
            f"valid values: [{', '.join(OPERATORS)}]"
        )
        raise InvalidPolicy(f"{location}.operator", reason)
    message = raw.get("message") or ""
    if not isinstance(message, str):
        raise InvalidPolicy(f"{location}.message", "expected a string")
    with ErrorList() as errors:
        key = errors.attempt(compile_operand, raw["key"], location=f"{location}.key", check=check)
        value = compile_operand(raw["value"], location=f"{location}.value", check=check)
        if key is None:
            raise errors.combined()
    return Condition(key=key, operator=operator, value=value, message=message)
