"""Functions on the types of values."""

import re
from collections.abc import Mapping
from typing import Any

from reconciler.languages.jmespath.functions.signature import ANY, Function
from reconciler.languages.jmespath.limits import Run
from reconciler.languages.jmespath.values import as_text, bounded, is_number, kind_of

_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def _not_null(_run: Run, *values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _to_array(_run: Run, value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _to_number(_run: Run, value: Any) -> Any:
    if is_number(value):
        return value
    if not isinstance(value, str) or not _DECIMAL.fullmatch(value):
        return None
    try:
        return bounded(int(value) if _INTEGER.fullmatch(value) else float(value))
    except ValueError:
        return None


def _to_string(run: Run, value: Any) -> str:
    return as_text(value, run)


def _type(_run: Run, value: Any) -> str:
    return kind_of(value)


FUNCTIONS: Mapping[str, Function] = {
    "not_null": Function(call=_not_null, takes=(ANY,), variadic=True),
    "to_array": Function(call=_to_array, takes=(ANY,)),
    "to_number": Function(call=_to_number, takes=(ANY,)),
    "to_string": Function(call=_to_string, takes=(ANY,)),
    "type": Function(call=_type, takes=(ANY,)),
}
