"""Findings on variables that fail at a target without a label or annotation, a common mistake."""

from collections.abc import Iterator
from typing import Any

from reconciler.dialects.finding import Finding, warning
from reconciler.dialects.kyverno.parts import parts_of
from reconciler.dialects.kyverno.readers import of_edits, of_target
from reconciler.dialects.kyverno.targets import Target
from reconciler.dialects.kyverno.template import Template
from reconciler.engine.context import NOTHING_BOUND
from reconciler.engine.program import Program
from reconciler.errors import EvaluationError
from reconciler.languages.jmespath import Expression

_Path = tuple[str, ...]
_OPTIONAL: dict[_Path, str] = {
    ("target", "metadata", "labels"): "label",
    ("target", "metadata", "annotations"): "annotation",
}
_ROOT = 3
_PRESENT = "1"
"""A value that functions on text, numbers and versions accept."""


def default_findings(program: Program) -> Iterator[Finding]:
    """Yield the variables that fail at a target without a certain label or annotation."""
    parts = parts_of(program)
    if not parts.targets:
        return
    asked = frozenset.intersection(*map(_asked, parts.targets))
    readers = [*of_edits(parts.edits)]
    for target in parts.targets:
        readers += of_target(target)
    for reader in readers:
        # The list of a foreach has no location of its own, and rarely reads labels.
        if not isinstance(reader, Template):
            continue
        for expression, place in reader.placed():
            path = _without_default(expression)
            if path and path not in asked:
                yield _finding(expression, place, path)


def _finding(expression: Expression, place: str, path: _Path) -> Finding:
    what = _OPTIONAL[path[:_ROOT]]
    name, default = path[_ROOT:], "''"
    if not name:
        default = "`{}`"
    return warning(
        "no-default",
        place,
        f"{{{{ {expression.source} }}}} fails for a target without"
        f" {f'the {what} {name[0]}' if name else f'{what}s'}, and the target is not changed",
        f"give a default: {{{{ {expression.source} || {default} }}}}",
    )


def _without_default(expression: Expression) -> _Path:
    """Return a path whose absence makes the expression fail; empty where there is none."""
    if expression.dynamic or () in expression.reads:
        return ()
    for path in sorted(expression.reads):
        if path[:_ROOT] not in _OPTIONAL:
            continue
        if _works(expression, None) and not _works(expression, path):
            return path
    return ()


def _works(expression: Expression, absent: _Path | None) -> bool:
    data: dict[str, Any] = {"target": {"metadata": {}}}
    for path in sorted(expression.reads):
        if path != absent:
            _put(data, path)
    try:
        expression.search(data)
    except EvaluationError:
        return False
    return True


def _put(data: dict[str, Any], path: _Path) -> None:
    for step in path[:-1]:
        child = data.setdefault(step, {})
        if not isinstance(child, dict):
            return
        data = child
    data.setdefault(path[-1], {_PRESENT: _PRESENT} if path in _OPTIONAL else _PRESENT)


def _asked(target: Target) -> frozenset[_Path]:
    """Return the paths that the target's own preconditions and its selector check already."""
    found = frozenset[_Path]()
    if target.preconditions is not None:
        found |= {
            path
            for template in target.preconditions.templates
            for expression in template.expressions
            if not _without_default(expression)
            for path in expression.reads
        }
    return found.union(_selected(target))


def _selected(target: Target) -> Iterator[_Path]:
    """Yield the labels that each target has, because the selector requires them."""
    if target.selector is None or not target.selector.constant:
        return
    selector = target.selector.render(NOTHING_BOUND)
    names = list(selector.get("matchLabels") or ())
    names += [
        wanted["key"]
        for wanted in selector.get("matchExpressions") or ()
        if wanted["operator"] in ("In", "Exists")
    ]
    yield from (("target", "metadata", "labels", name) for name in names)
