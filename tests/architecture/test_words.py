"""One word for one thing: names and phrases that were given up do not come back."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.conftest import PACKAGES, ROOT, relative, sources

_, _, LISTS = (ROOT / "CONTRIBUTING.md").read_text().partition("## Words")
WORDS = dict(re.findall(r"^\| `([A-Za-z_]+)` \| (.+) \|$", LISTS, re.MULTILINE))
PHRASES = {
    phrase: instead
    for cell, instead in re.findall(r"^\| ([a-z][a-z, .]+) \| (.+) \|$", LISTS, re.MULTILINE)
    if cell not in ("retired", "avoid")
    for phrase in cell.split(", ")
}
SOURCES = sources(*PACKAGES, "tests", "e2e")
PRODUCT = sources(*PACKAGES)
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "crds").rglob("*.yaml")),
    *sorted((ROOT / "manifests").rglob("*.yaml")),
]


def names(path: Path) -> set[str]:
    with io.StringIO(path.read_text()) as text:
        found = tokenize.generate_tokens(text.readline)
        return {token.string for token in found if token.type == tokenize.NAME}


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """Yield what a module may say to a person, each text with its line.

    A docstring counts where a command shows it as its help.
    """
    tree = ast.parse(path.read_text())
    bare = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and "command" in str(
            [ast.unparse(decorator) for decorator in node.decorator_list]
        ):
            yield node.lineno, ast.get_docstring(node) or ""
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in bare:
            yield node.lineno, node.value


def avoided(text: str) -> list[str]:
    """Return what of the list a text says, and what it could say; dots stand for a few words."""
    return [
        f"{phrase}: write {instead}"
        for phrase, instead in PHRASES.items()
        if re.search(
            rf"\b{phrase}\b".replace(" ... ", r"(?: [^\s.;:]+){0,5} ").replace(" ", r"\s+"),
            text,
            re.IGNORECASE,
        )
    ]


def test_the_lists_are_read() -> None:
    assert len(WORDS) > 20
    assert {"shall", "heed", "left ... alone", "is told"} <= set(PHRASES)
    assert avoided("It is\n  left  alone.")
    assert avoided("Rules leave the targets of it alone.")
    assert not avoided("Leave it. Alone it works.")
    assert not avoided("marshall")


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_no_retired_word_is_a_name(path: Path) -> None:
    used = names(path) & set(WORDS)
    assert not used, "; ".join(f"{word}: use {WORDS[word]}" for word in sorted(used))


@pytest.mark.parametrize("path", DOCUMENTS, ids=relative)
def test_a_document_says_it_in_plain_words(path: Path) -> None:
    assert avoided(path.read_text()) == []


@pytest.mark.parametrize("path", PRODUCT, ids=relative)
def test_a_message_says_it_in_plain_words(path: Path) -> None:
    assert [(line, words) for line, text in messages(path) if (words := avoided(text))] == []
