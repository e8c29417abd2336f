"""Finds the fields that an expression reads, from its tree and without running it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from reconciler.engine.context import EVERYTHING
from reconciler.languages.jmespath.syntax import Tree
from reconciler.languages.jmespath.values import plain

Path = tuple[str, ...]
Paths = frozenset[Path]
"""The places below the root that a value may come from; empty for computed values."""

NOWHERE: Paths = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """What an expression reads.

    Attributes:
        paths: Field paths from the root; a path ends where the whole value there is used.
        functions: The functions that it calls.
    """

    paths: Paths
    functions: frozenset[str]

    @property
    def roots(self) -> frozenset[str]:
        """The first field of each path; `EVERYTHING` where the root itself is used."""
        return frozenset(path[0] if path else EVERYTHING for path in self.paths)


def find_reads(tree: Tree, *, known: Callable[[Any], bool]) -> Reads:
    """Return the reads of a tree; `known` returns whether a field's name is literal."""
    walk = _Walk(known=known)
    walk.use(tree, frozenset({()}))
    return Reads(paths=frozenset(walk.paths), functions=frozenset(walk.functions))


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
