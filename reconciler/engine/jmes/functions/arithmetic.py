"""Functions on numbers."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from reconciler.engine.jmes.functions.signature import Function
from reconciler.engine.jmes.limits import Run
from reconciler.errors import EvaluationError


def _abs(_run: Run, number: float) -> float:
    return abs(number)


def _ceil(_run: Run, number: float) -> float:
    return math.ceil(_finite(number))


def _floor(_run: Run, number: float) -> float:
    return math.floor(_finite(number))


def _avg(run: Run, numbers: list[float]) -> Any:
    run.spend(len(numbers))
    if not numbers:
        return None
    try:
        return math.fsum(numbers) / len(numbers)
    except OverflowError:
        raise EvaluationError("avg: the numbers are too large") from None


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise EvaluationError("the number is not finite")
    return number


FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        "abs": Function(call=_abs, takes=(("number",),)),
        "avg": Function(call=_avg, takes=(("array[number]",),)),
        "ceil": Function(call=_ceil, takes=(("number",),)),
        "floor": Function(call=_floor, takes=(("number",),)),
    }
)
