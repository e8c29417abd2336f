"""Maps."""

import copy
from functools import partial
from typing import Any

from reconciler.languages.gotemplate.functions.defaults import is_empty
from reconciler.languages.gotemplate.functions.strings import strings
from reconciler.languages.gotemplate.limits import Run
from reconciler.languages.gotemplate.printing import text_of
from reconciler.languages.gotemplate.signature import (
    ANY,
    MAP,
    STRING,
    Failure,
    Family,
    family,
    function,
    plain,
)
from reconciler.languages.gotemplate.values import Slice, is_nil, loaded, type_name

_Values = dict[str, Any]
_LEAST = 3


def _dict(run: Run, *entries: Any) -> _Values:
    run.grow(len(entries))
    keys = [text_of(run, key) for key in entries[::2]]
    values = [*entries[1::2], ""]
    return dict(zip(keys, values, strict=False))


def _get(entries: _Values, key: str) -> Any:
    return loaded(entries[key]) if key in entries else ""


def _set(run: Run, entries: _Values, key: str, value: Any) -> _Values:
    if is_nil(entries):
        raise Failure("the map is null")
    run.change(entries)
    entries[key] = value
    return entries


def _unset(run: Run, entries: _Values, key: str) -> _Values:
    run.change(entries)
    entries.pop(key, None)
    return entries


def _pluck(key: str, *maps: _Values) -> list[Any]:
    found = [loaded(entries[key]) for entries in maps if key in entries]
    return found or Slice()


def _keys(run: Run, *maps: _Values) -> Slice:
    # Sorted, where the order of the original is random.
    run.grow(sum(map(len, maps)))
    return strings(key for entries in maps for key in sorted(entries))


def _values(run: Run, entries: _Values) -> list[Any]:
    run.grow(len(entries))
    return [loaded(entries[key]) for key in sorted(entries)]


def _pick(entries: _Values, *keys: str) -> _Values:
    return {key: entries[key] for key in keys if key in entries}


def _omit(run: Run, entries: _Values, *keys: str) -> _Values:
    run.visit(len(entries))
    omitted = frozenset(keys)
    return {key: value for key, value in entries.items() if key not in omitted}


def _dig(*path: Any) -> Any:
    if len(path) < _LEAST:
        raise Failure("it takes at least a key, a default and a map")
    *keys, instead, entries = path
    if any(not isinstance(key, str) for key in keys):
        raise Failure("a key is not a string")
    for key in keys:
        if type_name(entries) != MAP:
            raise Failure(f"it takes a map of any values, not {type_name(entries)}")
        if key not in entries:
            return instead
        entries = loaded(entries[key])
    return entries


def _merge(run: Run, into: _Values, *others: _Values, overwrite: bool = False) -> _Values:
    for other in others:
        if is_nil(into) and not is_nil(other):
            into = {}
        _merge_into(run, into, other, overwrite=overwrite, depth=0)
    return into


def _merge_into(run: Run, into: _Values, other: _Values, *, overwrite: bool, depth: int) -> None:
    """Merge as mergo does: a key keeps its value, unless values are overwritten."""
    if depth > run.limits.depth:
        raise Failure(f"maps are nested deeper than {run.limits.depth} levels")
    run.visit(len(other))
    run.change(into)
    for key, value in list(other.items()):
        if value is None:
            if overwrite:
                into[key] = None
            continue
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge_into(run, into[key], value, overwrite=overwrite, depth=depth + 1)
        has_value = not is_empty(into.get(key))
        if has_value and isinstance(value, list) and overwrite:
            into[key] = value
        if not has_value or (overwrite and not isinstance(value, dict | list)):
            into[key] = value


def _deep_copy(run: Run, value: Any) -> Any:
    if value is None:
        raise Failure("the value to copy is null")
    run.visit(_size(run, value))
    return copy.deepcopy(value)


def _size(run: Run, value: Any) -> int:
    waiting, count = [value], 0
    while waiting:
        current = waiting.pop()
        count += 1
        run.visit(1)
        if isinstance(current, dict):
            waiting.extend(current.values())
        elif isinstance(current, list):
            waiting.extend(current)
    return count


FUNCTIONS: Family = family(
    {
        "dict": function(_dict, rest=ANY),
        "get": plain(_get, MAP, STRING),
        "set": function(_set, MAP, STRING, ANY),
        "unset": function(_unset, MAP, STRING),
        "hasKey": plain(lambda entries, key: key in entries, MAP, STRING),
        "pluck": plain(_pluck, STRING, rest=MAP),
        "keys": function(_keys, rest=MAP),
        "values": function(_values, MAP),
        "pick": plain(_pick, MAP, rest=STRING),
        "omit": function(_omit, MAP, rest=STRING),
        "dig": plain(_dig, rest=ANY),
        "merge": function(_merge, MAP, rest=MAP),
        "mergeOverwrite": function(partial(_merge, overwrite=True), MAP, rest=MAP),
        "deepCopy": function(_deep_copy, ANY),
    },
    mustMerge="merge",
    mustMergeOverwrite="mergeOverwrite",
    mustDeepCopy="deepCopy",
)
