"""The glossary lists each term once, with names that exist in the code and on the wire."""

import ast
import re

from tests.architecture.conftest import ROOT, sources

GLOSSARY = ROOT / "docs/reference/glossary.md"
ROW = re.compile(r"^\| ([^|`]+) \| [^|]+ \|([^|]*)\|([^|]*)\|$", re.MULTILINE)
ROWS = [row for row in ROW.findall(GLOSSARY.read_text()) if row[0] not in ("term", "---")]
QUOTED = re.compile(r"`([^`]+)`")
WIRE = [*(ROOT / "crds").rglob("*.yaml"), *sources("reconciler")]


def named(column: int) -> set[str]:
    return {name for row in ROWS for name in QUOTED.findall(row[column])}


def test_each_term_is_listed_once_in_alphabetical_order() -> None:
    terms = [row[0] for row in ROWS]
    assert len(terms) > 30
    assert terms == sorted(set(terms), key=str.lower)


def test_every_name_in_code_is_a_class() -> None:
    classes = {
        node.name
        for path in sources("reconciler", "admission")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    assert named(1) - classes == set()


def test_every_name_on_the_wire_is_in_a_schema_or_the_code() -> None:
    text = "\n".join(path.read_text() for path in WIRE)
    words = {word for name in named(2) for word in re.findall(r"[A-Za-z-]{3,}", name)}
    assert {word for word in words if not re.search(rf"\b{word}\b", text)} <= {"kube-retrofit"}


def test_every_class_of_the_word_list_is_explained() -> None:
    _, _, table = (ROOT / "CONTRIBUTING.md").read_text().partition("## Words")
    instead = {
        name
        for row in re.findall(r"^\| `\w+` \| (.+) \|$", table, re.MULTILINE)
        for name in QUOTED.findall(row)
        if name[0].isupper()
    }
    assert instead - named(1) == set()
