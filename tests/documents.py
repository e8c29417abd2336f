"""The commands in the documents, with the comments that control how tests run them.

A fenced block of kind ``sh`` is run as a whole. In a ``console`` block each line after ``$ `` is
run, and the lines after it are its expected output. A comment above the fence changes that:

``<!-- not run: why -->`` for commands that cannot run on a control plane without nodes.
``<!-- exit: 1 -->`` if the last command ends with another code than 0.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.architecture.conftest import ROOT

DOCUMENTS = [
    path for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if path.exists()
]
_FENCE = re.compile(
    r"((?:^ *<!--[^\n]*-->\n)*)^( *)```([^\n]*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL
)
_NOT_RUN = re.compile(r"<!-- not run: (.+?) -->")
_EXIT = re.compile(r"<!-- exit: (\d+) -->")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block.

    Attributes:
        line: The line of its first command, from 1.
        not_run: Why it is not run; empty if it is run.
        exit: The expected exit code of its last command.
    """

    document: Path
    line: int
    kind: str
    text: str
    not_run: str
    exit: int

    @property
    def place(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"

    def commands(self) -> Iterator[tuple[str, str]]:
        """Yield scripts, each with its expected output; empty if the document shows none."""
        if self.kind != "console":
            yield self.text, ""
            return
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


def blocks(document: Path) -> list[Block]:
    """Return all fenced blocks of a document, whether they hold commands or not."""
    text = document.read_text()
    return [
        Block(
            document=document,
            line=text[: found.start(4)].count("\n") + 1,
            kind=found[3],
            text=re.sub(f"^{found[2]}", "", found[4], flags=re.MULTILINE),
            not_run=((reason := _NOT_RUN.search(found[1])) and reason[1]) or "",
            exit=int(code[1]) if (code := _EXIT.search(found[1])) else 0,
        )
        for found in _FENCE.finditer(text)
    ]


def command_blocks(document: Path) -> list[Block]:
    """Return the blocks that hold commands."""
    return [block for block in blocks(document) if block.kind in ("sh", "console")]
