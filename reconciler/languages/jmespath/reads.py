"""Finds the fields that an expression reads, from its tree and without running it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from reconciler.languages.jmespath.syntax import Tree
from reconciler.languages.jmespath.values import plain

Path = tuple[str, ...]
Paths = frozenset[Path]
"""The places below the root that a value may come from; empty for computed values."""

NOWHERE: Paths = frozenset()


def find_reads(tree: Tree, *, known: Callable[[Any], bool]) -> tuple[Paths, frozenset[str]]:
    """Return the field paths that a tree reads from the root, and the functions that it calls.

    A path ends where the whole value there is used; `known` returns whether a field's name is
    literal.
    """
    walk = _Walk(known=known)
    walk.use(tree, frozenset({()}))
    return frozenset(walk.paths), frozenset(walk.functions)


@dataclass(slots=True, kw_only=True)
class _Walk:
    known: Callable[[Any], bool]
    paths: set[Path] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)

    def use(self, tree: Tree, base: Paths) -> None:
        """Record that the whole value of `tree` is used."""
        self.paths.update(self.follow(tree, base))

    def use_all(self, trees: Iterable[Tree], base: Paths) -> None:
        for tree in trees:
            self.use(tree, base)

    def follow(self, tree: Tree, base: Paths) -> Paths:
        """Return the places that the value of `tree` comes from, without recording a use."""
        step = _STEPS.get(tree["type"])
        if step is not None:
            return step(self, tree, base)
        # All other nodes compute a value from their parts.
        self.use_all(tree["children"], base)
        return NOWHERE


def _stay(_walk: _Walk, _tree: Tree, base: Paths) -> Paths:
    return base


def _nowhere(_walk: _Walk, _tree: Tree, _base: Paths) -> Paths:
    return NOWHERE


def _field(walk: _Walk, tree: Tree, base: Paths) -> Paths:
    if not walk.known(tree["value"]):
        walk.paths.update(base)
        return NOWHERE
    name = plain(tree["value"])
    return frozenset((*path, name) for path in base)


def _chain(walk: _Walk, tree: Tree, base: Paths) -> Paths:
    for child in tree["children"]:
        base = walk.follow(child, base)
    return base


def _inside(walk: _Walk, _tree: Tree, base: Paths) -> Paths:
    walk.paths.update(base)
    return NOWHERE


def _either(walk: _Walk, tree: Tree, base: Paths) -> Paths:
    left, right = tree["children"]
    # Whether the left side counts as true depends on all of it.
    first = walk.follow(left, base)
    walk.paths.update(first)
    return first | walk.follow(right, base)


def _elements(walk: _Walk, tree: Tree, base: Paths) -> Paths:
    source, *rest = tree["children"]
    walk.use(source, base)
    walk.use_all(rest, NOWHERE)
    return NOWHERE


def _call(walk: _Walk, tree: Tree, base: Paths) -> Paths:
    walk.functions.add(tree["value"])
    for child in tree["children"]:
        if child["type"] == "expref":
            # It runs on elements of another argument, which is recorded as a whole.
            walk.use(child["children"][0], NOWHERE)
        else:
            walk.use(child, base)
    return NOWHERE


_STEPS: dict[str, Callable[[_Walk, Tree, Paths], Paths]] = {
    "and_expression": _either,
    "current": _stay,
    "field": _field,
    "filter_projection": _elements,
    "flatten": _elements,
    "function_expression": _call,
    "identity": _stay,
    "index": _inside,
    "index_expression": _chain,
    "literal": _nowhere,
    "or_expression": _either,
    "pipe": _chain,
    "projection": _elements,
    "slice": _inside,
    "subexpression": _chain,
    "value_projection": _elements,
}
