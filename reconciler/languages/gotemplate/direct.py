"""Templates of nothing but texts and fields, rendered without an evaluator.

Most templates are of that sort, and most fields are texts. Whatever is otherwise, as a field that
is not there or steps that do not suffice, is left to the evaluator, which begins anew: until then
nothing was counted.
"""

from typing import Any

from reconciler.engine.allowance import STEPS_OF_ELEMENT, Allowance
from reconciler.languages.gotemplate.limits import RENDERING, Limits
from reconciler.languages.gotemplate.nodes import Action, Command, Field, Node, Pipe, Text
from reconciler.languages.gotemplate.values import Pointer, Record

Part = str | tuple[str, ...]
"""A text, or the names that lead to one."""


def parts_of(body: tuple[Node, ...]) -> tuple[Part, ...] | None:
    """Return the parts of such a template, None where it is another."""
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
    """Return what the parts give, and count what it costs; None leaves it to the evaluator."""
    pieces: list[str] = []
    steps = length = 0
    for part in parts:
        steps += STEPS_OF_ELEMENT
        if isinstance(part, str):
            text: str | None = part
        else:
            steps += STEPS_OF_ELEMENT
            text = _text_at(data, part)
        if text is None:
            return None
        length += len(text)
        # Each write is counted with all that stands before it.
        steps += length
        pieces.append(text)
    left = allowance.left - RENDERING
    if length > limits.output or left <= 0 or steps > min(limits.steps, left):
        return None
    allowance.take(RENDERING + steps)
    return "".join(pieces)


def _text_at(value: Any, names: tuple[str, ...]) -> str | None:
    """Return the text that names lead to, None where anything else is there."""
    for name in names:
        if type(value) is Pointer:
            value = value.target
        if type(value) is Record:
            value = value.fields
        elif type(value) is not dict:
            return None
        value = value.get(name)
    return value if type(value) is str else None
