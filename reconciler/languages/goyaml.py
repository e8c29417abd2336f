"""YAML read into JSON values as sigs.k8s.io/yaml does it, over go-yaml 2.

It is what a value of a policy becomes whose original is a Go program: `y` and `on` are true, also
as keys; 017 is fifteen; a repeated key wins; a merge counts where it stands; what follows the
first document, or a complete value in brackets or quotes, is ignored.

The document is built from the parser's events: the library would compose it by recursion, and a
hundred thousand brackets, which may come out of an object, would end the process.
"""

import base64
import binascii
import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final

import yaml
from yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    DocumentEndEvent,
    Event,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from reconciler.engine.values.gonumbers import (
    INT64_MAX,
    format_float,
    parse_float,
    parse_int64,
    parse_uint64,
)

_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

MAX_DEPTH: Final = 200
MAX_VALUES: Final = 100_000
"""Values of one document, those behind aliases counted each time they are named."""


class YAMLError(ValueError):
    """The text is no YAML, or is nothing that JSON can hold.

    Attributes:
        problem: What is wrong, without any part of the text.
        line: From 1; 0 where no place is known.
        column: From 1; 0 where no place is known.
    """

    def __init__(self, problem: str, line: int = 0, column: int = 0) -> None:
        place = f"line {line}, column {column}: " if line else ""
        super().__init__(f"is not YAML: {place}{problem}")
        self.problem = problem
        self.line = line
        self.column = column


def parse(content: str | bytes, *, depth: int = MAX_DEPTH, values: int = MAX_VALUES) -> Any:
    """Read the first document; None where there is none.

    Args:
        content: Any text; bytes are UTF-8.
        depth: Levels of maps and lists that it may have.
        values: Values that it may have, those behind aliases counted each time.

    Raises:
        YAMLError: It cannot be read.
    """
    try:
        text = content if isinstance(content, str) else content.decode()
        # Most values are a text in quotes, which is what stands between them.
        if found := _QUOTED.fullmatch(text):
            return found[1]
        return _first_document(text, depth, values)
    except yaml.MarkedYAMLError as error:
        problem = error.problem or "it cannot be parsed"
        raise YAMLError(problem, *_place(error.problem_mark)) from error
    except yaml.YAMLError as error:
        raise YAMLError("control characters are not allowed") from error
    except UnicodeError as error:
        raise YAMLError("it is not valid UTF-8: a character was cut in its middle") from error


def _first_document(text: str, depth: int, values: int) -> Any:
    text = text.removeprefix("\ufeff")
    parser = _Parser(text)
    document = _Document(text if "\\/" in text else "", depth, values)
    try:
        # What stands behind the first document is not even parsed, as in the original.
        while not isinstance(event := parser.get_event(), DocumentEndEvent | StreamEndEvent):
            document.take(event)
    finally:
        parser.dispose()
    if not document.root:
        return None
    if document.is_endless:
        _refuse_endless(document.root)
    return document.root[0]


def _place(mark: Any) -> tuple[int, int]:
    return (mark.line + 1, mark.column + 1) if mark else (0, 0)


def _refusal(event: Event, problem: str) -> YAMLError:
    return YAMLError(problem, *_place(event.start_mark))


@dataclass(frozen=True, slots=True)
class _Node:
    """A value that is complete.

    Attributes:
        value: What it is.
        count: The values in it, itself among them, as it is when written out.
        height: How deep it is.
        aliased: It was named by an alias.
    """

    value: Any
    count: int = 1
    height: int = 0
    aliased: bool = False


@dataclass(frozen=True, slots=True)
class _Endless:
    """Stands for a number that JSON has not, for as long as no later key takes its place."""

    refusal: YAMLError


def _refuse_endless(value: Any) -> None:
    if isinstance(value, _Endless):
        raise value.refusal
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            _refuse_endless(part)


@dataclass(slots=True)
class _Frame:
    """A map or list that is being filled.

    Attributes:
        value: Of the map or list.
        anchor: Its name, where it has one.
        before: The values of the document before this one.
        key: Of the value that comes next, None where a key comes next.
        merges: The value that comes next is merged.
        height: How deep it is so far.
    """

    value: dict[str, Any] | list[Any]
    anchor: str | None
    before: int
    key: str | None = None
    merges: bool = False
    height: int = 1


@dataclass(slots=True)
class _Document:
    """The document so far; an anchor without a node belongs to a value that is not complete.

    Attributes:
        text: Of the whole document, where it may hold the escape that only the parser knows.
        depth: Levels that it may have.
        values: Values that it may have.
        root: Its value, once it is complete.
        frames: Maps and lists that are being filled, the outermost first.
        anchors: What aliases may name.
        count: Its values so far.
        is_endless: A number in it is infinite, or none.
    """

    text: str
    depth: int
    values: int
    root: list[Any] = field(default_factory=list)
    frames: list[_Frame] = field(default_factory=list)
    anchors: dict[str, _Node | None] = field(default_factory=dict)
    count: int = 0
    is_endless: bool = False

    def take(self, event: Event) -> None:
        """Work an event in."""
        match event:
            case ScalarEvent():
                if self.text and event.style == '"':
                    self._refuse_solidus(event)
                node = _Node(_scalar(event))
                if event.anchor:
                    self.anchors[event.anchor] = node
                self._put(event, node)
            case SequenceStartEvent():
                self._open(event, [])
            case MappingStartEvent():
                self._open(event, {})
            case CollectionEndEvent():
                self._close(event)
            case AliasEvent():
                self._put(event, self._named(event))
            case _:
                pass

    def _put(self, event: Event, node: _Node) -> None:
        self.count += node.count
        if self.count > self.values:
            problem = f"it has more than {self.values} values, those behind aliases counted"
            raise _refusal(event, problem)
        if len(self.frames) + node.height > self.depth:
            raise _refusal(event, f"it is nested deeper than {self.depth} levels")
        if not self.frames:
            self.root.append(self._value(event, node.value))
            return
        frame = self.frames[-1]
        frame.height = max(frame.height, node.height + 1)
        if isinstance(frame.value, list):
            frame.value.append(self._value(event, node.value))
        else:
            self._put_into(frame, frame.value, event, node)

    def _put_into(self, frame: _Frame, into: dict[str, Any], event: Event, node: _Node) -> None:
        """Take a node as the next key or value of a map."""
        if frame.merges:
            _merge(event, into, node)
            frame.merges = False
        elif frame.key is not None:
            into[frame.key] = self._value(event, node.value)
            frame.key = None
        elif _is_merge(event):
            frame.merges = True
        else:
            frame.key = _key(event, node.value)

    def _value(self, event: Event, value: Any) -> Any:
        """Give what JSON makes of a value: it has one kind of numbers, and none without an end."""
        if not isinstance(value, float):
            return value
        if not math.isfinite(value):
            self.is_endless = True
            problem = "JSON has no infinite number, and none that is not a number"
            return _Endless(_refusal(event, problem))
        # The digits that JSON text would have, not those of the binary value.
        is_whole = value.is_integer() and abs(value) < _EXPONENT
        return int(Decimal(repr(value))) if is_whole else value

    def _refuse_solidus(self, event: ScalarEvent) -> None:
        start, end = event.start_mark, event.end_mark
        quoted = self.text[start.index : end.index] if start and end else ""
        if _SOLIDUS.search(quoted):
            raise _refusal(event, "an unknown escape character; a / needs no backslash")

    def _open(self, event: NodeEvent, value: dict[str, Any] | list[Any]) -> None:
        if len(self.frames) >= self.depth:
            raise _refusal(event, f"it is nested deeper than {self.depth} levels")
        if event.anchor:
            self.anchors[event.anchor] = None
        self.frames.append(_Frame(value, event.anchor, self.count))

    def _close(self, event: Event) -> None:
        frame = self.frames.pop()
        node = _Node(frame.value, self.count - frame.before + 1, frame.height)
        self.count = frame.before
        if frame.anchor:
            self.anchors[frame.anchor] = node
        self._put(event, node)

    def _named(self, event: AliasEvent) -> _Node:
        if event.anchor not in self.anchors:
            raise _refusal(event, "an alias names an anchor that does not stand before it")
        node = self.anchors[event.anchor]
        if node is None:
            raise _refusal(event, "the value of an anchor contains itself")
        return _Node(node.value, node.count, node.height, aliased=True)


def _is_merge(event: Event) -> bool:
    if not isinstance(event, ScalarEvent) or event.value != "<<":
        return False
    return bool(event.implicit[0]) or event.tag == f"{_TAG}merge"


def _merge(event: Event, into: dict[str, Any], node: _Node) -> None:
    """Write a map, or the maps of a list, over what is there; of a list the first one counts."""
    listed = isinstance(node.value, list) and not node.aliased
    for part in reversed(node.value) if listed else [node.value]:
        if not isinstance(part, dict):
            raise _refusal(event, "<< takes a map or a list of maps")
        into.update(part)


def _key(event: Event, value: Any) -> str:
    """Give the text that a key becomes.

    Raises:
        YAMLError: JSON has no such key.
    """
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case float():
            return _float_key(value)
        case int() if value <= INT64_MAX:
            return str(value)
    raise _refusal(event, "a key that is no text, truth value or number; write it in quotes")


def _float_key(value: float) -> str:
    """Write a key with the digits of a float of 32 bits, as the original does."""
    try:
        (narrow,) = struct.unpack("f", struct.pack("f", value))
    except OverflowError:
        narrow = math.copysign(math.inf, value)
    if not math.isfinite(narrow):
        return ".nan" if math.isnan(narrow) else ".inf" if narrow > 0 else "-.inf"
    texts = (f"{narrow:.{digits}g}" for digits in range(1, _FLOAT32_DIGITS + 1))
    fitting = (text for text in texts if struct.pack("f", float(text)) == struct.pack("f", narrow))
    return format_float(float(next(fitting, repr(narrow))))


def _scalar(event: ScalarEvent) -> Any:
    """Give what a scalar is read as: text, a number, a truth value or None."""
    text: str = event.value
    tag: str = event.tag or ""
    if not tag and not event.implicit[0]:
        return text
    if tag == f"{_TAG}binary":
        return _binary(event)
    if tag and tag not in _TAGS:
        return text
    value = text if tag == f"{_TAG}str" else _resolved(text)
    if tag and not _TAGS[tag](text, value):
        raise _refusal(event, f"the text does not fit its tag !!{tag.removeprefix(_TAG)}")
    return float(value) if tag == f"{_TAG}float" else value


def _binary(event: ScalarEvent) -> str:
    try:
        content = base64.b64decode(re.sub(r"[\r\n]", "", event.value), validate=True)
    except (binascii.Error, ValueError) as error:
        raise _refusal(event, "!!binary takes base64") from error
    return content.decode("utf-8", "replace")


def _resolved(text: str) -> Any:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] == ".":
        number = parse_float(text)
        return text if number is None else number
    return _number(text) if text[0] in _SIGNS_AND_DIGITS else text


def _number(text: str) -> int | float | str:
    plain = text.replace("_", "")
    whole = parse_int64(plain) if plain else None
    if whole is None:
        whole = parse_uint64(plain)
    if whole is not None:
        return whole
    number = parse_float(plain) if _FLOAT.fullmatch(plain) else None
    return text if number is None else number


def _is_time(text: str) -> bool:
    found = next(filter(None, (form.fullmatch(text) for form in _TIMESTAMPS)), None)
    if found is None:
        return False
    year, month, day, *clock = map(int, found.groups())
    hour, minute, second = clock or (0, 0, 0)
    try:
        datetime(year or 4, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return False
    return True


_TAG: Final = "tag:yaml.org,2002:"
_CONSTANTS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        **dict.fromkeys(("", "~", "null", "Null", "NULL")),
        **{
            form: meaning
            for words, meaning in (("true yes on y", True), ("false no off n", False))
            for word in words.split()
            for form in (word, word.capitalize(), word.upper())
        },
        **{
            sign + form: float(f"{sign}inf")
            for form in (".inf", ".Inf", ".INF")
            for sign in ("", "+", "-")
        },
        **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    }
)
_SIGNS_AND_DIGITS: Final = frozenset("+-0123456789")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_DATE: Final = r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
_CLOCK: Final = r"([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?:[.,][0-9]+)?"
_TIMESTAMPS: Final = tuple(
    re.compile(form)
    for form in (
        _DATE,
        f"{_DATE} {_CLOCK}",
        rf"{_DATE}[Tt]{_CLOCK}(?:Z|[-+][0-9]{{2}}:[0-9]{{2}})",
    )
)
_TAGS: Final[Mapping[str, Callable[[str, Any], bool]]] = MappingProxyType(
    {
        f"{_TAG}str": lambda _, value: isinstance(value, str),
        f"{_TAG}int": lambda _, value: type(value) is int,
        f"{_TAG}float": lambda _, value: (
            isinstance(value, float) or (type(value) is int and value <= INT64_MAX)
        ),
        f"{_TAG}bool": lambda _, value: isinstance(value, bool),
        f"{_TAG}null": lambda _, value: value is None,
        f"{_TAG}timestamp": lambda text, _: _is_time(text),
    }
)
_QUOTED: Final = re.compile(r'"([ !#-\[\]-~]*)"')
_SOLIDUS: Final = re.compile(r"(?<!\\)(?:\\\\)*\\/")
_EXPONENT: Final = 1e21
"""From here on JSON numbers are written with an exponent."""
_FLOAT32_DIGITS: Final = 9
