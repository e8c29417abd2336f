"""Computing small patches that turn one document into another."""

import json
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any, Final

import orjson

from reconciler.engine.patch.paths import escaped

Operation = dict[str, Any]

# With fewer operations in a map, replacing the whole map never pays.
_FEWEST_FOLDED: Final = 4
# Above this many pairs of differing elements a list is compared index by index.
_MAX_PAIRS: Final = 10_000
_MISSING: Final = object()


class _Inexpressible(Exception):
    """The change stores a null, which a merge patch cannot express: null means delete there."""


class _Operations(list[Operation]):
    """The operations of a JSON patch, in order.

    Attributes:
        folded: Replace a whole map where that is shorter.
    """

    def __init__(self, *, folded: bool) -> None:
        super().__init__()
        self.folded = folded

    def fold(self, first: int, path: str, after: dict[str, Any]) -> None:
        """Replace the operations from `first` on by one for the whole map, if that is shorter."""
        count = len(self) - first
        # Not every implementation can replace the whole document, whose path is empty.
        if count < _FEWEST_FOLDED or not self.folded or not path:
            return
        whole = {"op": "replace", "path": path, "value": after}
        if len(orjson.dumps(whole)) < len(orjson.dumps(self[first:])):
            self[first:] = [whole]


def equal(left: Any, right: Any) -> bool:
    """Return whether JSON values are deeply equal; 1 equals 1.0, true equals neither."""
    if left is right:
        return True
    if isinstance(left, dict):
        if not isinstance(right, dict) or len(left) != len(right):
            return False
        for key, value in left.items():
            other = right.get(key, _MISSING)
            # Most parts that a rule does not change are the identical objects.
            if other is not value and not equal(value, other):
                return False
        return True
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(equal, left, right))
    return not (isinstance(left, bool) or isinstance(right, bool)) and bool(left == right)


def merge_diff(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any] | None:
    """Return the minimal JSON merge patch (RFC 7386), empty when nothing changed.

    Returns None when no merge patch can express the change, because it stores a null; `json_diff`
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


def json_diff(before: Any, after: Any, *, folded: bool = False) -> list[dict[str, Any]]:
    """Return JSON patch operations (RFC 6902) in order, empty when nothing changed.

    Args:
        folded: Replace a map as a whole where that is shorter. The patch is smaller, but no
            longer shows a person what changed in the map.
    """
    operations = _Operations(folded=folded)
    _diff(before, after, "", operations)
    return operations


def _diff(before: Any, after: Any, path: str, operations: _Operations) -> None:
    """Add the operations that turn one value at a path into another."""
    if before is after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        _diff_map(before, after, path, operations)
    elif isinstance(before, list) and isinstance(after, list):
        _diff_list(before, after, path, operations)
    elif not equal(before, after):
        operations.append({"op": "replace", "path": path, "value": after})


def _diff_map(
    before: dict[str, Any], after: dict[str, Any], path: str, operations: _Operations
) -> None:
    first = len(operations)
    operations += [
        {"op": "remove", "path": f"{path}/{escaped(key)}"} for key in before if key not in after
    ]
    for key, value in after.items():
        old = before.get(key, _MISSING)
        if old is _MISSING:
            operations.append({"op": "add", "path": f"{path}/{escaped(key)}", "value": value})
        elif old is not value:
            _diff(old, value, f"{path}/{escaped(key)}", operations)
    operations.fold(first, path, after)


def _diff_list(before: list[Any], after: list[Any], path: str, operations: _Operations) -> None:
    shorter = min(len(before), len(after))
    start = 0
    while start < shorter and equal(before[start], after[start]):
        start += 1
    end = 0
    while end < shorter - start and equal(before[-1 - end], after[-1 - end]):
        end += 1
    old, new = before[start : len(before) - end], after[start : len(after) - end]
    # Before `at` the list has its new elements already, so indexes are those of `after`.
    for old_part, new_part, at in _align(old, new):
        _diff_part(old_part, new_part, path, start + at, operations)


def _align(old: list[Any], new: list[Any]) -> Iterator[tuple[list[Any], list[Any], int]]:
    """Yield runs of elements that correspond: old ones, new ones, index of the first new one."""
    if not old or not new or len(old) * len(new) > _MAX_PAIRS:
        yield old, new, 0
        return
    matcher = SequenceMatcher(
        None, [_identity(item) for item in old], [_identity(item) for item in new], autojunk=False
    )
    for _, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        yield old[old_start:old_end], new[new_start:new_end], new_start


def _diff_part(
    old: list[Any], new: list[Any], path: str, at: int, operations: _Operations
) -> None:
    paired = min(len(old), len(new))
    for offset in range(paired):
        _diff(old[offset], new[offset], f"{path}/{at + offset}", operations)
    operations += [
        {"op": "remove", "path": f"{path}/{at + paired}"} for _ in range(len(old) - paired)
    ]
    operations += [
        {"op": "add", "path": f"{path}/{at + offset}", "value": new[offset]}
        for offset in range(paired, len(new))
    ]


def _identity(element: Any) -> str:
    """Return the identity of an element: its name, as in most Kubernetes lists, or its content."""
    name = element.get("name") if isinstance(element, dict) else None
    return name if isinstance(name, str) else json.dumps(element, sort_keys=True)
