"""The objects to check, read from files that may be partly broken."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from reconciler.api.globalcontext import KIND as ENTRY
from reconciler.api.meta import GROUPS, Object, split_api_version
from reconciler.cli.desk.documents import Document, parse_documents
from reconciler.cli.desk.files import flattened, objects, read_contents
from reconciler.cli.desk.policies import is_state
from reconciler.cli.lint.positions import Position, Positions
from reconciler.dialects.registry import EXCEPTION, KNOWN_KINDS
from reconciler.errors import InvalidSetting
from reconciler.hooks.declared import HOOK_KINDS

_GROUPS: Final = {*GROUPS} | {kind.group for kind in (*KNOWN_KINDS, *HOOK_KINDS)}
POLICIES: Final = frozenset(kind.kind for kind in KNOWN_KINDS)
HOOKS: Final = frozenset(kind.kind for kind in HOOK_KINDS)
_KINDS: Final = POLICIES | HOOKS | {ENTRY, EXCEPTION}
_MOST_BROKEN: Final = 20
"""Broken documents that are reported per file; the rest of the file is skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A document that cannot be read."""

    file: str
    position: Position
    reason: str


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
    positions: Positions

    def position(self, place: str) -> Position:
        """Return the position of a field path of the object."""
        dot = "." if self.prefix and place else ""
        return self.positions.find(self.document, f"{self.prefix}{dot}{place}")


def read_sources(names: Iterable[str]) -> Iterator[Source | Broken | InvalidSetting]:
    """Yield the objects in files to check, broken documents, and errors for missing files.

    Other kinds, other API groups, and documents that are not objects are skipped.
    """
    for name in names:
        try:
            for content in read_contents([name]):
                yield from _of_file(content.source, content.data)
        except InvalidSetting as error:
            yield error


def _of_file(file: str, content: bytes) -> Iterator[Source | Broken]:
    start = 0
    for _ in range(_MOST_BROKEN):
        positions = Positions(content)
        try:
            for document in parse_documents(content, file):
                yield from _of_document(document, positions)
        except InvalidSetting as error:
            broken = _broken(file, error)
            yield broken
            at = broken.position
            # An unclosed bracket is noticed where the next document begins.
            line = at.line - 1 if at.column == 1 else at.line
            content, start = _behind(content, max(line, start + 1))
        else:
            return


def _behind(content: bytes, line: int) -> tuple[bytes, int]:
    """Return the documents from a line on, padded to keep their lines, and their first line."""
    lines = content.splitlines(keepends=True)
    start = next((n for n in range(line, len(lines)) if lines[n].startswith(b"---")), len(lines))
    return b"\n" * start + b"".join(lines[start:]), start


def _of_document(document: Document, positions: Positions) -> Iterator[Source | Broken]:
    for prefix, value in flattened(document.value):
        if not _is_one(value):
            continue
        try:
            for _, obj in objects([replace(document, value=value, found=False)]):
                yield Source(
                    name=document.source,
                    obj=obj,
                    document=document.line,
                    prefix=prefix,
                    positions=positions,
                )
        except InvalidSetting as error:
            reason = str(error).removeprefix(f"{document.place}: ")
            # A message about a field begins with it.
            field = reason.partition(" ")[0]
            position = positions.find(document.line, f"{prefix}.{field}".removeprefix("."))
            yield Broken(file=document.source, position=position, reason=reason)


def _is_one(value: Any) -> bool:
    kind = value.get("kind") if isinstance(value, Mapping) else None
    if not isinstance(kind, str) or kind not in _KINDS or is_state(value):
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
