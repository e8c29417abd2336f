"""The operands of a condition: text and values with variables, compiled once."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from reconciler.dialects.kyverno.template import Check, Template, compile_template
from reconciler.engine.context import NOTHING_BOUND, Context
from reconciler.engine.values.wildcard import escape, has_wildcard
from reconciler.errors import EvaluationError

# These names hold data of objects and requests, whose wildcards are plain text. Context entries
# are not among them: they are the author's own, and often hold lists of patterns.
_DATA_ROOT: Final = re.compile(
    r"request|target|images|serviceAccountName|serviceAccountNamespace|element(Index)?[0-9]*"
)
# A default such as ``|| '*'`` is the author's text, but its result looks like data.
_TYPED_WILDCARD: Final = re.compile(r"'[^']*[*?][^']*'|`[^`]*[*?][^`]*`")

Resolve = Callable[[Context], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """A side of a condition; ``resolve`` returns its value or raises EvaluationError."""

    templates: tuple[Template, ...]
    resolve: Resolve


def compile_operand(raw: Any, *, location: str, check: Check | None = None) -> Operand:
    """Compile a key or a value.

    Raises:
        InvalidPolicy: An expression in it is wrong.
    """
    template = compile_template(raw, location=location, check=check)
    if template.constant:
        value = template.render(NOTHING_BOUND)
        return Operand(templates=(template,), resolve=lambda _context: value)
    if not _is_data(template):
        return Operand(templates=(template,), resolve=template.render)
    if isinstance(raw, list):
        return _compile_items(raw, location)
    whole = template.parts is None or len(template.parts) == 1
    resolve = _resolve_data(template) if whole else _resolve_text(template)
    return Operand(templates=(template,), resolve=resolve)


def _is_data(template: Template) -> bool:
    """Return whether a template yields only data of objects and requests."""
    if not template.roots or not all(map(_DATA_ROOT.fullmatch, template.roots)):
        return False
    return not any(_TYPED_WILDCARD.search(item.source) for item in template.expressions)


def _compile_items(raw: list[Any], location: str) -> Operand:
    items = [
        compile_operand(item, location=f"{location}[{index}]") for index, item in enumerate(raw)
    ]
    return Operand(
        templates=tuple(template for item in items for template in item.templates),
        resolve=lambda context: [item.resolve(context) for item in items],
    )


def _resolve_data(template: Template) -> Resolve:
    return lambda context: _escape_all(template.render(context))


def _resolve_text(template: Template) -> Resolve:
    """Return a function that escapes values, but keeps wildcards of the text around variables."""

    def resolve(context: Context) -> Any:
        text = template.render(context)
        if not has_wildcard(text):
            return text
        try:
            return template.render_literal(context, escape=escape)
        except EvaluationError:  # a value is null, a map or a list, which is no pattern
            return escape(text)

    return resolve


def _escape_all(value: Any) -> Any:
    match value:
        case str():
            return escape(value)
        case list():
            return [_escape_all(item) for item in value]
        case dict():
            return {key: _escape_all(item) for key, item in value.items()}
        case _:
            return value
