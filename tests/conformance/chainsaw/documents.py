"""Reads YAML as Kubernetes does: the result is JSON."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    """The safe loader, except that a date stays text, as in JSON."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read(path: Path) -> list[dict[str, Any]]:
    """Return the documents of a file without empty ones, and the items of a ``List`` singly."""
    with path.open("rb") as file:
        raw = list(yaml.load_all(file, _Loader))
    # Keys that YAML parses as numbers or booleans are strings in JSON.
    documents = json.loads(json.dumps([document for document in raw if document is not None]))
    return [item for document in documents for item in _items(document)]


def _items(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if document.get("kind") == "List" and "items" in document:
        yield from document["items"]
    else:
        yield document
