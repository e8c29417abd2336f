"""The manifests and commands that the documentation tells users to apply and run."""

import re
from pathlib import Path
from typing import Any

import yaml

from e2e.node.images import ROOT

HOOKS = ROOT / "docs/how-to/move-from-shell-operator.md"
ANSWERS = ROOT / "docs/how-to/answer-the-api-server.md"


def section(document: Path, heading: str) -> str:
    """Return the text below a heading of the second level."""
    text = document.read_text()
    found = re.search(rf"(?ms)^## {re.escape(heading)}$(.*?)(?=^## |\Z)", text)
    assert found, f"{document.name} has no section {heading!r}"
    return found[1]


def blocks(document: Path, heading: str, language: str) -> list[str]:
    """Return the code blocks of a section in a language."""
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", section(document, heading))


def hooks_overlay() -> dict[str, Any]:
    """Return the kustomization for an image with hooks; its resources are relative to `ROOT`."""
    (text,) = blocks(HOOKS, "3. Install it", "yaml")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def hooks_image() -> tuple[str, str]:
    """Return the name of the image with hooks, and its Dockerfile."""
    (wanted,) = hooks_overlay()["images"]
    (text,) = blocks(HOOKS, "2. Build the image", "dockerfile")
    return f"{wanted['newName']}:{wanted['newTag']}", text
