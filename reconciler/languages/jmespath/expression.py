"""A compiled expression."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from reconciler.engine.allowance import UNLIMITED, Allowance
from reconciler.engine.context import EVERYTHING
from reconciler.errors import EvaluationError
from reconciler.languages.jmespath.functions.registry import REGISTRY
from reconciler.languages.jmespath.limits import DEFAULT_LIMITS, Limits, Run
from reconciler.languages.jmespath.reads import find_reads
from reconciler.languages.jmespath.runtime import Build, Node, WrongCall, build
from reconciler.languages.jmespath.syntax import Source, Tree, parse, quoted

_MULTIPLIERS = frozenset({"multi_select_list", "multi_select_dict", "function_expression"})
_TOO_DEEP = "the data is nested too deeply"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """A compiled expression, which can be evaluated on any data, any number of times.

    Attributes:
        source: Its text.
        roots: The fields of the root that it can read; `EVERYTHING` where it uses all of it.
        reads: Field paths from the root, each as far as known at compile time; a path ends where
            the whole value there is used. The empty path is the root itself.
        functions: The functions that it calls.
        dynamic: Whether `roots` is incomplete, because data decides what is read from the root.
        faults: Why parts of it can never be evaluated; only filled where the caller of the
            compiler asked for it. An evaluation that reaches such a part fails.
    """

    source: str
    roots: frozenset[str]
    reads: frozenset[tuple[str, ...]]
    functions: frozenset[str]
    dynamic: bool = False
    faults: tuple[str, ...] = ()
    limits: Limits = field(default=DEFAULT_LIMITS, repr=False)
    node: Node = field(repr=False, compare=False)
    shares: bool = field(repr=False, compare=False)

    def search(self, data: Any, allowance: Allowance = UNLIMITED) -> Any:
        """Evaluate on `data`, with an allowance that may be shared.

        The result may share parts with `data`: a caller that changes it has to copy it first.

        Raises:
            EvaluationError: A key is missing (`MissingKey`), a type is wrong, a limit is exceeded.
        """
        run = Run(data, self.limits, allowance)
        try:
            return self.resolve(run)
        finally:
            run.settle()

    def resolve(self, run: Run) -> Any:
        """Evaluate on the root of `run`, with the rest of its allowance."""
        try:
            value = self.node(run.root, run)
        except RecursionError:
            raise EvaluationError(_TOO_DEEP) from None
        if self.shares:
            run.measure(value)
        return value


def compile_expression(
    source: str, *, location: str = "", limits: Limits = DEFAULT_LIMITS, late: bool = False
) -> Expression:
    """Compile a JMESPath expression.

    Args:
        late: Record wrong calls in `Expression.faults` instead of raising.

    Raises:
        InvalidPolicy: It cannot be parsed, calls a function that is not supported or with the
            wrong arguments, or is too large; the reason names the column.
    """
    text = Source(text=source, shown=source, location=location)
    return from_tree(parse(text, limits), text, limits=limits, late=late)


def from_tree(
    tree: Tree,
    source: Source,
    *,
    limits: Limits,
    texts: Callable[[Any], Node | None] | None = None,
    unknown: Callable[[Any], bool] | None = None,
    late: bool = False,
) -> Expression:
    """Compile a tree.

    Args:
        texts: Returns the closure of a quoted part whose text depends on data, else None.
        unknown: Returns whether a field's name is a stand-in; None where there are none.
        late: See `compile_expression`.
    """
    texts = texts or _no_text
    faults: list[str] = []

    def wrong(error: WrongCall) -> Node:
        position = _position(source.text, error.function)
        if not late:
            source.refuse(position, str(error))
        faults.append(source.said_of(position, str(error)))
        return _failing(faults[-1])

    node = build(tree, Build(functions=REGISTRY, texts=texts, wrong=wrong))

    def known(name: Any) -> bool:
        return texts(name) is None and not (unknown and unknown(name))

    reads, functions = find_reads(tree, known=known)
    roots = frozenset(path[0] if path else EVERYTHING for path in reads)
    return Expression(
        source=source.shown,
        roots=roots,
        reads=reads,
        functions=functions,
        dynamic=EVERYTHING in roots and texts is not _no_text,
        faults=tuple(faults),
        limits=limits,
        node=node,
        shares=_multiplies(tree),
    )


def with_inner(outer: Expression, inner: Iterable[Expression]) -> Expression:
    """Return `outer` with the reads, functions and faults of its inner expressions added."""
    everyone = (outer, *inner)
    return replace(
        outer,
        roots=frozenset().union(*(one.roots for one in everyone)),
        reads=frozenset().union(*(one.reads for one in everyone)),
        functions=frozenset().union(*(one.functions for one in everyone)),
        dynamic=any(one.dynamic for one in everyone),
        faults=tuple(fault for one in everyone for fault in one.faults),
    )


def _no_text(_value: Any) -> None:
    return None


def _failing(text: str) -> Node:
    def fail(_value: Any, _run: Run) -> Any:
        raise EvaluationError(text)

    return fail


def _position(source: str, function: str) -> int:
    """Return the position of a function call outside of quotes; the tree has no positions."""
    if not function:
        return 0
    masked = list(source)
    for _, start, end in quoted(source):
        masked[start:end] = " " * (end - start)
    found = re.search(rf"(?<![A-Za-z0-9_]){re.escape(function)}\s*\(", "".join(masked))
    return found.start() if found else 0


def _multiplies(tree: Tree) -> bool:
    """Return whether a result may contain one part of the data several times."""
    waiting: list[Any] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if node["type"] in _MULTIPLIERS:
                return True
            waiting.extend(node["children"])
    return False
