"""Compiled expressions, and compiled paths with the keys that they capture."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from reconciler.engine.allowance import UNLIMITED, Allowance
from reconciler.errors import EvaluationError, InvalidPolicy
from reconciler.languages.gval.build import Hits, build, build_follow, build_hits, flat
from reconciler.languages.gval.limits import MAX_DEPTH, MAX_SOURCE, RUN_STEPS, Run
from reconciler.languages.gval.operators import REGEX
from reconciler.languages.gval.parser import Parser
from reconciler.languages.gval.selectors import Evaluate, Follow
from reconciler.languages.gval.syntax import (
    Constant,
    Infix,
    Node,
    Path,
    Prefix,
    SyntaxFault,
    direct_parts,
)
from reconciler.languages.gval.values import Failure

_TOO_DEEP = "it is nested too deeply"

_Tree = TypeVar("_Tree")
_Built = TypeVar("_Built")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """A compiled expression, which can be evaluated any number of times.

    Attributes:
        source: Its text.
        tree: Its syntax tree, for static checks.
        follow: Evaluates a path of known keys, which most expressions are; else None.
    """

    source: str
    tree: Node
    evaluate_in: Evaluate = field(repr=False, compare=False)
    follow: Follow | None = field(default=None, repr=False, compare=False)

    def evaluate(self, data: Any, allowance: Allowance = UNLIMITED) -> Any:
        """Return its value, which may be UNDEFINED and share parts with `data`.

        Raises:
            EvaluationError: It cannot be evaluated (`Failure`), or takes too long.
        """
        if self.follow is not None:
            allowance.spend(RUN_STEPS)
            return self.follow(data)
        run = Run(data, allowance)
        try:
            return self.evaluate_in(run, None)
        except RecursionError:
            raise EvaluationError(_TOO_DEEP) from None
        finally:
            run.settle()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A value that a path leads to, with the keys that its wildcards and filters matched."""

    keys: tuple[int | str, ...]
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A compiled path whose hits are returned with their keys."""

    source: str
    tree: Path
    hits_in: Hits = field(repr=False, compare=False)

    def hits(self, data: Any, allowance: Allowance = UNLIMITED) -> tuple[Hit, ...]:
        """Return the hits of the path, in the order of the document, each place once.

        Raises:
            EvaluationError: The evaluation takes too long.
        """
        run = Run(data, allowance)
        try:
            found = {tuple(flat(keys)): value for keys, value in self.hits_in(run, None)}
        except RecursionError:
            raise EvaluationError(_TOO_DEEP) from None
        finally:
            run.settle()
        return tuple(Hit(keys=keys, value=value) for keys, value in found.items())


def compile_expression(source: str, *, location: str = "") -> Expression:
    """Compile an expression.

    Raises:
        InvalidPolicy: It cannot be parsed or is too large; the reason names the column.
    """
    tree, evaluate = _compile(source, location, Parser.expression, build)
    return Expression(source=source, tree=tree, evaluate_in=evaluate, follow=build_follow(tree))


def compile_selection(source: str, *, location: str = "") -> Selection:
    """Compile a path, and nothing but a path.

    Raises:
        InvalidPolicy: It cannot be parsed or is too large; the reason names the column.
    """
    tree, hits = _compile(source, location, Parser.path, build_hits)
    return Selection(source=source, tree=tree, hits_in=hits)


def faults_of(tree: Node) -> Iterator[str]:
    """Yield why parts of an expression fail for any data, where their literals show it."""
    found: list[Node] = []
    if _is_literal(tree, found):
        found.append(tree)
    for node in found:
        try:
            build(node)(Run(None, UNLIMITED), None)
        except EvaluationError as error:
            yield str(error)


def _is_literal(node: Any, found: list[Node]) -> bool:
    """Return whether a node contains only literals; otherwise, find the largest such nodes in it.

    To check each of them once keeps the time linear.
    """
    if isinstance(node, Constant):
        return True
    parts = tuple(direct_parts(node))
    literals = [part for part in parts if _is_literal(part, found)]
    if isinstance(node, Prefix | Infix) and len(literals) == len(parts):
        return True
    found += literals
    match node:
        case Infix(operator, _, Constant() as right) if operator in REGEX:
            found.append(Infix(operator, Constant(""), right))
    return False


def _compile(
    source: str,
    location: str,
    parse: Callable[[Parser], _Tree],
    make: Callable[[_Tree], _Built],
) -> tuple[_Tree, _Built]:
    if len(source) > MAX_SOURCE:
        _refuse(location, f"longer than {MAX_SOURCE} characters")
    try:
        tree = parse(Parser(source, MAX_DEPTH))
        return tree, make(tree)
    except SyntaxFault as error:
        _refuse(location, f"column {error.position + 1}: {error}")
    except Failure as error:
        _refuse(location, str(error))
    except RecursionError:
        _refuse(location, _TOO_DEEP)


def _refuse(location: str, reason: str) -> NoReturn:
    raise InvalidPolicy(location, f"not a select expression: {reason}")
