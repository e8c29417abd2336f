"""What tests share has types, which mypy checks; ruff keeps private members out of them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.conftest import relative, sources

TESTS = sources("tests", "e2e")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def fixtures(tree: ast.Module) -> Iterator[Function]:
    for node in ast.walk(tree):
        if isinstance(node, Function):
            named = (ast.unparse(decorator) for decorator in node.decorator_list)
            if any(name.startswith("pytest.fixture") for name in named):
                yield node


def untyped(tree: ast.Module) -> list[str]:
    """Return the fixtures that leave something for mypy to guess."""
    return [
        node.name
        for node in fixtures(tree)
        if node.returns is None
        or any(
            argument.annotation is None and argument.arg != "self"
            for argument in (*node.args.args, *node.args.kwonlyargs)
        )
    ]


@pytest.mark.parametrize("path", TESTS, ids=relative)
def test_a_fixture_says_its_types(path: Path) -> None:
    assert untyped(ast.parse(path.read_text())) == []


@pytest.mark.parametrize("source", ["def one(): ...", "def one(two) -> int: ..."])
def test_an_untyped_fixture_would_be_found(source: str) -> None:
    assert untyped(ast.parse(f"@pytest.fixture\n{source}")) == ["one"]
