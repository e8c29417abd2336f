"""The files of a move: reads them, rewrites them in memory, and writes or diffs them."""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from reconciler.api.meta import Object, split_api_version
from reconciler.cli.desk.documents import parse_documents
from reconciler.cli.desk.files import Content, read_contents
from reconciler.cli.desk.nodes import apply, read_roots
from reconciler.cli.migrate.moving import Fate, Move, Moved
from reconciler.dialects.registry import is_policy
from reconciler.errors import InvalidSetting

_BOM = "\ufeff"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """A file before and after a move.

    Attributes:
        base: The folder to which its path below an output folder is relative.
        found: Its objects that the move concerns.
    """

    source: str
    base: Path
    before: str
    after: str
    found: list[Moved] = field(default_factory=list)

    def diff(self) -> Iterator[str]:
        """Yield the lines of a unified diff."""
        yield from difflib.unified_diff(
            self.before.splitlines(),
            self.after.splitlines(),
            self.source,
            self.source,
            lineterm="",
        )

    def policies(self, group: str) -> Iterator[tuple[str, Object]]:
        """Yield the policies of a group after the move, each with its place."""
        if any(item.fate is Fate.MOVES for item in self.found):
            for document in parse_documents(self.after.encode(), self.source):
                yield from ((document.place, item) for item in _policies(document.value, group))


def _policies(value: object, group: str) -> Iterator[Object]:
    match value:
        case dict() if is_policy(value):
            whole = isinstance(value.get("metadata"), dict) and "spec" in value
            if whole and split_api_version(value["apiVersion"])[0] == group:
                yield value
        case dict():
            for item in value.values():
                yield from _policies(item, group)
        case list():
            for item in value:
                yield from _policies(item, group)
        case _:
            return


def rewrite_all(names: tuple[str, ...], move: Move) -> Iterator[Rewritten | InvalidSetting]:
    """Yield each rewritten file, and an error for each that cannot be read."""
    for name in names:
        try:
            contents = list(read_contents([name]))
        except InvalidSetting as error:
            yield error
            continue
        for content in contents:
            try:
                base = Path(name) if Path(name).is_dir() else Path(content.source).parent
                yield _rewrite(content, move, base)
            except InvalidSetting as error:
                yield error


def _rewrite(content: Content, move: Move, base: Path) -> Rewritten:
    try:
        text = content.data.decode()
    except UnicodeDecodeError as error:
        raise InvalidSetting(f"{content.source}: is not UTF-8: save it as UTF-8") from error
    # This refuses aliases without end, and documents that cannot be objects.
    for _ in parse_documents(content.data, content.source):
        pass
    mark = _BOM if text.startswith(_BOM) else ""
    plain = text.removeprefix(_BOM)
    try:
        found = [item for root in read_roots(plain) for item in move.of_root(root)]
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise InvalidSetting(f"{content.source}: is not YAML: {problem}") from error
    after = apply(plain, (edit for item in found for edit in item.edits))
    _check_stays(content.source, found, after, move)
    return Rewritten(
        source=content.source, base=base, before=text, after=mark + after, found=found
    )


def _check_stays(source: str, found: list[Moved], after: str, move: Move) -> None:
    """Refuse an edit that an alias repeats in an object that does not move."""
    left = {(item.line, item.path) for root in read_roots(after) for item in move.of_root(root)}
    for item in found:
        if item.fate is not Fate.MOVES and (item.line, item.path) not in left:
            place = f"{source}:{item.line}: " + (f"{item.path}: " if item.path else "")
            text = f"{item.kind} {item.name} stays, but shares an anchor with an object that moves"
            raise InvalidSetting(f"{place}{text}: write the value out in both")


def place_of(file: Rewritten, folder: Path | None) -> Path:
    """Return the path to write a file to: its own, or the same path below a folder."""
    source = Path(file.source)
    return source if folder is None else folder / source.relative_to(file.base)


def store(file: Rewritten, path: Path) -> None:
    """Write a file.

    Raises:
        InvalidSetting: The file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.after, encoding="utf-8", newline="")
    except OSError as error:
        raise InvalidSetting(f"{path}: cannot be written: {error.strerror}") from error
