"""Every design note has the same parts, and an index links to every page of the documents."""

import re
from pathlib import Path

import pytest

from tests.architecture.conftest import ROOT, relative

NOTES = sorted((ROOT / "docs/design").iterdir())
STATUS = re.compile(
    r"# (\d+)\. [^\n]+\n\n"
    r"Status: (?:in force|proposed|replaced by \[\d+\]\(\d{4}-[a-z-]+\.md\))\. "
)
PARTS = ["Decision", "Alternatives", "Consequences"]


@pytest.mark.parametrize("note", NOTES, ids=relative)
def test_a_note_has_the_required_form(note: Path) -> None:
    text = note.read_text()
    found = STATUS.match(text)
    assert found, "begins with '# N. Title', then 'Status: in force. Decided when ...'"
    assert re.fullmatch(rf"{int(found[1]):04}-[a-z-]+\.md", note.name)
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert [heading for heading in headings if heading in PARTS] == PARTS
    assert headings[-2:] == PARTS[-2:]


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=relative)
def test_an_index_links_to_every_page(page: Path) -> None:
    index = ROOT / "docs/index.md"
    if page == index:
        return
    # The README.md of a subfolder is linked from the README.md of the folder above.
    above = page.parent.parent / "README.md"
    source = above if page.name == "README.md" and above.exists() else index
    link = page.relative_to(source.parent).as_posix().removesuffix("README.md")
    assert re.search(rf"\({re.escape(link)}(README\.md)?\)", source.read_text())
