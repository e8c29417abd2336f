"""Functions on lists, some of which accept strings or maps as well."""

from collections.abc import Callable, Mapping
from typing import Any

from reconciler.errors import EvaluationError
from reconciler.languages.jmespath.functions.signature import EXPRESSION, LIST, Apply, Function
from reconciler.languages.jmespath.limits import Run
from reconciler.languages.jmespath.values import equal, is_number, kind_of


def _contains(run: Run, subject: str | list[Any], wanted: Any) -> bool:
    if isinstance(subject, str):
        return isinstance(wanted, str) and wanted in subject
    run.spend(len(subject))
    return any(equal(item, wanted, run) for item in subject)


def _length(_run: Run, subject: str | list[Any] | dict[str, Any]) -> int:
    return len(subject)


def _map(run: Run, apply: Apply, items: list[Any]) -> list[Any]:
    run.spend(len(items))
    return [apply(item, run) for item in items]


def _max(run: Run, items: list[Any]) -> Any:
    run.spend(len(items))
    return max(items, default=None)


def _min(run: Run, items: list[Any]) -> Any:
    run.spend(len(items))
    return min(items, default=None)


def _max_by(run: Run, items: list[Any], apply: Apply) -> Any:
    return max(items, key=_by(run, items, apply), default=None)


def _min_by(run: Run, items: list[Any], apply: Apply) -> Any:
    return min(items, key=_by(run, items, apply), default=None)


def _reverse(run: Run, subject: str | list[Any]) -> str | list[Any]:
    run.spend(len(subject))
    return subject[::-1]


def _sort(run: Run, items: list[Any]) -> list[Any]:
    run.spend(len(items))
    return sorted(items)


def _sort_by(run: Run, items: list[Any], apply: Apply) -> list[Any]:
    return sorted(items, key=_by(run, items, apply))


def _by(run: Run, items: list[Any], apply: Apply) -> Callable[[Any], Any]:
    """Return the sort key; all keys must be numbers, or all strings, unless there is only one."""
    run.spend(len(items))
    if len(items) == 1:
        return lambda _item: 0
    expected = ""

    def key(item: Any) -> Any:
        nonlocal expected
        value = apply(item, run)
        kind = kind_of(value)
        if not (is_number(value) or isinstance(value, str)) or (expected and kind != expected):
            shown = "<nil>" if value is None else kind
            raise EvaluationError(
                f"Invalid type for: {shown}, expected: {expected or 'number or string'} (sort key)"
            )
        expected = kind
        return value

    return key


_COMPARABLE = ("array[number]", "array[string]")
_EXPRESSION = (EXPRESSION,)

FUNCTIONS: Mapping[str, Function] = {
    "contains": Function(call=_contains, takes=(("array", "string"), ("any",))),
    "length": Function(call=_length, takes=(("string", "array", "object"),)),
    "map": Function(call=_map, takes=(_EXPRESSION, LIST)),
    "max": Function(call=_max, takes=(_COMPARABLE,)),
    "max_by": Function(call=_max_by, takes=(LIST, _EXPRESSION)),
    "min": Function(call=_min, takes=(_COMPARABLE,)),
    "min_by": Function(call=_min_by, takes=(LIST, _EXPRESSION)),
    "reverse": Function(call=_reverse, takes=(("array", "string"),)),
    "sort": Function(call=_sort, takes=(_COMPARABLE,)),
    "sort_by": Function(call=_sort_by, takes=(LIST, _EXPRESSION)),
}
