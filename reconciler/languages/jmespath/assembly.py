"""Assembles compiled documents: constant parts are kept, all others are made anew."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.errors import EvaluationError
from reconciler.languages.jmespath.limits import Run
from reconciler.languages.jmespath.values import copy_value

Make = Callable[[Run], Any]
"""Makes a part of a document; the result belongs to the caller, which may change it."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A part of a document without variables."""

    value: Any


Made = Make | Constant


def from_items(items: Sequence[Made]) -> Made:
    """Assemble a list."""
    if all(isinstance(item, Constant) for item in items):
        return Constant([item.value for item in items if isinstance(item, Constant)])
    makers = [maker(item) for item in items]
    return lambda run: [make(run) for make in makers]


def from_entries(entries: Sequence[tuple[Made, Made]], at: str) -> Made:
    """Assemble a map at the path `at` from its entries, ``(key, value)``."""
    base: dict[str, Any] = {}
    rest: list[tuple[str, Make]] = []
    constant = True
    for name, value in entries:
        if not isinstance(name, Constant) or name.value in base:
            return _from_open_entries(entries, at)
        is_constant = isinstance(value, Constant)
        constant = constant and is_constant
        base[name.value] = value.value if isinstance(value, Constant) else None
        if not is_constant or isinstance(base[name.value], dict | list):
            rest.append((name.value, maker(value)))
    if constant:
        return Constant(base)

    def make(run: Run) -> dict[str, Any]:
        result = base.copy()
        for name, make_value in rest:
            result[name] = make_value(run)
        return result

    return make


def _from_open_entries(entries: Sequence[tuple[Made, Made]], at: str) -> Make:
    makers = [(maker(name), maker(value)) for name, value in entries]

    def make(run: Run) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for make_name, make_value in makers:
            name = make_name(run)
            if name in result:
                where = f" at path {at}" if at else ""
                msg = f'two keys become "{name}" after substituting variables{where}'
                raise EvaluationError(msg)
            result[name] = make_value(run)
        return result

    return make


def key_maker(make: Make, key: str, at: str) -> Make:
    """Return the maker of a key that has variables and is written as `key`."""

    def make_key(run: Run) -> str:
        name = make(run)
        if not isinstance(name, str):
            msg = f'expected string after substituting variables in key "{key}" at path {at}'
            raise EvaluationError(msg)
        return name

    return make_key


def maker(made: Made) -> Make:
    """Return the maker of a part, also of a constant one."""
    if not isinstance(made, Constant):
        return made
    constant = made.value
    if isinstance(constant, dict | list):
        return lambda run: copy_value(constant, run)
    return lambda _run: constant
