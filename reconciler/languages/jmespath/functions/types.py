"""Functions on the types of values."""

import re
from collections.abc import Mapping
from typing import Any

from reconciler.engine.values.gonumbers import parse_float
from reconciler.languages.jmespath.functions.signature import ANY, Function
from reconciler.languages.jmespath.limits import Run
from reconciler.languages.jmespath.values import as_text, bounded, is_number, kind_of

_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")


def _not_null(_run: Run, *values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _to_array(_run: Run, value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _to_number(_run: Run, value: Any) -> Any:
    if is_number(value):
        return value
    number = parse_float(value) if isinstance(value, str) else None
    if number is None:
        return None
    try:
        return bounded(int(value) if _INTEGER.fullmatch(value) else number)
    except ValueError:
        return None


FUNCTIONS: Mapping[str, Function] = {
    "not_null": Function(call=_not_null, takes=(ANY,), variadic=True),
    "to_array": Function(call=_to_array, takes=(ANY,)),
    "to_number": Function(call=_to_number, takes=(ANY,)),
    "to_string": Function(call=lambda run, value: as_text(value, run), takes=(ANY,)),
    "type": Function(call=lambda _run, value: kind_of(value), takes=(ANY,)),
}
