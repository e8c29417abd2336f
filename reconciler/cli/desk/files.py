"""Reads files, folders, globs and standard input as documents and objects."""

import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click
import orjson
from typing_extensions import override

from reconciler.api.meta import Object
from reconciler.cli.desk.documents import Document, parse_documents
from reconciler.errors import InvalidSetting

STDIN = "-"
STDIN_NAME = "stdin"
"""The name of standard input in messages."""
SUFFIXES = (".yaml", ".yml", ".json")
MAX_FILE: Final = 100 * 1024**2
"""Bytes; the parsed content takes about ten times as much memory."""
MAX_OBJECT: Final = 3 * 1024**2
"""Bytes; API servers accept no larger request."""
_SCHEMES: Final = ("https://", "http://")
_WILDCARDS = "*?["
_OPENED: Final = re.compile(r"/dev/fd/[0-9]+|/dev/stdin|/proc/self/fd/[0-9]+")
_TOOLS: Final = ("kustomize.config.k8s.io", "cli.kyverno.io")
"""API groups of configuration files of tools, which are never stored in a cluster."""
_NAMES: Final = ("name", "generateName", "namespace")
_TYPES = {str: "text", int: "a number", float: "a number", bool: "true or false", list: "a list"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The content of a file.

    Attributes:
        source: The name of the file in messages.
        found: Whether the file was found in a folder or by a wildcard, and not named.
    """

    source: str
    data: bytes
    found: bool = False

    def documents(self) -> Iterator[Document]:
        """Yield the documents of the file; raises as `parse_documents`."""
        for document in parse_documents(self.data, self.source):
            yield replace(document, found=True) if self.found else document


def read_all(names: Iterable[str], *, base: Path | None = None) -> Iterator[Document]:
    """Yield the documents of files, of globs, and of the YAML and JSON files below folders.

    Args:
        names: Names as given by the user; ``-`` is standard input, ``https://...`` a URL.
        base: The folder for relative names; None for the working directory.

    Raises:
        InvalidSetting: A file is missing or cannot be read.
    """
    for content in read_contents(names, base=base):
        yield from content.documents()


def read_one(name: str, *, base: Path | None = None) -> tuple[Any, str]:
    """Return the only document of a file, and the name of the file for messages.

    Raises:
        InvalidSetting: The file cannot be read, or does not hold one document.
    """
    found = list(read_all([name], base=base))
    place = name if base is None else str(base / name)
    if len(found) != 1:
        raise InvalidSetting(f"{place}: expected one document, found {len(found)}")
    return found[0].value, place


def read_contents(names: Iterable[str], *, base: Path | None = None) -> Iterator[Content]:
    """Yield the contents of files without parsing them; arguments as of `read_all`."""
    for name in names:
        if name == STDIN:
            data = _bounded(sys.stdin.buffer.read(MAX_FILE + 1), STDIN_NAME)
            yield Content(source=STDIN_NAME, data=data)
        elif is_address(name):
            # The HTTP client takes as long to import as all the rest, and most files are paths.
            from reconciler.cli.desk.fetching import fetch  # noqa: PLC0415

            yield Content(source=name, data=fetch(name, MAX_FILE))
        else:
            for path, found in _paths(name, base):
                yield Content(source=str(path), data=read(path), found=found)


def read(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        InvalidSetting: The file cannot be read.
    """
    try:
        # Opening a named pipe blocks until a writer opens it, maybe forever. The descriptors that
        # a shell has already opened, as for <(kustomize build .), do not block.
        if path.exists() and not path.is_file() and not _OPENED.fullmatch(str(path)):
            raise InvalidSetting(
                f"{path}: not a regular file; name one, or pipe the content in and name -"
            )
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


def is_address(name: str) -> bool:
    """Return whether a name is a URL and not a path."""
    return name.lower().startswith(_SCHEMES)


def is_file(name: str) -> bool:
    """Return whether a name is that of a file: standard input, a URL or what exists."""
    try:
        return name == STDIN or is_address(name) or Path(name).exists()
    except OSError:
        # Whoever reads it reports the error, such as a name that is too long.
        return True


def has_wildcards(name: str) -> bool:
    """Return whether a name is a glob pattern."""
    return any(sign in name for sign in _WILDCARDS)


def no_matter(_source: str) -> None:
    """Ignore a skipped file."""


def objects(
    documents: Iterable[Document], pass_over: Callable[[str], None] = no_matter
) -> Iterator[tuple[Document, Object]]:
    """Yield the Kubernetes objects in documents, and the items of Lists instead of the Lists.

    Other documents in folders, such as the settings of tools, are skipped.

    Args:
        pass_over: Called with the file of each skipped document.

    Raises:
        InvalidSetting: A document of a named file is not an object, or an object has a name,
            namespace, label or annotation of the wrong type.
    """
    for document in documents:
        if document.found and not _is_object(document.value):
            pass_over(document.source)
            continue
        for path, value in flattened(document.value):
            place = f"{document.place}: {path}" if path else document.place
            if _is_list(value) and "items" in value:
                raise InvalidSetting(f"{place}: items of a List must be a list")
            yield document, checked(value, place, document.size)


def flattened(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the objects in the value of a document, each with its path there.

    As for kubectl, the items of a List within a List come last.
    """
    left = deque([("", value)])
    while left:
        path, item = left.popleft()
        # A kind of this name without items is no List.
        items = item.get("items", item) if _is_list(item) else item
        if isinstance(items, list | None) and items is not item:
            within = f"{path}.items" if path else "items"
            left.extend((f"{within}[{index}]", each) for index, each in enumerate(items or ()))
        else:
            yield path, item


def _is_list(value: Any) -> bool:
    return isinstance(value, dict) and str(value.get("kind", "")).endswith("List")


def _is_object(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        return False
    version = value.get("apiVersion")
    if not isinstance(version, str) or version.partition("/")[0] in _TOOLS:
        return False
    return value["kind"].endswith("List") or isinstance(value.get("metadata"), dict)


def _paths(name: str, base: Path | None) -> list[tuple[Path, bool]]:
    """Return files, each with whether it was found in a folder or by a wildcard."""
    try:
        return _found(name, base)
    except OSError as error:
        raise InvalidSetting(f"{name}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InvalidSetting(f"{name}: cannot be read: {error}") from error


def named(name: str, base: Path | None = None) -> Path:
    """Return the path that a user named, below ``base`` if given.

    Raises:
        InvalidSetting: The name is empty, which to `Path` is the current folder.
    """
    if not name:
        raise InvalidSetting("the name of a file is empty")
    return Path(name) if base is None else base / name


class NamedPath(click.Path):
    """The path of an argument or an option, which `named` accepts."""

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        named(os.fspath(value))
        return super().convert(value, param, ctx)


def _found(name: str, base: Path | None) -> list[tuple[Path, bool]]:
    path = named(name, base)
    if path.is_dir():
        found = sorted(item for item in path.rglob("*") if item.suffix in SUFFIXES)
        if not found:
            raise InvalidSetting(f"{path}: the folder has no YAML or JSON file")
        return [(item, True) for item in found if item.is_file()]
    if not path.exists() and has_wildcards(name):
        start = Path(path.anchor) if path.is_absolute() else Path()
        found = sorted(start.glob(str(path.relative_to(start))))
        if not found:
            raise InvalidSetting(f"{name}: no file fits")
        return [(file, True) for match in found for file, _ in _found(str(match), None)]
    if not path.exists():
        what = "the link leads to no file" if path.is_symlink() else "there is no such file"
        raise InvalidSetting(f"{path}: {what}")
    return [(path, False)]


def checked(value: Any, place: str, size: int = 0) -> Object:
    """Return a Kubernetes object.

    Args:
        size: The size of the text with the object; see `Document`.

    Raises:
        InvalidSetting: The value is not an object, or its metadata has a field of a wrong type.
    """
    if not isinstance(value, dict):
        kind = _TYPES.get(type(value), "nothing")
        raise InvalidSetting(f"{place}: expected a Kubernetes object, found {kind}")
    for name in ("apiVersion", "kind"):
        if not isinstance(value.get(name), str) or not value[name]:
            raise InvalidSetting(f"{place}: the object has no {name}")
    meta = value.get("metadata")
    if not isinstance(meta, dict):
        raise InvalidSetting(f"{place}: the {value['kind']} has no metadata")
    for name in _NAMES:
        if not isinstance(meta.get(name), str | None):
            raise InvalidSetting(f"{place}: metadata.{name} is not a string; put it in quotes")
    for name in ("labels", "annotations"):
        _check_texts(place, f"metadata.{name}", meta.get(name))
    if size > MAX_OBJECT and (size := len(orjson.dumps(value))) > MAX_OBJECT:
        raise InvalidSetting(
            f"{place}: the {value['kind']} {meta.get('name', '')} has"
            f" {size / 1024**2:.1f} MiB; no cluster takes an object of more than"
            f" {MAX_OBJECT // 1024**2} MiB"
        )
    return _without_null_names(value)


def _without_null_names(obj: Object) -> Object:
    # Charts render an empty value as null; an API server drops it.
    meta = obj["metadata"]
    if all(name not in meta or meta[name] is not None for name in _NAMES):
        return obj
    kept = {key: item for key, item in meta.items() if key not in _NAMES or item is not None}
    return {**obj, "metadata": kept}


def _check_texts(place: str, name: str, value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, dict):
        raise InvalidSetting(f"{place}: {name} is not a map")
    for key, text in value.items():
        # The API server drops or refuses other types, so a selector cannot match them either.
        if not isinstance(text, str | None):
            raise InvalidSetting(f"{place}: {name}.{key} is not a string; put it in quotes")
