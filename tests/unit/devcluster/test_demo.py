"""The demonstration fits a terminal of 80 columns, which cuts long lines of a policy."""

import ast
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster.demo import scenes
from devcluster.demo.stage import OBJECTS

WIDEST = 78
"""Excerpts are indented by two columns; a rule follows a heading."""


def shown(method: str) -> Iterator[list[str]]:
    """Yield the literal arguments of each call of a method of the stage."""
    for node in ast.walk(ast.parse(Path(scenes.__file__).read_text())):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == method
        ):
            yield [str(item.value) for item in node.args if isinstance(item, ast.Constant)]


@pytest.mark.parametrize(("name", "start"), [*shown("excerpt")])
def test_no_line_of_an_excerpt_is_cut(name: str, start: str) -> None:
    text = (OBJECTS / name).read_text()
    part = textwrap.dedent(text[text.index(f"\n{start}") + 1 :])
    assert [line for line in part.splitlines() if len(line) > WIDEST] == []


def test_no_heading_is_cut() -> None:
    texts = [text for words in shown("heading") for text in words]
    assert len(texts) > 5
    assert [text for text in texts if len(text) > WIDEST - 3] == []
