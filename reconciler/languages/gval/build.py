"""Compiles the tree of an expression into closures that evaluate it."""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from reconciler.engine.values.regexes import Regex, compile_regex, is_found
from reconciler.languages.gotemplate.quoting import quote
from reconciler.languages.gval.functions import FUNCTIONS
from reconciler.languages.gval.limits import Run, weigh
from reconciler.languages.gval.operators import DECIDED, INFIX, PREFIX, REGEX
from reconciler.languages.gval.selectors import (
    Captured,
    Evaluate,
    Follow,
    Several,
    constant_key_step,
    descent_step,
    filter_step,
    follow_keys,
    key_step,
    slice_step,
    union_step,
    wildcard_step,
)
from reconciler.languages.gval.syntax import (
    Array,
    Call,
    Choice,
    Constant,
    Descent,
    Entry,
    Filter,
    Infix,
    Key,
    Mapping,
    Node,
    Path,
    Placeholder,
    Prefix,
    Script,
    SeveralStep,
    SingleStep,
    Slice,
    Union,
    Variable,
    Wildcard,
)
from reconciler.languages.gval.values import UNDEFINED, Failure, text_of

Hit = tuple[tuple[Captured, ...], Any]
Hits = Callable[[Run, Any], Iterator[Hit]]

_COMPILING = 1024
"""Steps for compiling a regular expression, in addition to those for each instruction."""
_SEARCH = 192
"""Steps for a regular expression, in addition to those of its search."""
_OPERATION = 64
"""Steps of an operator or a function, in addition to those of its operands."""
_INDEX: Final = re.compile(r"[+-]?[0-9]{1,9}")


def build(node: Node) -> Evaluate:
    """Return the closure that evaluates a part of an expression."""
    return _BUILDERS[type(node)](node)


def build_follow(node: Node) -> Follow | None:
    """Return a function for a path of known keys from the root, None for other expressions."""
    if not (isinstance(node, Path) and node.from_root):
        return None
    keys = [
        step.key.value
        for step in node.steps
        if isinstance(step, Key) and isinstance(step.key, Constant)
    ]
    return follow_keys(keys) if len(keys) == len(node.steps) else None


# -- operators --------------------------------------------------------------------------------


def _infix(node: Infix) -> Evaluate:
    if node.operator in REGEX:
        return _regex(node)
    operation = INFIX[node.operator]
    left, right = build(node.left), build(node.right)
    if node.operator in DECIDED:
        decides = DECIDED[node.operator]

        def short(run: Run, current: Any) -> Any:
            run.spend(_OPERATION)
            first = left(run, current)
            return first if decides(first) else operation(first, right(run, current))

        return short

    def evaluate(run: Run, current: Any) -> Any:
        run.spend(_OPERATION)
        first, second = left(run, current), right(run, current)
        weigh(first, run.spend)
        weigh(second, run.spend)
        return run.made(operation(first, second))

    return evaluate


def _regex(node: Infix) -> Evaluate:
    wanted = node.operator == "=~"
    subject = build(node.left)
    if isinstance(node.right, Constant):
        try:
            regex = compile_regex(text_of(node.right.value))
        except ValueError as error:
            return _failing(subject, f"{node.operator} {error}")
        return lambda run, current: _found(run, regex, subject(run, current)) is wanted
    pattern = build(node.right)

    def evaluate(run: Run, current: Any) -> bool:
        text, source = subject(run, current), pattern(run, current)
        weigh(source, run.spend)
        run.spend(_COMPILING)
        try:
            computed = compile_regex(text_of(source))
        except ValueError:
            raise Failure("a computed regular expression is invalid") from None
        run.spend(8 * computed.programsize)
        return _found(run, computed, text) is wanted

    return evaluate


def _failing(operand: Evaluate, reason: str) -> Evaluate:
    """Return a closure that evaluates an operand and then fails."""

    def evaluate(run: Run, current: Any) -> Any:
        operand(run, current)
        raise Failure(reason)

    return evaluate


def _found(run: Run, regex: Regex, subject: Any) -> bool:
    weigh(subject, run.spend)
    text = text_of(subject)
    run.spend(_SEARCH)
    try:
        return is_found(regex, text, run.spend)
    except UnicodeError:
        raise Failure("a string is not valid Unicode") from None


def _prefix(node: Prefix) -> Evaluate:
    operation, operand = PREFIX[node.operator], build(node.operand)
    return lambda run, current: operation(operand(run, current))


def _choice(node: Choice) -> Evaluate:
    condition, yes, no = build(node.condition), build(node.yes), build(node.no)

    def evaluate(run: Run, current: Any) -> Any:
        found = condition(run, current)
        return no(run, current) if found is None or found is False else yes(run, current)

    return evaluate


# -- values -----------------------------------------------------------------------------------


def _constant(node: Constant) -> Evaluate:
    value = node.value
    return lambda _run, _current: value


def _call(node: Call) -> Evaluate:
    name, arguments = node.name, tuple(map(build, node.arguments))
    function = FUNCTIONS.get(name)

    def evaluate(run: Run, current: Any) -> Any:
        run.spend(_OPERATION)
        values = [argument(run, current) for argument in arguments]
        if function is None:
            raise Failure(f"there is no function {name}")
        if len(values) != 1:
            raise Failure(f"{name} takes one argument")
        return function(values[0])

    return evaluate


def _variable(node: Variable) -> Evaluate:
    keys = tuple(map(build, node.keys))

    def evaluate(run: Run, current: Any) -> Any:
        names = [_key_text(run, key(run, current)) for key in keys]
        value = run.root
        for name in names:
            value = _named(value, name)
        return value

    return evaluate


def _key_text(run: Run, key: Any) -> str:
    """Return the text of a computed key, which may be any value."""
    weigh(key, run.spend)
    return str(run.made(text_of(key)))


def _named(value: Any, name: str) -> Any:
    """Return the member of a name without ``$``, or the list itself if the name is no index."""
    if isinstance(value, dict):
        return value.get(name)
    if not isinstance(value, list):
        raise Failure("the path of a name without $ does not exist")
    index = int(name) if _INDEX.fullmatch(name) else -1
    return value[index] if 0 <= index < len(value) else value


def _array(node: Array) -> Evaluate:
    items = tuple(map(build, node.items))

    def evaluate(run: Run, current: Any) -> list[Any]:
        run.visit(len(items))
        return [item(run, current) for item in items]

    return evaluate


Put = Callable[[Run, Any, dict[str, Any]], None]


def _mapping(node: Mapping) -> Evaluate:
    entries = tuple(map(_entry, node.entries))

    def evaluate(run: Run, current: Any) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for put in entries:
            put(run, current, made)
        return made

    return evaluate


def _entry(entry: Entry) -> Put:
    key = build(entry.key)
    if not (entry.captures and isinstance(entry.value, Path)):
        value = build(entry.value)

        def put(run: Run, current: Any, made: dict[str, Any]) -> None:
            found = value(run, current)
            made[_key_text(run, key(run, current))] = found

        return put
    hits = build_hits(entry.value)

    def put_each(run: Run, current: Any, made: dict[str, Any]) -> None:
        outer = run.capture(())
        for captured, member in hits(run, current):
            run.capture(captured)
            made[_key_text(run, key(run, current))] = member
        run.capture(outer)

    return put_each


def _placeholder(node: Placeholder) -> Evaluate:
    index = node.index

    def evaluate(run: Run, _current: Any) -> Any:
        if index is None:
            return "$" + "".join(f"[{quote(str(key))}]" for key in flat(run.captured))
        if index >= len(run.captured):
            raise Failure(f"the path captures no key #{index}")
        found = run.captured[index]
        return list(map(str, found)) if isinstance(found, tuple) else str(found)

    return evaluate


# -- paths ------------------------------------------------------------------------------------


def _path(path: Path) -> Evaluate:
    steps = [_single(step) for step in path.steps if isinstance(step, SingleStep)]
    if len(steps) < len(path.steps):
        hits = build_hits(path)
        return lambda run, current: [value for _, value in hits(run, current)]
    from_root = path.from_root

    def evaluate(run: Run, current: Any) -> Any:
        value = run.root if from_root else current
        for step in steps:
            value = step(run, value)
        return value

    return evaluate


def build_hits(path: Path) -> Hits:
    """Return a closure that yields the hits of a path in document order, each with its keys.

    Values that cannot be computed or are undefined are no hits.
    """
    stages = list(_stages(path))

    def evaluate(run: Run, current: Any) -> Iterator[Hit]:
        found: Iterator[Hit] = iter([((), run.root if path.from_root else current)])
        for several, singles in stages:
            found = _stage(run, found, several, singles)
        return found

    return evaluate


Stage = tuple[Several | None, tuple[Evaluate, ...]]


def _stages(path: Path) -> Iterator[Stage]:
    """Yield each step with several results, with the single-result steps after it."""
    several: Several | None = None
    singles: list[Evaluate] = []
    for step in path.steps:
        if isinstance(step, SingleStep):
            singles.append(_single(step))
            continue
        yield several, tuple(singles)
        several, singles = _several(step), []
    yield several, tuple(singles)


def _stage(
    run: Run, found: Iterator[Hit], several: Several | None, singles: tuple[Evaluate, ...]
) -> Iterator[Hit]:
    for captured, value in found:
        if several is None:
            members: Iterator[Hit] = iter([(captured, value)])
        else:
            members = (((*captured, key), member) for key, member in several(run, value))
        for keys, member in members:
            try:
                reached = member
                for step in singles:
                    reached = step(run, reached)
            except Failure:
                continue
            if reached is not UNDEFINED:
                yield keys, reached


def _single(step: SingleStep) -> Evaluate:
    match step:
        case Key(Constant(value)):
            return constant_key_step(value)
        case Key(key):
            return key_step(build(key))
        case Script(expression):
            return build(expression)


def _several(step: SeveralStep) -> Several:
    match step:
        case Wildcard():
            return wildcard_step
        case Descent():
            return descent_step
        case Union(keys):
            return union_step(tuple(map(build, keys)))
        case Filter(condition):
            return filter_step(build(condition))
        case Slice(start, end, stride):
            return slice_step(build(start), build(end), build(stride))


_BUILDERS: Final[dict[type, Callable[[Any], Evaluate]]] = {
    Array: _array,
    Call: _call,
    Choice: _choice,
    Constant: _constant,
    Infix: _infix,
    Mapping: _mapping,
    Path: _path,
    Placeholder: _placeholder,
    Prefix: _prefix,
    Variable: _variable,
}


def flat(captured: tuple[Captured, ...]) -> Iterator[int | str]:
    """Yield the captured keys, those of ``..`` one by one."""
    for key in captured:
        if isinstance(key, tuple):
            yield from key
        else:
            yield key
