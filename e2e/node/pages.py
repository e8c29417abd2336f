"""What the pages of the documentation have people apply and run."""

import re
from pathlib import Path
from typing import Any

import yaml

from e2e.node.images import ROOT

HOOKS = ROOT / "docs/how-to/move-from-shell-operator.md"
ANSWERS = ROOT / "docs/how-to/answer-the-api-server.md"


def section(document: Path, heading: str) -> str:
    """Return what stands below a heading of the second level."""
    text = document.read_text()
    found = re.search(rf"(?ms)^## {re.escape(heading)}$(.*?)(?=^## |\Z)", text)
    assert found, f"{document.name} has no section {heading!r}"
    return found[1]


def blocks(document: Path, heading: str, language: str) -> list[str]:
    """Return the blocks of a section that are in a language."""
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", section(document, heading))


def hooks_overlay() -> dict[str, Any]:
    """Return the kustomization of an image with hooks, whose resources are below the checkout."""
    (text,) = blocks(HOOKS, "3. Install it", "yaml")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def hooks_image() -> tuple[str, str]:
    """Return the name of an image with hooks, and the Dockerfile that makes it."""
    (wanted,) = hooks_overlay()["images"]
    (text,) = blocks(HOOKS, "2. Build the image", "dockerfile")
    return f"{wanted['newName']}:{wanted['newTag']}", text
