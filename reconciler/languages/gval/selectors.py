"""The steps of paths as closures, which return one member or all selected members."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from reconciler.languages.gval.limits import Run, weigh
from reconciler.languages.gval.values import UNDEFINED, Failure, text_of, to_condition, to_index

Evaluate = Callable[[Run, Any], Any]
"""Returns a value in a run; the second argument is the value of ``@``."""

Captured = int | str | tuple[int | str, ...]
"""The key of a member, an integer in a list; ``..`` captures the keys on its way as one."""

_DESCENT = 96
"""Allowance steps for each value that ``..`` visits, in addition to one for each key."""

Follow = Callable[[Any], Any]
"""Returns the value at the end of a path of known keys, which takes no allowance steps."""

Several = Callable[[Run, Any], Iterable[tuple[Captured, Any]]]
"""A step with several results: the selected members of a value, with their keys."""


def key_step(key: Evaluate) -> Evaluate:
    """Return a step to the member with a computed key, in which ``@`` is the container."""

    def step(run: Run, value: Any) -> Any:
        return _member(run, value, key)[1]

    return step


def constant_key_step(key: Any) -> Evaluate:
    """Return a step to the member with a known key."""
    name = text_of(key)

    def step(_run: Run, value: Any) -> Any:
        return value.get(name, UNDEFINED) if isinstance(value, dict) else _listed(value, key)

    return step


def follow_keys(keys: Iterable[Any]) -> Follow:
    """Return a function that follows keys from a value to a member, key by key."""
    named = tuple((key, text_of(key)) for key in keys)

    def follow(value: Any) -> Any:
        for key, name in named:
            value = value.get(name, UNDEFINED) if isinstance(value, dict) else _listed(value, key)
        return value

    return follow


def wildcard_step(run: Run, value: Any) -> Iterator[tuple[int | str, Any]]:
    """Yield all members."""
    if isinstance(value, dict):
        run.visit(len(value))
        yield from value.items()
    elif isinstance(value, list):
        run.visit(len(value))
        yield from enumerate(value)


def descent_step(run: Run, value: Any) -> Iterator[tuple[Captured, Any]]:
    """Yield a value and all values in it, each container before its members."""
    waiting: list[tuple[tuple[int | str, ...], Any]] = [((), value)]
    while waiting:
        keys, current = waiting.pop()
        run.spend(_DESCENT + len(keys))
        yield keys, current
        members = [((*keys, key), member) for key, member in wildcard_step(run, current)]
        waiting += reversed(members)


def union_step(keys: tuple[Evaluate, ...]) -> Several:
    """Return a step to those members with the given keys that exist."""

    def step(run: Run, value: Any) -> Iterator[tuple[Captured, Any]]:
        run.visit(len(keys))
        for key in keys:
            try:
                name, member = _member(run, value, key)
            except Failure:
                continue
            if member is not UNDEFINED:
                yield name, member

    return step


def filter_step(condition: Evaluate) -> Several:
    """Return a step to the members for which a condition holds and does not fail."""

    def step(run: Run, value: Any) -> Iterator[tuple[Captured, Any]]:
        for key, member in wildcard_step(run, value):
            run.visit(1)
            try:
                kept = to_condition(condition(run, member))
            except Failure:
                continue
            if kept:
                yield key, member

    return step


def slice_step(start: Evaluate, end: Evaluate, step_by: Evaluate) -> Several:
    """Return a step to the elements of a list in a range.

    As in the original, a start greater than the end selects nothing, and this is checked before
    negative indexes are counted from the end: ``[1:-1]`` is empty.
    """

    def step(run: Run, value: Any) -> Iterator[tuple[Captured, Any]]:
        if not isinstance(value, list):
            return
        try:
            first, last, stride = (to_index(part(run, value)) for part in (start, end, step_by))
        except Failure:
            return
        if first > last:
            return
        first, last = _within(first, len(value)), _within(last, len(value))
        stride = stride or 1
        places = range(first, last, stride) if stride > 0 else range(last - 1, first - 1, stride)
        run.visit(len(places))
        for place in places:
            yield place, value[place]

    return step


def _member(run: Run, value: Any, key: Evaluate) -> tuple[int | str, Any]:
    """Return a member with its key, UNDEFINED where it does not exist."""
    selected = key(run, value)
    if isinstance(value, dict):
        weigh(selected, run.spend)
        name = text_of(selected)
        return name, value.get(name, UNDEFINED)
    if value is None or value is UNDEFINED:
        return "", UNDEFINED
    place = _place_in(value, selected)
    return place, value[place]


def _listed(value: Any, key: Any) -> Any:
    """Return a member of a value that is not an object."""
    return UNDEFINED if value is None or value is UNDEFINED else value[_place_in(value, key)]


def _place_in(value: Any, selected: Any) -> int:
    """Return the index in a list that a key stands for."""
    if not isinstance(value, list):
        raise Failure("only lists and objects have members")
    place = to_index(selected)
    if not 0 <= place < len(value):
        raise Failure("an index is out of range")
    return place


def _within(place: int, length: int) -> int:
    return max(length + place, 0) if place < 0 else min(place, length)
