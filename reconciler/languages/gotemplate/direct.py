"""The fast path for templates of texts and fields only, which need no evaluator.

Most templates are of this form, and most of their fields are texts. In all other cases, as with a
missing field or too few steps, the evaluator renders the template from the start: the fast path
counts no steps before it succeeds.
"""

from typing import Any

from reconciler.engine.allowance import STEPS_OF_ELEMENT, Allowance
from reconciler.languages.gotemplate.limits import RENDERING, Limits
from reconciler.languages.gotemplate.nodes import Action, Command, Field, Node, Pipe, Text
from reconciler.languages.gotemplate.values import Pointer, Record

Part = str | tuple[str, ...]
"""A text, or the names of the fields that lead to one."""


def parts_of(body: tuple[Node, ...]) -> tuple[Part, ...] | None:
    """Return the parts of a template of texts and fields, or None for any other template."""
    parts: list[Part] = []
    for node in body:
        match node:
            case Text(text=text):
                parts.append(text)
            case Action(
                pipe=Pipe(commands=(Command(operands=(Field(names=names),)),), declared=())
            ):
                parts.append(names)
            case _:
                return None
    return tuple(parts)


def render(parts: tuple[Part, ...], data: Any, limits: Limits, allowance: Allowance) -> str | None:
    """Return the rendered parts and count the cost, or None where the evaluator has to render."""
    pieces: list[str] = []
    steps = length = 0
    for part in parts:
        steps += STEPS_OF_ELEMENT
        if isinstance(part, str):
            text: str | None = part
        else:
            steps += STEPS_OF_ELEMENT + len(part)
            text = _text_at(data, part)
        if text is None:
            return None
        length += len(text)
        # As in the evaluator, each write costs the length of all output so far.
        steps += length
        pieces.append(text)
    left = allowance.left - RENDERING
    if length > limits.output or left <= 0 or steps > min(limits.steps, left):
        return None
    allowance.take(RENDERING + steps)
    return "".join(pieces)


def _text_at(value: Any, names: tuple[str, ...]) -> str | None:
    """Return the text that field names lead to, or None for any other value."""
    for name in names:
        if type(value) is Pointer:
            value = value.target
        if type(value) is Record:
            value = value.fields
        elif type(value) is not dict:
            return None
        value = value.get(name)
    return value if type(value) is str else None
