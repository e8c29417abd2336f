"""YAML as Kubernetes reads it: what comes out is JSON."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    """Safe, and a date stays text, as it does in JSON."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read(path: Path) -> list[dict[str, Any]]:
    """Return the documents of a file, those of a ``List`` one by one, empty ones left out."""
    with path.open("rb") as file:
        raw = list(yaml.load_all(file, _Loader))
    # Keys that YAML takes for numbers or booleans are text in JSON.
    documents = json.loads(json.dumps([document for document in raw if document is not None]))
    return [item for document in documents for item in _items(document)]


def _items(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if document.get("kind") == "List" and "items" in document:
        yield from document["items"]
    else:
        yield document
