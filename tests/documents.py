"""The commands that the documents show, with what their authors say about running them.

A fenced block of kind ``sh`` is run as it stands; of ``console``, each line behind ``$ `` is, and
what follows must come out. A comment above the fence says otherwise:

``<!-- not run: why -->`` for what cannot run beside a control plane without nodes.
``<!-- exit: 1 -->`` where the last command ends with another code than 0.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.architecture.conftest import ROOT

DOCUMENTS = [
    path for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if path.exists()
]
_FENCE = re.compile(r"((?:^<!--[^\n]*-->\n)*)^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NOT_RUN = re.compile(r"<!-- not run: (.+?) -->")
_EXIT = re.compile(r"<!-- exit: (\d+) -->")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block.

    Attributes:
        line: Of its first command, from 1.
        not_run: Why it is not run, empty where it is.
        exit: The exit code of its last command.
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
        """Yield scripts, each with what it prints; empty where nothing is said of that."""
        if self.kind != "console":
            yield self.text, ""
            return
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


def blocks(document: Path) -> list[Block]:
    """Return all blocks of a document, commands or not."""
    text = document.read_text()
    return [
        Block(
            document=document,
            line=text[: found.start(3)].count("\n") + 1,
            kind=found[2],
            text=found[3],
            not_run=((reason := _NOT_RUN.search(found[1])) and reason[1]) or "",
            exit=int(code[1]) if (code := _EXIT.search(found[1])) else 0,
        )
        for found in _FENCE.finditer(text)
    ]


def command_blocks(document: Path) -> list[Block]:
    """Return the blocks that hold commands."""
    return [block for block in blocks(document) if block.kind in ("sh", "console")]
