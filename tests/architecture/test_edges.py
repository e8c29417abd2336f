"""Objects are complete when they are created: no other module sets their attributes later.

A module may change the records that it declares itself. Components publish events with `Signal`,
to which others subscribe, and not by calling an attribute that another component has set.
"""

import ast
from collections.abc import Iterable, Iterator

import pytest

from tests.architecture.conftest import PACKAGES, relative, sources

SOURCES = [path for path in sources(*PACKAGES) if not relative(path).startswith("devcluster/")]
OWN = {"self", "cls"}
FOREIGN = {
    "reconciler/cli/desk/suite/report.py",  # elements of XML
    "reconciler/controller/settings.py",  # kopf's settings
}
"""Modules that set attributes of library objects whose names also occur in the product."""


def fields(module: ast.Module) -> set[str]:
    """Return the attributes that the classes of a module declare or set themselves."""
    found: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef):
            for item in node.body:
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                    found.add(item.target.id)
            found.update(target.attr for target in assigned(node) if is_own(target))
    return found


def assigned(node: ast.AST) -> Iterator[ast.Attribute]:
    """Yield the attributes that statements below a node set or delete."""
    for item in ast.walk(node):
        match item:
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                yield from attributes(targets)
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                yield from attributes([target])
            case ast.For(target=target) | ast.AsyncFor(target=target):
                yield from attributes([target])
            case ast.Call(func=ast.Name(id="setattr"), args=[owner, ast.Constant(value=name), *_]):
                yield ast.Attribute(value=owner, attr=str(name), lineno=item.lineno)
            case _:
                continue


def attributes(targets: Iterable[ast.expr]) -> Iterator[ast.Attribute]:
    for target in targets:
        if isinstance(target, ast.Attribute):
            yield target
        elif isinstance(target, ast.Tuple | ast.List):
            yield from attributes(target.elts)
        elif isinstance(target, ast.Starred):
            yield from attributes([target.value])


def is_own(target: ast.Attribute) -> bool:
    return isinstance(target.value, ast.Name) and target.value.id in OWN


def set_from_outside(module: ast.Module, declared: set[str]) -> list[str]:
    """Return the assignments of a module to attributes that only other modules declare."""
    elsewhere = declared - fields(module)
    return [
        f"line {target.lineno}: {ast.unparse(target)}"
        for target in assigned(module)
        if not is_own(target) and target.attr in elsewhere
    ]


@pytest.fixture(scope="module")
def modules() -> dict[str, ast.Module]:
    """The modules of the product by their paths."""
    return {relative(path): ast.parse(path.read_text()) for path in SOURCES}


@pytest.fixture(scope="module")
def declared(modules: dict[str, ast.Module]) -> set[str]:
    return set[str]().union(*map(fields, modules.values()))


def test_no_attribute_is_set_from_outside(
    modules: dict[str, ast.Module], declared: set[str]
) -> None:
    found = {path: set_from_outside(module, declared) for path, module in modules.items()}
    assert {path: set_ for path, set_ in found.items() if set_ and path not in FOREIGN} == {}


@pytest.mark.parametrize(
    "planted",
    [
        "lanes.unfinished = dispatcher.unfinished",
        "self.entries.unfinished = print",
        "with lock:\n    a, lanes.unfinished = 1, 2",
        "lanes.unfinished += 1",
        "del lanes.unfinished",
        "setattr(lanes, 'unfinished', print)",
    ],
)
def test_a_planted_assignment_is_found(planted: str, declared: set[str]) -> None:
    assert set_from_outside(ast.parse(planted), declared | {"unfinished"})


def test_a_class_and_its_module_may_set_its_attributes() -> None:
    text = "class A:\n    x: int\n    def f(self):\n        self.x = 1\ndef g(a):\n    a.x = 2\n"
    assert set_from_outside(ast.parse(text), {"x"}) == []
