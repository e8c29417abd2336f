"""A parser for manifests in YAML or JSON, compatible with kubectl.

Documents are built from the parser's events: the composer of the C library recurses without
limit, so a file of nested brackets would crash the process.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from reconciler.api.depth import cut
from reconciler.errors import InvalidSetting
from reconciler.languages.jmespath.yamltext import Unreadable, refuse_tag, scalar_value

_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

MAX_DEPTH: Final = 200
MAX_VALUES: Final = 1_000_000
"""The maximum number of values in a document; aliased values count at each use."""

_SECOND: Final = "unexpected content after document"
_MERGE: Final = "<<"
_SHARED_LENGTH: Final = 64
_SHARED_TEXTS: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One document of a file.

    Attributes:
        source: The file as it was named; ``stdin`` for standard input.
        line: The first line of the document, counted from 1.
        size: The size of its text, in characters or bytes.
        found: Whether the file was found in a folder or by a wildcard, and not named.
    """

    source: str
    line: int
    value: Any
    size: int
    found: bool = False

    @property
    def place(self) -> str:
        """Return the place of the document for messages."""
        return f"{self.source}:{self.line}"


def parse_documents(content: bytes, source: str) -> Iterator[Document]:
    """Yield the documents of a file, without empty ones.

    Raises:
        InvalidSetting: The text cannot be parsed; the message has line and column.
    """
    if content.lstrip()[:1] == b"{":
        try:
            value = orjson.loads(content)
        except orjson.JSONDecodeError as error:
            if not _several(content):
                place = f"{source}:{error.lineno}:{error.colno}"
                cure = "; put --- between documents" if error.msg == _SECOND else ""
                raise InvalidSetting(f"{place}: is not JSON: {error.msg}{cure}") from error
        else:
            if cut(content, MAX_DEPTH) is not None:
                raise InvalidSetting(f"{source}:1:1: nested deeper than {MAX_DEPTH} levels")
            line = content.count(b"\n", 0, content.index(b"{")) + 1
            yield Document(source=source, line=line, value=value, size=len(content))
            return
    try:
        yield from _documents(content, source)
    except (yaml.MarkedYAMLError, Unreadable) as error:
        raise InvalidSetting(f"{source}{_mark(error)}: is not YAML: {error.problem}") from error
    except yaml.reader.ReaderError as error:
        raise InvalidSetting(f"{source}{_undecodable(content, error)}") from error
    except (yaml.YAMLError, UnicodeError) as error:
        problem = " ".join(str(error).split())
        raise InvalidSetting(f"{source}: is not YAML: {problem}") from error


def _mark(error: Any) -> str:
    mark = error.mark if isinstance(error, Unreadable) else error.problem_mark
    return f":{mark.line + 1}:{mark.column + 1}" if mark else ""


def _undecodable(content: bytes, error: Any) -> str:
    line = content.count(b"\n", 0, error.position) + 1
    before = content[content.rfind(b"\n", 0, error.position) + 1 : error.position]
    column = len(before.decode(errors="replace")) + 1
    problem = (
        "is not UTF-8: save it as UTF-8"
        if "UTF-" in error.reason
        else f"is not YAML: {error.reason} (#x{error.character:02x})"
    )
    return f":{line}:{column}: {problem}"


def _several(content: bytes) -> bool:
    # Flow style YAML, and JSON documents separated by ---, begin with a brace as well.
    return b"\n---" in content or b'"' not in content


def _documents(content: bytes, source: str) -> Iterator[Document]:
    texts: dict[str, str] = {}
    builder = _Builder(texts)
    line, start = 1, 0
    following = _Parser(content).get_event
    while True:
        event = following()
        kind = type(event)
        if kind is ScalarEvent:
            builder.scalar(event)
        elif kind is MappingStartEvent or kind is SequenceStartEvent:
            builder.open(event)
        elif kind is MappingEndEvent or kind is SequenceEndEvent:
            builder.close(event)
        elif kind is AliasEvent:
            builder.alias(event)
        elif kind is DocumentStartEvent:
            builder = _Builder(texts)
            line, start = event.start_mark.line + 1, event.start_mark.index
        elif kind is StreamEndEvent:
            return
        elif builder.root and builder.root[0] is not None:
            size = event.end_mark.index - start
            yield Document(source=source, line=line, value=builder.root.pop(), size=size)


@dataclass(slots=True)
class _Frame:
    """A map or list under construction."""

    items: dict[str, Any] | list[Any]
    anchor: str | None
    begun: int
    key: str | None = None
    merged: tuple[Any, ...] = ()


@dataclass(slots=True)
class _Builder:
    """Builds one document from parser events; ``count`` is the number of its values so far.

    Attributes:
        texts: Keys and short values that were read before, to share their memory: a file with
            many objects repeats them.
    """

    texts: dict[str, str]
    root: list[Any] = field(default_factory=list)
    frames: list[_Frame] = field(default_factory=list)
    anchors: dict[str, tuple[Any, int]] = field(default_factory=dict)
    count: int = 0

    def scalar(self, event: Any) -> None:
        frame = self.frames[-1] if self.frames else None
        if frame is not None and frame.key is None and type(frame.items) is dict:
            frame.key = self.share(event.value)
            return
        value = scalar_value(event, words=True)
        if type(value) is str:
            value = self.share(value)
        self.put(event, value)
        if event.anchor:
            self.anchors[event.anchor] = (value, 1)

    def share(self, text: str) -> str:
        if len(text) > _SHARED_LENGTH:
            return text
        texts = self.texts
        known = texts.get(text)
        if known is None:
            if len(texts) >= _SHARED_TEXTS:
                texts.clear()
            known = texts[text] = text
        return known

    def put(self, event: Event, value: Any) -> None:
        self.count += 1
        if not self.frames:
            self.root.append(value)
            return
        frame = self.frames[-1]
        items, key = frame.items, frame.key
        if isinstance(items, list):
            items.append(value)
        elif key is None:
            raise Unreadable(event, "a map, list or alias as a key; put {{ }} into quotes")
        elif key == _MERGE and not isinstance(value, str):
            frame.merged += (value,)
            frame.key = None
        else:
            if key in items:
                raise Unreadable(event, f"duplicate key {key}")
            items[key] = value
            frame.key = None

    def open(self, event: Any) -> None:
        if len(self.frames) >= MAX_DEPTH:
            raise Unreadable(event, f"nested deeper than {MAX_DEPTH} levels")
        if event.tag is not None:
            refuse_tag(event)
        frame = self.frames[-1] if self.frames else None
        if frame is not None and frame.key is None and type(frame.items) is dict:
            raise Unreadable(event, "a map or list as a key; put {{ }} into quotes")
        value: dict[str, Any] | list[Any] = [] if type(event) is SequenceStartEvent else {}
        self.frames.append(_Frame(value, event.anchor, self.count))

    def close(self, event: Event) -> None:
        # The anchor is registered only now, so no alias can refer to a node around it.
        frame = self.frames.pop()
        if frame.merged:
            _merge(event, frame)
        if frame.anchor:
            self.anchors[frame.anchor] = (frame.items, self.count - frame.begun + 1)
        self.put(event, frame.items)

    def alias(self, event: Any) -> None:
        if event.anchor not in self.anchors:
            raise Unreadable(event, f"nothing before has the anchor {event.anchor}")
        value, size = self.anchors[event.anchor]
        self.count += size
        if self.count > MAX_VALUES:
            raise Unreadable(event, f"with its aliases it has more than {MAX_VALUES} values")
        self.put(event, value)


def _merge(event: Event, frame: _Frame) -> None:
    for value in frame.merged:
        for part in value if isinstance(value, list) else [value]:
            if not isinstance(part, dict) or not isinstance(frame.items, dict):
                raise Unreadable(event, "<< takes a map or a list of maps")
            for key, item in part.items():
                frame.items.setdefault(key, item)
