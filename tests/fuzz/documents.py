"""Strategies for arbitrary JSON values and for damaged documents."""

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

TEXTS = st.text(max_size=12) | st.sampled_from(
    [
        "",
        "*",
        "?",
        "a",
        "a/b",
        "..",
        "0",
        "-1",
        "1e999",
        "{{",
        "}}",
        "{{ }}",
        "{{ request }}",
        "{{ request.object.metadata.name }}",
        "$(./a)",
        "\x00\x1b[31m",
        "\ud7ff\ue000",
        "x" * 300,
        "2026-01-01T00:00:00Z",
        "9" * 30,
    ]
)
NUMBERS = (
    st.integers(min_value=-(2**63), max_value=2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0, -1, 1, 1.0, 2**31, 2**53 + 1])
)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
KEYS = st.text(max_size=6) | st.sampled_from(
    ["name", "kind", "metadata", "spec", "labels", "data", "(a)", "+(a)", "a.b/c", "$patch"]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
MAPPINGS = st.dictionaries(KEYS, VALUES, max_size=4)

Place = tuple[Any, ...]


def places(document: Any) -> Iterator[Place]:
    """Yield the path of every value inside a document."""
    waiting: list[tuple[Place, Any]] = [((), document)]
    while waiting:
        path, value = waiting.pop()
        if path:
            yield path
        if isinstance(value, dict):
            waiting.extend(((*path, key), item) for key, item in value.items())
        elif isinstance(value, list):
            waiting.extend(((*path, at), item) for at, item in enumerate(value))


@st.composite
def damaged(draw: st.DrawFn, documents: st.SearchStrategy[Any], deepest: int = 300) -> Any:
    """Draw a document; drop, retype, double, swap, deepen or rename up to three of its values."""
    document = copy.deepcopy(draw(documents))
    for _ in range(draw(st.integers(0, 3))):
        known = sorted(places(document), key=repr)
        if known:
            _damage(draw, document, known, deepest)
    return document


def _damage(draw: st.DrawFn, document: Any, known: list[Place], deepest: int) -> None:
    path = draw(st.sampled_from(known))
    holder, step = _at(document, path[:-1]), path[-1]
    match draw(
        st.sampled_from(["drop", "retype", "retype", "double", "swap", "deepen", "rename"])
    ):
        case "drop":
            del holder[step]
        case "retype":
            holder[step] = draw(VALUES)
        case "double":
            holder[step] = [holder[step], copy.deepcopy(holder[step])]
        case "swap":
            holder[step] = copy.deepcopy(_at(document, draw(st.sampled_from(known))))
        case "deepen":
            holder[step] = nested(holder[step], draw(st.sampled_from([1, 90, 260, deepest])))
        case "rename" if isinstance(holder, dict):
            holder[draw(KEYS)] = holder.pop(step)


def nested(value: Any, levels: int) -> Any:
    """Return a value inside the given number of nested objects."""
    for _ in range(levels):
        value = {"a": value}
    return value


def _at(document: Any, path: Place) -> Any:
    for step in path:
        document = document[step]
    return document
