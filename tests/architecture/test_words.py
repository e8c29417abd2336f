"""One word for one thing: names that were given up do not come back."""

import io
import re
import tokenize
from pathlib import Path

import pytest

from tests.architecture.conftest import PACKAGES, ROOT, relative, sources

ROW = re.compile(r"^\| `([A-Za-z_]+)` \| (.+) \|$", re.MULTILINE)
WORDS = dict(ROW.findall((ROOT / "CONTRIBUTING.md").read_text().partition("## Words")[2]))
SOURCES = sources(*PACKAGES, "tests", "e2e")


def names(path: Path) -> set[str]:
    with io.StringIO(path.read_text()) as text:
        found = tokenize.generate_tokens(text.readline)
        return {token.string for token in found if token.type == tokenize.NAME}


def test_the_list_is_read() -> None:
    assert len(WORDS) > 20


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_no_retired_word_is_a_name(path: Path) -> None:
    used = names(path) & set(WORDS)
    assert not used, "; ".join(f"{word}: use {WORDS[word]}" for word in sorted(used))
