"""Functions on maps; results are in the order of the keys."""

from collections.abc import Mapping
from typing import Any

from reconciler.errors import EvaluationError
from reconciler.languages.jmespath.functions.arithmetic import whole_number
from reconciler.languages.jmespath.functions.signature import (
    ANY,
    LIST,
    MAP,
    TEXT,
    WRONG_TYPE,
    Function,
    Refused,
    extension,
)
from reconciler.languages.jmespath.limits import Run
from reconciler.languages.jmespath.values import as_text, equal, is_number

_MAP_OR_LIST = ("object", "array")


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


def _lookup(_run: Run, subject: dict[str, Any] | list[Any], key: Any) -> Any:
    if isinstance(subject, dict):
        if not isinstance(key, str):
            raise Refused("argument #2 is not of type String")
        return subject.get(key)
    if not is_number(key):
        raise Refused("argument #2 is not of type Number")
    try:
        position = whole_number(key)
    except EvaluationError as error:
        raise Refused(f"argument #2: {error}") from None
    return subject[position] if 0 <= position < len(subject) else None


def _items(
    run: Run, subject: dict[str, Any] | list[Any], key_name: str, value_name: str
) -> list[dict[str, Any]]:
    run.spend(len(subject))
    pairs = sorted(subject.items()) if isinstance(subject, dict) else enumerate(subject)
    return [{key_name: key, value_name: value} for key, value in pairs]


def _object_from_lists(run: Run, keys: list[Any], values: list[Any]) -> dict[str, Any]:
    run.spend(len(keys))
    missing = [None] * (len(keys) - len(values))
    return {
        _key(run, key): value
        for key, value in zip(keys, [*values[: len(keys)], *missing], strict=True)
    }


def _key(run: Run, key: Any) -> str:
    if key is None or isinstance(key, dict | list):
        raise Refused(WRONG_TYPE.format(1, "StringArray"))
    text = as_text(key, run)
    run.read(len(text))
    return text


def _label_match(run: Run, wanted: dict[str, Any], labels: dict[str, Any]) -> bool:
    run.spend(len(wanted))
    return all(key in labels and equal(value, labels[key], run) for key, value in wanted.items())


FUNCTIONS: Mapping[str, Function] = {
    "items": extension(_items, _MAP_OR_LIST, TEXT, TEXT),
    "keys": Function(call=_keys, takes=(MAP,)),
    "label_match": extension(_label_match, MAP, MAP),
    "lookup": extension(_lookup, _MAP_OR_LIST, ANY),
    "merge": Function(call=_merge, takes=(MAP,), variadic=True),
    "object_from_lists": extension(_object_from_lists, LIST, LIST),
    "values": Function(call=_values, takes=(MAP,)),
}
