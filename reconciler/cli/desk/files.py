"""Files, folders, globs and standard input as documents and objects."""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import orjson

from reconciler.api.meta import Object
from reconciler.cli.desk.documents import Document, parse_documents
from reconciler.errors import InvalidSetting

STDIN = "-"
SUFFIXES = (".yaml", ".yml", ".json")
MAX_FILE: Final = 100 * 1024**2
"""Bytes; what is read of it takes about ten times as much memory."""
MAX_OBJECT: Final = 3 * 1024**2
"""Bytes; API servers take no request that is larger."""
_WILDCARDS = "*?["
_TYPES = {str: "text", int: "a number", float: "a number", bool: "true or false", list: "a list"}


def read_all(names: Iterable[str], *, base: Path | None = None) -> Iterator[Document]:
    """Yield the documents of files, of the YAML and JSON files below folders, and of globs.

    Args:
        names: As people wrote them; ``-`` is standard input.
        base: What relative names are relative to; None for the working directory.

    Raises:
        InvalidSetting: A file is missing or cannot be read.
    """
    for source, content in read_contents(names, base=base):
        yield from parse_documents(content, source)


def read_contents(
    names: Iterable[str], *, base: Path | None = None
) -> Iterator[tuple[str, bytes]]:
    """Yield what the files are named in messages, and their bytes; arguments as of `read_all`."""
    for name in names:
        if name == STDIN:
            yield "stdin", _bounded(sys.stdin.buffer.read(MAX_FILE + 1), "stdin")
            continue
        for path in _paths(name, base):
            yield str(path), read(path)


def read(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        InvalidSetting: It cannot be read.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE + 1)
    except OSError as error:
        raise InvalidSetting(f"{path}: cannot be read: {error.strerror}") from error
    return _bounded(content, str(path))


def _bounded(content: bytes, source: str) -> bytes:
    if len(content) > MAX_FILE:
        limit = f"{MAX_FILE // 1024**2} MiB"
        raise InvalidSetting(
            f"{source}: it is larger than {limit}: divide it, or use fewer objects"
        )
    return content


def has_wildcards(name: str) -> bool:
    """Return whether a name stands for all files that fit it."""
    return any(sign in name for sign in _WILDCARDS)


def objects(documents: Iterable[Document]) -> Iterator[tuple[Document, Object]]:
    """Yield the Kubernetes objects in documents; a List stands for its items.

    Raises:
        InvalidSetting: A document is no object, or has no apiVersion, kind or name.
    """
    for document in documents:
        value = document.value
        if isinstance(value, dict) and str(value.get("kind", "")).endswith("List"):
            for item in _items(document):
                yield document, _checked(document, item)
        else:
            yield document, _checked(document, value)


def _paths(name: str, base: Path | None) -> list[Path]:
    path = Path(name) if base is None else base / name
    if path.is_dir():
        found = sorted(item for item in path.rglob("*") if item.suffix in SUFFIXES)
        if not found:
            raise InvalidSetting(f"{path}: the folder has no YAML or JSON file")
        return found
    if not path.exists() and has_wildcards(name):
        start = Path(path.anchor) if path.is_absolute() else Path()
        found = sorted(start.glob(str(path.relative_to(start))))
        if not found:
            raise InvalidSetting(f"{name}: no file fits")
        return [file for match in found for file in _paths(str(match), None)]
    if not path.exists():
        raise InvalidSetting(f"{path}: there is no such file")
    return [path]


def _items(document: Document) -> list[Any]:
    items = document.value.get("items")
    if "items" in document.value and not isinstance(items, list | None):
        raise InvalidSetting(f"{document.place}: items of a List must be a list")
    if items is None:
        return [] if "items" in document.value else [document.value]
    return list(items)


def _checked(document: Document, value: Any) -> Object:
    if not isinstance(value, dict):
        kind = _TYPES.get(type(value), "nothing")
        raise InvalidSetting(f"{document.place}: expected a Kubernetes object, found {kind}")
    for name in ("apiVersion", "kind"):
        if not isinstance(value.get(name), str) or not value[name]:
            raise InvalidSetting(f"{document.place}: the object has no {name}")
    meta = value.get("metadata")
    if not isinstance(meta, dict):
        raise InvalidSetting(f"{document.place}: the {value['kind']} has no metadata")
    for name in ("name", "generateName", "namespace"):
        if not isinstance(meta.get(name), str | None):
            raise InvalidSetting(f"{document.place}: metadata.{name} is no text, put it in quotes")
    for name in ("labels", "annotations"):
        _check_texts(document, f"metadata.{name}", meta.get(name))
    if document.size > MAX_OBJECT and (size := len(_encoded(value))) > MAX_OBJECT:
        raise InvalidSetting(
            f"{document.place}: the {value['kind']} {meta.get('name', '')} has"
            f" {size / 1024**2:.1f} MiB; no cluster takes an object of more than"
            f" {MAX_OBJECT // 1024**2} MiB"
        )
    return value


def _encoded(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # an integer beyond 64 bits
        return json.dumps(value).encode()


def _check_texts(document: Document, name: str, value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, dict):
        raise InvalidSetting(f"{document.place}: {name} is no map")
    for key, text in value.items():
        # What the API server drops or refuses is no text for a selector either.
        if not isinstance(text, str | None):
            raise InvalidSetting(f"{document.place}: {name}.{key} is no text, put it in quotes")
