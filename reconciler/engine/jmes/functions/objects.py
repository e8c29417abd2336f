"""Functions on maps; everything comes in the order of the keys."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from reconciler.engine.jmes.functions.signature import Function
from reconciler.engine.jmes.limits import Run


def _keys(run: Run, subject: dict[str, Any]) -> list[str]:
    run.spend(len(subject))
    return sorted(subject)


def _values(run: Run, subject: dict[str, Any]) -> list[Any]:
    run.spend(len(subject))
    return [subject[key] for key in sorted(subject)]


def _merge(run: Run, *subjects: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for subject in subjects:
        run.spend(len(subject))
        result.update(subject)
    return result


_MAP = ("object",)

FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        "keys": Function(call=_keys, takes=(_MAP,)),
        "merge": Function(call=_merge, takes=(_MAP,), variadic=True),
        "values": Function(call=_values, takes=(_MAP,)),
    }
)
