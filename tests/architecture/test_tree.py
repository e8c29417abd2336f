"""Rules of the source tree that neither ruff nor mypy nor import-linter can check."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.conftest import PACKAGES, ROOT, relative, sources

SOURCES = sources(*PACKAGES)
PURE = sources(*(f"reconciler/{name}" for name in ("engine", "requests", "dialects", "api")))
PURE.append(ROOT / "reconciler/errors.py")

MOST_LINES = 450
MOST_WIRING = 120
MOST_HANDLER = 15
# With these the core could bypass the import contracts: they forbid I/O, time, random numbers.
REACHING_OUT = {"__import__", "import_module", "open", "eval", "exec", "input", "breakpoint"}
CONTAINERS = {"list", "dict", "set", "bytearray", "defaultdict", "deque", "Counter"}
NOT_GIVEN = {"importlib", "time", "random", "secrets", "uuid", "io", "sys", "tempfile", "logging"}


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def imported(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


def called(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id
        elif isinstance(node, ast.Attribute) and node.attr in {"import_module", "__import__"}:
            yield node.attr


def longer(paths: list[Path], most: int) -> dict[str, int]:
    """Return the modules with more lines than the limit, with their numbers of lines."""
    lengths = {relative(path): len(path.read_text().splitlines()) for path in paths}
    return {path: lines for path, lines in lengths.items() if lines > most}


def test_a_module_is_small() -> None:
    assert longer(SOURCES, MOST_LINES) == {}


def test_the_composition_root_only_composes() -> None:
    assert longer(sources("reconciler/wiring"), MOST_WIRING) == {}


def test_a_folder_is_a_package() -> None:
    bare = {path.parent for path in SOURCES if not (path.parent / "__init__.py").exists()}
    assert bare == set(), "the import contracts do not see them otherwise"


@pytest.fixture(scope="module")
def core() -> dict[str, ast.Module]:
    """The pure modules by their paths."""
    return {relative(path): tree(path) for path in PURE}


def test_the_core_does_no_io_and_uses_no_clock_or_random_numbers(
    core: dict[str, ast.Module],
) -> None:
    for path, module in core.items():
        assert not REACHING_OUT & set(called(module)), path
        assert not NOT_GIVEN & set(imported(module)), path


def test_the_core_keeps_no_state(core: dict[str, ast.Module]) -> None:
    for path, module in core.items():
        assert list(filled_later(module)) == [], path
        kept = {"cache", "lru_cache"} & set(decorators(module))
        assert not kept, f"{path}: what is kept needs an owner"
        assert not any(isinstance(node, ast.Global) for node in ast.walk(module)), path


def filled_later(module: ast.Module) -> Iterator[str]:
    """Yield the empty containers of a module, which code fills; one with content is a table."""
    for node in module.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        value = node.value
        empty = isinstance(value, ast.Dict) and not value.keys
        empty = empty or (isinstance(value, ast.List) and not value.elts)
        if isinstance(value, ast.Call) and not value.args:
            empty = ast.unparse(value.func).split(".")[-1] in CONTAINERS
        if empty:
            yield ast.unparse(node)


def decorators(module: ast.Module) -> Iterator[str]:
    """Yield the decorators of functions and methods that live as long as the module."""
    nodes = list(module.body)
    nodes += [item for node in nodes if isinstance(node, ast.ClassDef) for item in node.body]
    for node in nodes:
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                called = decorator.func if isinstance(decorator, ast.Call) else decorator
                yield ast.unparse(called).split(".")[-1]


def test_the_handlers_are_short() -> None:
    functions = [
        node
        for outer in tree(ROOT / "reconciler/controller/handlers.py").body
        for node in ast.walk(outer)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node is not outer
    ]
    lengths = {node.name: (node.end_lineno or 0) - node.lineno + 1 for node in functions}
    assert lengths, "the handlers moved: this test looks for functions inside build_registry"
    assert {name: n for name, n in lengths.items() if n > MOST_HANDLER} == {}
