"""Arithmetic on numbers, quantities and durations.

An operand is a number, or a text that is a quantity (``5m`` is five thousandths), or else a Go
duration (``5s``). Numbers are used with the decimal digits that they are written with.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from reconciler.engine.values.scalars import (
    Quantity,
    format_duration,
    format_quantity,
    parse_duration,
    parse_quantity,
)
from reconciler.errors import EvaluationError
from reconciler.languages.jmespath.functions.arithmetic import tidy, whole_number
from reconciler.languages.jmespath.functions.signature import (
    ANY,
    LIST,
    Function,
    Refused,
    extension,
)
from reconciler.languages.jmespath.limits import Run
from reconciler.languages.jmespath.values import bounded, is_number

TYPES_MISMATCH = "Types mismatch"
ZERO_DIVISOR = "Zero divisor passed"
NOT_WHOLE = "Non-integer argument(s) passed for modulo"
_INVALID = "invalid operand"
_OUT_OF_RANGE = "the result is out of range"
_EMPTY = "at least one element in the array is required"

_NANO = 10**9
_INT64 = 1 << 63
_LONGEST = 200
# The cost of parsing an operand, in copied characters: a base, and one for each of its own.
_AMOUNT = 128
_PACE = 8


@dataclass(frozen=True, slots=True)
class _Duration:
    nanoseconds: int


_Operand = int | float | Quantity | _Duration


def _operand(run: Run, value: Any) -> _Operand:
    if is_number(value):
        try:
            return bounded(value)
        except ValueError:
            raise Refused(_INVALID) from None
    if isinstance(value, str) and len(value) <= _LONGEST:
        run.read(_AMOUNT + len(value) * _PACE)
        if (quantity := parse_quantity(value)) is not None:
            return quantity
        if (nanoseconds := parse_duration(value)) is not None:
            return _Duration(nanoseconds)
    raise Refused(_INVALID)


def _add(run: Run, left: Any, right: Any) -> Any:
    return _written(_plus(_operand(run, left), _operand(run, right), 1))


def _subtract(run: Run, left: Any, right: Any) -> Any:
    return _written(_plus(_operand(run, left), _operand(run, right), -1))


def _sum(run: Run, items: list[Any]) -> Any:
    run.spend(len(items))
    if not items:
        raise Refused(_EMPTY)
    if len(items) == 1:
        return items[0]
    total = _operand(run, items[0])
    for item in items[1:]:
        total = _plus(total, _operand(run, item), 1)
    return _written(total)


def _plus(left: _Operand, right: _Operand, sign: int) -> _Operand:
    match left, right:
        case Quantity(), Quantity():
            # Zero has no format of its own: 0 plus 1Gi is 1Gi.
            written = left if left.nano else right
            return Quantity(nano=left.nano + sign * right.nano, format=written.format)
        case _Duration(), _Duration():
            return _Duration(left.nanoseconds + sign * right.nanoseconds)
        case ((int() | float()), (int() | float())):
            return left + sign * right
        case _:
            raise Refused(TYPES_MISMATCH)


def _multiply(run: Run, one: Any, other: Any) -> Any:
    left, right = _operand(run, one), _operand(run, other)
    if isinstance(left, int | float) and not isinstance(right, int | float):
        left, right = right, left
    match left, right:
        case Quantity(), (int() | float()):
            nano = left.nano * _scalar(right).nano
            product: _Operand = Quantity(nano=_away_from_zero(nano), format=left.format)
        case _Duration(), (int() | float()):
            product = _Duration(int(left.nanoseconds * Fraction(str(right))))
        case ((int() | float()), (int() | float())):
            product = left * right
        case _:
            raise Refused(TYPES_MISMATCH)
    return _written(product)


def _divide(run: Run, one: Any, other: Any) -> Any:
    left, right = _operand(run, one), _operand(run, other)
    _refuse_zero(right)
    match left, right:
        case Quantity(), Quantity():
            quotient: _Operand = left.nano / right.nano
        case Quantity(), (int() | float()):
            quotient = _quotient(left, _scalar(right))
        case _Duration(), _Duration():
            quotient = left.nanoseconds / right.nanoseconds
        case _Duration(), (int() | float()):
            quotient = _Duration(int(left.nanoseconds / Fraction(str(right))))
        case ((int() | float()), (int() | float())):
            quotient = _ratio(left, right)
        case _:
            raise Refused(TYPES_MISMATCH)
    return _written(quotient)


def _quotient(dividend: Quantity, divisor: Quantity) -> Quantity:
    """Divide to as many decimal places as the finer operand has, and truncate the rest."""
    places = max(dividend.places, divisor.places)
    unit = Fraction(10) ** -places
    count = int(Fraction(dividend.nano, divisor.nano) / unit)
    return Quantity(nano=int(count * unit * _NANO), format=dividend.format)


def _ratio(left: float, right: float) -> float:
    try:
        return left / right
    except OverflowError:
        raise Refused(_OUT_OF_RANGE) from None


def _modulo(run: Run, one: Any, other: Any) -> Any:
    left, right = _operand(run, one), _operand(run, other)
    match left, right:
        case Quantity(), Quantity():
            _refuse_zero(right)
            if left.nano % _NANO or right.nano % _NANO:
                raise Refused(NOT_WHOLE)
            rest: _Operand = Quantity(nano=_remainder(left.nano, right.nano), format=left.format)
        case _Duration(), _Duration():
            _refuse_zero(right)
            rest = _Duration(_remainder(left.nanoseconds, right.nanoseconds))
        case ((int() | float()), (int() | float())):
            _refuse_zero(right)
            rest = _remainder(_whole(left), _whole(right))
        case _:
            raise Refused(TYPES_MISMATCH)
    return _written(rest)


def _whole(number: float) -> int:
    try:
        return whole_number(number)
    except EvaluationError:
        raise Refused(NOT_WHOLE) from None


def _refuse_zero(divisor: _Operand) -> None:
    match divisor:
        case Quantity():
            zero = not divisor.nano
        case _Duration():
            zero = not divisor.nanoseconds
        case _:
            zero = not divisor
    if zero:
        raise Refused(ZERO_DIVISOR)


def _remainder(dividend: int, divisor: int) -> int:
    rest = abs(dividend) % abs(divisor)
    return -rest if dividend < 0 else rest


def _scalar(number: float) -> Quantity:
    quantity = parse_quantity(str(tidy(number)))
    if quantity is None or abs(number) >= _INT64:
        raise Refused(_OUT_OF_RANGE)
    return quantity


def _away_from_zero(dividend: int) -> int:
    amount = -(-abs(dividend) // _NANO)
    return -amount if dividend < 0 else amount


def _written(result: _Operand) -> Any:
    match result:
        case Quantity(nano=nano) if abs(nano) < _INT64 * _NANO:
            return format_quantity(result)
        case _Duration(nanoseconds=nanoseconds) if -_INT64 <= nanoseconds < _INT64:
            return format_duration(nanoseconds)
        case int() | float():
            try:
                return tidy(result)
            except ValueError:
                raise Refused(_OUT_OF_RANGE) from None
        case _:
            raise Refused(_OUT_OF_RANGE)


FUNCTIONS: Mapping[str, Function] = {
    "add": extension(_add, ANY, ANY),
    "divide": extension(_divide, ANY, ANY),
    "modulo": extension(_modulo, ANY, ANY),
    "multiply": extension(_multiply, ANY, ANY),
    "subtract": extension(_subtract, ANY, ANY),
    "sum": extension(_sum, LIST),
}
