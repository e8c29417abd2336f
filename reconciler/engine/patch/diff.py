"""The smallest patches that lead from one document to another."""

import json
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any, Final

from reconciler.engine.patch.paths import render_pointer

Place = tuple[str | int, ...]

# Above this many pairs of differing elements a list is compared place by place.
_MAX_PAIRS: Final = 10_000
_MISSING: Final = object()


class _Inexpressible(Exception):
    """A null would have to be stored, which in a merge patch means delete."""


def equal(left: Any, right: Any) -> bool:
    """Deep equality of JSON values: 1 equals 1.0, true equals neither; lists are ordered."""
    if left is right:
        return True
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and len(left) == len(right)
            # Most of what a rule leaves as it is, is the same part.
            and all(
                key in right and (right[key] is value or equal(value, right[key]))
                for key, value in left.items()
            )
        )
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(equal, left, right))
    if isinstance(left, bool) or isinstance(right, bool):
        return False
    return bool(left == right)


def merge_diff(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any] | None:
    """The minimal JSON merge patch (RFC 7386), empty when nothing changed.

    None when no merge patch can express the change, because a null has to be stored; `json_diff`
    can express every change.
    """
    try:
        return _merge_map(before, after)
    except _Inexpressible:
        return None


def _merge_map(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key, _MISSING)
        if equal(old, value):
            continue
        if isinstance(value, dict):
            patch[key] = _merge_map(old if isinstance(old, dict) else {}, value)
        elif value is None:
            raise _Inexpressible
        else:
            patch[key] = value
    return patch


def json_diff(before: Any, after: Any) -> list[dict[str, Any]]:
    """JSON patch operations (RFC 6902), to be applied in order; empty when nothing changed."""
    return list(_diff(before, after, ()))


def _diff(before: Any, after: Any, place: Place) -> Iterator[dict[str, Any]]:
    if before is after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _diff_map(before, after, place)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _diff_list(before, after, place)
    elif not equal(before, after):
        yield {"op": "replace", "path": render_pointer(place), "value": after}


def _diff_map(
    before: dict[str, Any], after: dict[str, Any], place: Place
) -> Iterator[dict[str, Any]]:
    for key in before:
        if key not in after:
            yield {"op": "remove", "path": render_pointer((*place, key))}
    for key, value in after.items():
        if key not in before:
            yield {"op": "add", "path": render_pointer((*place, key)), "value": value}
        elif before[key] is not value:
            yield from _diff(before[key], value, (*place, key))


def _diff_list(before: list[Any], after: list[Any], place: Place) -> Iterator[dict[str, Any]]:
    shorter = min(len(before), len(after))
    start = 0
    while start < shorter and equal(before[start], after[start]):
        start += 1
    end = 0
    while end < shorter - start and equal(before[-1 - end], after[-1 - end]):
        end += 1
    old, new = before[start : len(before) - end], after[start : len(after) - end]
    # Left of `at` the list is already the new one, so places there count as in `after`.
    for old_part, new_part, at in _align(old, new):
        yield from _diff_part(old_part, new_part, place, start + at)


def _align(old: list[Any], new: list[Any]) -> Iterator[tuple[list[Any], list[Any], int]]:
    """Pair what belongs together: (old elements, new elements, place of the new ones)."""
    if not old or not new or len(old) * len(new) > _MAX_PAIRS:
        yield old, new, 0
        return
    matcher = SequenceMatcher(
        None, [_identity(item) for item in old], [_identity(item) for item in new], autojunk=False
    )
    for _, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        yield old[old_start:old_end], new[new_start:new_end], new_start


def _diff_part(old: list[Any], new: list[Any], place: Place, at: int) -> Iterator[dict[str, Any]]:
    paired = min(len(old), len(new))
    for offset in range(paired):
        yield from _diff(old[offset], new[offset], (*place, at + offset))
    for _ in range(len(old) - paired):
        yield {"op": "remove", "path": render_pointer((*place, at + paired))}
    for offset in range(paired, len(new)):
        yield {"op": "add", "path": render_pointer((*place, at + offset)), "value": new[offset]}


def _identity(element: Any) -> str:
    """What makes two elements the same one: the name, as most lists of Kubernetes have it."""
    name = element.get("name") if isinstance(element, dict) else None
    return name if isinstance(name, str) else json.dumps(element, sort_keys=True)
