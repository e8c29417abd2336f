"""Scenes on the node find sections of pages by their headings, and CI runs these scenes last.

This test finds a renamed heading within a second.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.conftest import ROOT, sources

MODULES = [ast.parse(path.read_text()) for path in sources("e2e/node")]
READERS = {"run_commands", "blocks", "section"}


def pages() -> dict[str, Path]:
    """Return the pages by the names of the constants that the scenes use for them."""
    return {
        target.id: ROOT / str(path)
        for module in MODULES
        for item in module.body
        if isinstance(item, ast.Assign)
        for target in item.targets
        if isinstance(target, ast.Name)
        and isinstance(item.value, ast.BinOp)
        and isinstance(item.value.right, ast.Constant)
        and str(path := item.value.right.value).endswith(".md")
    }


def named() -> Iterator[tuple[str, str]]:
    """Yield the constant of a page and the heading for every section that the scenes read."""
    for module in MODULES:
        for call in ast.walk(module):
            if (
                isinstance(call, ast.Call)
                and isinstance(call.func, ast.Name)
                and call.func.id in READERS
            ):
                names = [item.id for item in call.args if isinstance(item, ast.Name)]
                texts = [item.value for item in call.args if isinstance(item, ast.Constant)]
                for page in pages().keys() & names:
                    yield page, str(texts[0])


@pytest.mark.parametrize(("page", "heading"), sorted(set(named())))
def test_a_page_has_the_section_that_a_scene_reads(page: str, heading: str) -> None:
    assert f"\n## {heading}\n" in pages()[page].read_text()


def test_scenes_read_the_expected_pages() -> None:
    assert {"README", "UNINSTALL", "HOOKS", "ANSWERS"} <= {page for page, _ in named()}
