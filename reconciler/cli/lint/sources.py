"""The objects to check, read from files that may be partly broken."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from reconciler.api.meta import GROUPS, Object, split_api_version
from reconciler.cli.desk.documents import Document, parse_documents
from reconciler.cli.desk.files import flattened, objects, read_contents
from reconciler.cli.desk.policies import is_state
from reconciler.cli.lint.positions import Position, Positions
from reconciler.dialects.registry import KNOWN_KINDS
from reconciler.errors import InvalidSetting
from reconciler.hooks.declared import HOOK_KINDS

_GROUPS: Final = {*GROUPS} | {kind.group for kind in (*KNOWN_KINDS, *HOOK_KINDS)}
_MOST_BROKEN: Final = 20
"""Broken documents that are reported per file; the rest of the file is skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A document that cannot be read."""

    file: str
    position: Position
    reason: str


class _File:
    def __init__(self, content: bytes) -> None:
        self._content = content

    @cached_property
    def positions(self) -> Positions:
        # Computed lazily: most files have no findings.
        return Positions(self._content)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """An object and its origin.

    Attributes:
        prefix: The path of the object in its document, such as ``items[3]`` in a List.
    """

    name: str
    obj: Object
    document: int
    prefix: str
    file: _File

    def position(self, place: str) -> Position:
        """Return the position of a field path of the object."""
        dot = "." if self.prefix and place else ""
        return self.file.positions.find(self.document, f"{self.prefix}{dot}{place}")


def read_sources(
    names: Iterable[str], kinds: Collection[str]
) -> Iterator[Source | Broken | InvalidSetting]:
    """Yield the objects of some kinds in files, broken documents, and errors for missing files.

    Args:
        names: Files, folders and globs, as given on the command line.
        kinds: The kinds to yield. Other kinds, other API groups, and documents that are not
            objects are skipped.
    """
    for name in names:
        try:
            for content in read_contents([name]):
                yield from _of_file(content.source, content.data, kinds)
        except InvalidSetting as error:
            yield error


def _of_file(file: str, content: bytes, kinds: Collection[str]) -> Iterator[Source | Broken]:
    start = 0
    for _ in range(_MOST_BROKEN):
        known = _File(content)
        try:
            for document in parse_documents(content, file):
                yield from _of_document(document, kinds, known)
        except InvalidSetting as error:
            broken = _broken(file, error)
            yield broken
            content, start = _behind(content, max(broken.position.line - 1, start + 1))
        else:
            return


def _behind(content: bytes, line: int) -> tuple[bytes, int]:
    """Return the documents from a line on, padded to keep their lines, and their first line."""
    lines = content.splitlines(keepends=True)
    start = next((n for n in range(line, len(lines)) if lines[n].startswith(b"---")), len(lines))
    return b"\n" * start + b"".join(lines[start:]), start


def _of_document(
    document: Document, kinds: Collection[str], file: _File
) -> Iterator[Source | Broken]:
    for prefix, value in flattened(document.value):
        if not _is_one(value, kinds):
            continue
        try:
            for _, obj in objects([replace(document, value=value, found=False)]):
                yield Source(
                    name=document.source,
                    obj=obj,
                    document=document.line,
                    prefix=prefix,
                    file=file,
                )
        except InvalidSetting as error:
            position = file.positions.find(document.line, prefix)
            reason = str(error).removeprefix(f"{document.place}: ")
            yield Broken(file=document.source, position=position, reason=reason)


def _is_one(value: Any, kinds: Collection[str]) -> bool:
    kind = value.get("kind") if isinstance(value, Mapping) else None
    if not isinstance(kind, str) or kind not in kinds or is_state(value):
        return False
    # Other projects also have a kind Policy, and other dialects have their own exceptions.
    api_version = value.get("apiVersion")
    return not isinstance(api_version, str) or split_api_version(api_version)[0] in _GROUPS


def _broken(file: str, error: InvalidSetting) -> Broken:
    place, _, reason = str(error).removeprefix(f"{file}:").partition(": ")
    line, _, column = place.partition(":")
    if not line.isdigit():
        return Broken(file=file, position=Position(1, 1), reason=f"{place}: {reason}".strip(": "))
    at = Position(int(line), int(column) if column.isdigit() else 1)
    return Broken(file=file, position=at, reason=reason)
