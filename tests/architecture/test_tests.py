"""Fixtures have types, which mypy checks, and no test replaces a part of the product.

Ruff keeps private members of the product out of tests.
"""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.conftest import PACKAGES, ROOT, relative, sources

FIXTURE, SETTER = "pytest.fixture", "setattr"
"""A module is parsed only if its text contains one of these."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def fixtures(tree: ast.Module) -> Iterator[Function]:
    for node in ast.walk(tree):
        if isinstance(node, Function):
            named = (ast.unparse(decorator) for decorator in node.decorator_list)
            if any(name.startswith(FIXTURE) for name in named):
                yield node


def untyped(tree: ast.Module) -> list[str]:
    """Return the names of the fixtures whose signatures are not fully annotated."""
    return [
        node.name
        for node in fixtures(tree)
        if node.returns is None
        or any(
            argument.annotation is None and argument.arg != "self"
            for argument in (*node.args.args, *node.args.kwonlyargs)
        )
    ]


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """The modules of the tests by their paths."""
    return {relative(path): path.read_text() for path in sources("tests", "e2e")}


def test_every_fixture_is_fully_annotated(texts: dict[str, str]) -> None:
    found = {path: untyped(ast.parse(text)) for path, text in texts.items() if FIXTURE in text}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize("source", ["def one(): ...", "def one(two) -> int: ..."])
def test_an_untyped_fixture_would_be_found(source: str) -> None:
    assert untyped(ast.parse(f"@pytest.fixture\n{source}")) == ["one"]


def imported(tree: ast.Module) -> set[str]:
    """Return the names that a module's imports from the product define."""
    return {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if (getattr(node, "module", None) or alias.name).partition(".")[0] in PACKAGES
    }


def replaced(tree: ast.Module) -> list[str]:
    """Return the calls that replace a part of the product while a test runs."""
    ours = imported(tree)
    found = []
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and node.args):
            continue
        if isinstance(node.func, ast.Attribute) and node.func.attr in {SETTER, "__setattr__"}:
            what, frozen = node.args[0], node.func.attr == "__setattr__"
            names = {item.id for item in ast.walk(what) if isinstance(item, ast.Name)}
            # A string is the path of a module's attribute; an instance belongs to the test.
            if frozen or isinstance(what, ast.Constant | ast.JoinedStr) or names & ours:
                found.append(ast.unparse(node))
    return found


def test_no_test_replaces_a_part_of_the_product(texts: dict[str, str]) -> None:
    found = {path: replaced(ast.parse(text)) for path, text in texts.items() if SETTER in text}
    replacing = {path: calls for path, calls in found.items() if calls}
    assert replacing == {}, "give the object a field, with a default"


@pytest.mark.parametrize(
    "call",
    [
        "monkeypatch.setattr('reconciler.clock._DAY', 1)",
        "monkeypatch.setattr(clock, '_DAY', 1)",
        "monkeypatch.setattr(clock.SystemClock, 'now', None)",
        "object.__setattr__(world.processor, 'user', 1)",
    ],
)
def test_a_replaced_part_of_the_product_would_be_found(call: str) -> None:
    assert replaced(ast.parse(f"from reconciler import clock\n{call}")) == [call]


@pytest.mark.parametrize("namespace", ["shop"])
def test_a_parameter_with_the_name_of_a_cluster_fixture_needs_no_cluster(
    namespace: str, request: pytest.FixtureRequest
) -> None:
    assert request.node.get_closest_marker("cluster") is None


def test_tests_that_need_linux_are_marked() -> None:
    """`make test` runs on macOS too, without /proc and without executables of hooks."""
    needing = re.compile(
        r"/proc/(self|net|\{)|start_hooks|import .*\b(Executables|measured|endure)\b"
    )
    unmarked = [
        relative(path)
        for path in (ROOT / "tests").rglob("test_*.py")
        if needing.search(text := path.read_text()) and "linux" not in text.casefold()
    ]
    assert unmarked == []
