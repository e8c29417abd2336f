"""Compiles a syntax tree into Python closures once, which then only run.

A lookup of a key that a map lacks raises `MissingKey`; on anything but a map it returns null.
`_tolerant` marks the positions where a missing key becomes null: both sides of ``||``, the left of
``&&``, ``!``, operands of comparisons, arguments, items of multi-selects, pipes, the sources and
elements of projections. `_forgiving` marks those where every error does but that of a limit or an
inner variable: the sources of flatten, filter and value projections. No others do that.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.engine.allowance import Exhausted
from reconciler.errors import EvaluationError
from reconciler.languages.jmespath.faults import MissingKey, Unforgiven
from reconciler.languages.jmespath.functions.signature import (
    EXPRESSION,
    Function,
    Refused,
    check,
    refusal,
)
from reconciler.languages.jmespath.limits import Run
from reconciler.languages.jmespath.syntax import Tree
from reconciler.languages.jmespath.values import equal, is_falsy, is_number, plain

Node = Callable[[Any, Run], Any]
"""Evaluates one part of an expression on the current value."""


class WrongCall(Exception):
    """A part of an expression can never work: a call, a slice, or a stray ``&``."""

    def __init__(self, function: str, reason: str) -> None:
        super().__init__(reason)
        self.function = function


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """The dependencies of compiling a tree.

    Attributes:
        functions: The functions that may be called.
        texts: Returns the closure of a quoted part whose text is only known at evaluation.
        wrong: Returns the closure in place of a part that can never work, or raises.
    """

    functions: Mapping[str, Function]
    texts: Callable[[Any], Node | None]
    wrong: Callable[[WrongCall], Node]


def build(tree: Tree, to: Build) -> Node:
    """Compile a tree; `Build.wrong` handles a function that is unknown or called wrongly."""
    try:
        return _BUILDERS[tree["type"]](tree, to)
    except WrongCall as error:
        return to.wrong(error)


def path(keys: Sequence[str]) -> Node:
    """Return the closure of ``a.b.c``, the most common part of expressions."""
    if len(keys) == 1:
        return _field(keys[0])
    steps = tuple(keys)

    def read(value: Any, _run: Run) -> Any:
        for key in steps:
            if not isinstance(value, dict):
                return None
            try:
                value = value[key]
            except KeyError:
                raise MissingKey(key) from None
        return value

    return read


def _field(key: str) -> Node:
    def read(value: Any, _run: Run) -> Any:
        if not isinstance(value, dict):
            return None
        try:
            return value[key]
        except KeyError:
            raise MissingKey(key) from None

    return read


def _tolerant(node: Node) -> Node:
    def run_node(value: Any, run: Run) -> Any:
        try:
            return node(value, run)
        except MissingKey:
            return None

    return run_node


def _forgiving(node: Node) -> Node:
    def run_node(value: Any, run: Run) -> Any:
        try:
            return node(value, run)
        except (Unforgiven, Exhausted):
            raise
        except EvaluationError:
            return None

    return run_node


def _build_field(tree: Tree, to: Build) -> Node:
    text = to.texts(tree["value"])
    if text is None:
        return _field(plain(tree["value"]))

    def read(value: Any, run: Run) -> Any:
        key = text(value, run)
        return _field(key)(value, run)

    return read


def _build_chain(tree: Tree, to: Build) -> Node:
    steps: list[Node] = []
    keys: list[str] = []
    for child in tree["children"]:
        if child["type"] == "field" and to.texts(child["value"]) is None:
            keys.append(plain(child["value"]))
            continue
        if keys:
            steps.append(path(keys))
            keys = []
        steps.append(build(child, to))
    if keys:
        steps.append(path(keys))
    return _sequence(steps)


def _sequence(steps: Sequence[Node]) -> Node:
    if len(steps) == 1:
        return steps[0]
    if len(steps) == 2:  # noqa: PLR2004 - the common case, without a loop
        return _then(steps[0], steps[1])

    def run_steps(value: Any, run: Run) -> Any:
        for step in steps:
            value = step(value, run)
        return value

    return run_steps


def _then(first: Node, second: Node) -> Node:
    return lambda value, run: second(first(value, run), run)


def _build_pipe(tree: Tree, to: Build) -> Node:
    left, right = (_tolerant(build(child, to)) for child in tree["children"])
    return _then(left, right)


def _build_identity(_tree: Tree, _to: Build) -> Node:
    return lambda value, _run: value


def _build_literal(tree: Tree, to: Build) -> Node:
    text = to.texts(tree["value"])
    if text is not None:
        return text
    constant = plain(tree["value"])
    return lambda _value, _run: constant


def chain(steps: Sequence[str | int]) -> Node:
    """Return the closure of ``a.b[0].c``."""
    return _sequence([_field(step) if isinstance(step, str) else _index(step) for step in steps])


def _build_index(tree: Tree, _to: Build) -> Node:
    return _index(tree["value"])


def _index(position: int) -> Node:
    def read(value: Any, _run: Run) -> Any:
        if isinstance(value, list) and -len(value) <= position < len(value):
            return value[position]
        return None

    return read


def _build_slice(tree: Tree, _to: Build) -> Node:
    start, end, step = tree["children"]
    if step == 0:
        raise WrongCall("", "the step of a slice cannot be 0")
    part = slice(start, end, step)

    def read(value: Any, run: Run) -> Any:
        if not isinstance(value, list):
            return None
        run.spend(len(value))
        return value[part]

    return read


def _build_or(tree: Tree, to: Build) -> Node:
    left, right = (_tolerant(build(child, to)) for child in tree["children"])

    def choose(value: Any, run: Run) -> Any:
        first = left(value, run)
        return right(value, run) if is_falsy(first) else first

    return choose


def _build_and(tree: Tree, to: Build) -> Node:
    left, right = (build(child, to) for child in tree["children"])
    left = _tolerant(left)

    def choose(value: Any, run: Run) -> Any:
        first = left(value, run)
        return first if is_falsy(first) else right(value, run)

    return choose


def _build_not(tree: Tree, to: Build) -> Node:
    operand = _tolerant(build(tree["children"][0], to))
    return lambda value, run: is_falsy(operand(value, run))


def _build_comparator(tree: Tree, to: Build) -> Node:
    left, right = (_tolerant(build(child, to)) for child in tree["children"])
    name = tree["value"]
    if name == "eq":
        return lambda value, run: equal(left(value, run), right(value, run), run)
    if name == "ne":
        return lambda value, run: not equal(left(value, run), right(value, run), run)
    compare = _ORDERINGS[name]

    def order(value: Any, run: Run) -> Any:
        first, second = left(value, run), right(value, run)
        return compare(first, second) if is_number(first) and is_number(second) else None

    return order


def _build_list(tree: Tree, to: Build) -> Node:
    items = [_tolerant(build(child, to)) for child in tree["children"]]

    def collect(value: Any, run: Run) -> Any:
        if value is None:
            return None
        run.spend(len(items))
        return [item(value, run) for item in items]

    return collect


def _build_hash(tree: Tree, to: Build) -> Node:
    pairs = [
        (_build_literal(pair, to), _tolerant(build(pair["children"][0], to)))
        for pair in tree["children"]
    ]

    def collect(value: Any, run: Run) -> Any:
        if value is None:
            return None
        run.spend(len(pairs))
        return {key(value, run): item(value, run) for key, item in pairs}

    return collect


def _build_projection(tree: Tree, to: Build) -> Node:
    source, each = (_tolerant(build(child, to)) for child in tree["children"])
    if tree["children"][1]["type"] == "identity":
        return lambda value, run: _without_nulls(source(value, run), run)
    return lambda value, run: _project(source(value, run), each, run)


def _build_value_projection(tree: Tree, to: Build) -> Node:
    source, each = (build(child, to) for child in tree["children"])
    source, each = _forgiving(source), _tolerant(each)

    def project(value: Any, run: Run) -> Any:
        found = source(value, run)
        if not isinstance(found, dict):
            return None
        return _project([found[key] for key in sorted(found)], each, run)

    return project


def _build_filter(tree: Tree, to: Build) -> Node:
    source, each, condition = (build(child, to) for child in tree["children"])
    source, each, condition = _forgiving(source), _tolerant(each), _tolerant(condition)

    def project(value: Any, run: Run) -> Any:
        found = source(value, run)
        if not isinstance(found, list):
            return None
        run.spend(len(found))
        kept = [item for item in found if not is_falsy(condition(item, run))]
        return _project(kept, each, run)

    return project


def _build_flatten(tree: Tree, to: Build) -> Node:
    source = _forgiving(build(tree["children"][0], to))

    def flatten(value: Any, run: Run) -> Any:
        found = source(value, run)
        if not isinstance(found, list):
            return None
        result: list[Any] = []
        for item in found:
            if isinstance(item, list):
                run.spend(len(item))
                result.extend(item)
            else:
                result.append(item)
        run.spend(len(found))
        return result

    return flatten


def _project(items: Any, each: Node, run: Run) -> Any:
    if not isinstance(items, list):
        return None
    run.spend(len(items))
    results = (each(item, run) for item in items)
    return [result for result in results if result is not None]


def _without_nulls(items: Any, run: Run) -> Any:
    if not isinstance(items, list):
        return None
    run.spend(len(items))
    return [item for item in items if item is not None]


def _build_function(tree: Tree, to: Build) -> Node:
    name, children = tree["value"], tree["children"]
    function = to.functions.get(name)
    if function is None:
        raise WrongCall(name, f"unknown function: {name}")
    if not function.fits(len(children)):
        wanted = f"{len(function.takes)}{' or more' if function.variadic else ''}"
        raise WrongCall(
            name, f"incorrect number of args: {name} takes {wanted}, not {len(children)}"
        )
    arguments = [
        _build_argument(child, to, function, position=position, name=name)
        for position, child in enumerate(children)
    ]
    call = function.call

    def run_with_one(value: Any, run: Run) -> Any:
        try:
            return call(run.called(), arguments[0](value, run))
        except Refused as refused:
            raise refusal(name, str(refused)) from None

    def run_call(value: Any, run: Run) -> Any:
        try:
            return call(run.called(), *[argument(value, run) for argument in arguments])
        except Refused as refused:
            raise refusal(name, str(refused)) from None

    return run_with_one if len(arguments) == 1 else run_call


def _build_argument(
    tree: Tree, to: Build, function: Function, *, position: int, name: str
) -> Node:
    types = function.accepted(position)
    wants_expression = types == (EXPRESSION,)
    if (tree["type"] == "expref") != wants_expression:
        word = (
            "must be an expression, written &..." if wants_expression else "cannot be written &..."
        )
        raise WrongCall(name, f"argument {position + 1} of {name} {word}")
    if wants_expression:
        apply = _tolerant(build(tree["children"][0], to))
        return lambda _value, _run: apply
    argument = _tolerant(build(tree, to))
    if types == ("any",):
        return argument

    def checked(value: Any, run: Run) -> Any:
        found = argument(value, run)
        check(found, function, position=position, name=name)
        if found.__class__ is str:
            run.read(len(found))
        return found

    return checked


def _build_stray_expression(_tree: Tree, _to: Build) -> Node:
    raise WrongCall("", "& stands only before an argument of a function")


_ORDERINGS: dict[str, Callable[[Any, Any], bool]] = {
    "lt": operator.lt,
    "lte": operator.le,
    "gt": operator.gt,
    "gte": operator.ge,
}

_BUILDERS: dict[str, Callable[[Tree, Build], Node]] = {
    "and_expression": _build_and,
    "comparator": _build_comparator,
    "current": _build_identity,
    "expref": _build_stray_expression,
    "field": _build_field,
    "filter_projection": _build_filter,
    "flatten": _build_flatten,
    "function_expression": _build_function,
    "identity": _build_identity,
    "index": _build_index,
    "index_expression": _build_chain,
    "literal": _build_literal,
    "multi_select_dict": _build_hash,
    "multi_select_list": _build_list,
    "not_expression": _build_not,
    "or_expression": _build_or,
    "pipe": _build_pipe,
    "projection": _build_projection,
    "slice": _build_slice,
    "subexpression": _build_chain,
    "value_projection": _build_value_projection,
}
