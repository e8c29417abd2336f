"""The steps of paths, as closures: one member, or all members that a step selects."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from reconciler.languages.gval.limits import Run
from reconciler.languages.gval.values import (
    UNDEFINED,
    Failure,
    text_of,
    to_condition,
    to_index,
)

Evaluate = Callable[[Run, Any], Any]
"""Gives a value in a run; the second argument is what ``@`` stands for."""

Captured = int | str | tuple[int | str, ...]
"""The key of a member, as an integer in a list; ``..`` captures all keys on its way at once."""

_DESCENT = 96
"""Steps that a value takes which ``..`` visits, beside its keys."""

Single = Callable[[Run, Any], Any]
"""A step with one result."""

Follow = Callable[[Any], Any]
"""Gives what a known way leads to, which takes no steps."""

Several = Callable[[Run, Any], Iterable[tuple[Captured, Any]]]
"""A step with several results: the members of a value that it selects, with their keys."""


def key_step(key: Evaluate) -> Single:
    """Return a step to the member whose key is computed; there ``@`` is the container."""

    def step(run: Run, value: Any) -> Any:
        return _member(run, value, key)[1]

    return step


def constant_key_step(key: Any) -> Single:
    """Return a step to the member whose key is known."""
    name = text_of(key)

    def step(_run: Run, value: Any) -> Any:
        return value.get(name, UNDEFINED) if isinstance(value, dict) else _listed(value, key)

    return step


def follow_keys(keys: Iterable[Any]) -> Follow:
    """Return what goes from a value to a member of it, from there to one of that, and so on."""
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
    """Yield a value and all that is in it, each before what is in it."""
    waiting: list[tuple[tuple[int | str, ...], Any]] = [((), value)]
    while waiting:
        keys, current = waiting.pop()
        run.spend(_DESCENT + len(keys))
        yield keys, current
        members = [((*keys, key), member) for key, member in wildcard_step(run, current)]
        waiting += reversed(members)


def union_step(keys: tuple[Evaluate, ...]) -> Several:
    """Return a step to those of some members that are there."""

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
    """Return a step to the members for which a condition holds; where it fails it does not."""

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
    """Return a step to the elements of a list from one to another.

    As in the original a start behind the end selects nothing, before negative ones are counted
    from the end: ``[1:-1]`` is empty.
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
    """Return a member with its key, UNDEFINED where it is not there."""
    selected = key(run, value)
    if isinstance(value, dict):
        run.weigh(selected)
        name = text_of(selected)
        return name, value.get(name, UNDEFINED)
    if value is None or value is UNDEFINED:
        return "", UNDEFINED
    place = _place_in(value, selected)
    return place, value[place]


def _listed(value: Any, key: Any) -> Any:
    """Return a member of what is no object."""
    return UNDEFINED if value is None or value is UNDEFINED else value[_place_in(value, key)]


def _place_in(value: Any, selected: Any) -> int:
    """Return the place in a list that a key stands for."""
    if not isinstance(value, list):
        raise Failure("only lists and objects have members")
    place = to_index(selected)
    if not 0 <= place < len(value):
        raise Failure("an index is outside of its list")
    return place


def _within(place: int, length: int) -> int:
    return max(length + place, 0) if place < 0 else min(place, length)
