"""One word for one thing: retired names and phrases are not used again."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator

from tests.architecture.conftest import PACKAGES, ROOT, relative, sources

_, _, LISTS = (ROOT / "CONTRIBUTING.md").read_text().partition("## Words")
WORDS = dict(re.findall(r"^\| `([A-Za-z_]+)` \| (.+) \|$", LISTS, re.MULTILINE))
PHRASES = {
    phrase: instead
    for cell, instead in re.findall(r"^\| ([a-z][a-z, .]+) \| (.+) \|$", LISTS, re.MULTILINE)
    if cell not in ("retired", "avoid")
    for phrase in cell.split(", ")
}


def pattern(phrase: str) -> str:
    """Return a regular expression for a phrase, in which dots stand for up to five words."""
    words = phrase.replace(" ... ", r"(?: [^\s.;:]+){0,5} ").replace(" ", r"\s+")
    return rf"\b{words}\b"


RETIRED = re.compile(rf"\b(?:{'|'.join(WORDS)})\b")
AVOIDED = re.compile("|".join(map(pattern, PHRASES)), re.IGNORECASE)
SOURCES = sources(*PACKAGES, "tests", "e2e")
PRODUCT = sources(*PACKAGES)
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "crds").rglob("*.yaml")),
    *sorted((ROOT / "manifests").rglob("*.yaml")),
]


def names(text: str) -> set[str]:
    found = tokenize.generate_tokens(io.StringIO(text).readline)
    return {token.string for token in found if token.type == tokenize.NAME}


def retired(text: str) -> dict[str, str]:
    """Return the retired words that are names in a module, with their replacements."""
    # Most modules contain none, not even in a comment, and tokenizing a module is slow.
    used = names(text) & set(WORDS) if RETIRED.search(text) else set[str]()
    return {word: WORDS[word] for word in sorted(used)}


def messages(text: str) -> Iterator[tuple[int, str]]:
    """Yield the texts of a module that users may see, each with its line.

    A docstring counts if a command shows it as its help.
    """
    tree = ast.parse(text)
    bare = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and "command" in str(
            [ast.unparse(decorator) for decorator in node.decorator_list]
        ):
            yield node.lineno, ast.get_docstring(node) or ""
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in bare:
            yield node.lineno, node.value


def explanations(text: str) -> Iterator[tuple[int, str]]:
    """Yield the docstrings and the comments of a module, each with its line.

    Comments on consecutive lines are one text: a phrase may continue on the next line.
    """
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(value := node.value, ast.Constant):
            yield node.lineno, str(value.value)
    block: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        if block and block[-1].start[0] + 1 != token.start[0]:
            yield block[0].start[0], " ".join(item.string.lstrip("# ") for item in block)
            block = []
        block.append(token)
    if block:
        yield block[0].start[0], " ".join(item.string.lstrip("# ") for item in block)


def avoided(text: str) -> list[str]:
    """Return the avoided phrases that a text contains, with their replacements."""
    if not AVOIDED.search(text):
        return []
    return [
        f"{phrase}: write {instead}"
        for phrase, instead in PHRASES.items()
        if re.search(pattern(phrase), text, re.IGNORECASE)
    ]


def test_the_lists_are_read() -> None:
    assert len(WORDS) > 20
    assert {"shall", "heed", "left ... alone", "is told"} <= set(PHRASES)
    assert avoided("It is\n  left  alone.")
    assert avoided("Rules leave the targets of it alone.")
    assert not avoided("Leave it. Alone it works.")
    assert not avoided("marshall")


def test_a_retired_word_would_be_found() -> None:
    assert retired("def heeding(): ...") == {"heeding": WORDS["heeding"]}
    assert retired("# heeding\n'heeding'") == {}


def test_a_phrase_would_be_found_in_docstrings_and_comments() -> None:
    planted = '''
"""A module that is told things."""

def keep():
    """Keep.

    It shall be
    kept.
    """
    work()  # Rules leave
    # it alone.
    text = "# of ours"
'''
    found = {line: avoided(text) for line, text in explanations(planted)}
    assert list(found) == [2, 5, 10]
    assert all(len(phrases) == 1 for phrases in found.values())


def test_no_retired_word_is_a_name() -> None:
    found = {relative(path): retired(path.read_text()) for path in SOURCES}
    assert {path: words for path, words in found.items() if words} == {}


def test_documents_contain_no_avoided_phrase() -> None:
    found = {relative(path): avoided(path.read_text()) for path in DOCUMENTS}
    assert {path: words for path, words in found.items() if words} == {}


def test_messages_contain_no_avoided_phrase() -> None:
    assert {
        f"{relative(path)}:{line}": words
        for path in PRODUCT
        for line, text in messages(path.read_text())
        if (words := avoided(text))
    } == {}


def test_docstrings_and_comments_contain_no_avoided_phrase() -> None:
    assert {
        f"{relative(path)}:{line}": words
        for path in PRODUCT
        for line, text in explanations(path.read_text())
        if (words := avoided(text))
    } == {}
