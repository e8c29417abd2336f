"""Functions that split, join, search and quote strings.

Positions and lengths count bytes, as in the original.
"""

from collections.abc import Callable, Iterable
from typing import Any

from reconciler.languages.gotemplate.functions.runes import SPACES, is_space
from reconciler.languages.gotemplate.limits import Run
from reconciler.languages.gotemplate.printing import text_of
from reconciler.languages.gotemplate.quoting import quote
from reconciler.languages.gotemplate.signature import (
    ANY,
    INT,
    STRING,
    Failure,
    Family,
    Function,
    family,
    function,
    plain,
)
from reconciler.languages.gotemplate.values import Map, Slice, decode, encode, loaded

_LEAST = 4
_LEAST_WITH_OFFSET = 7
_DOTS = b"..."


def strslice(run: Run, value: Any) -> list[str]:
    """Return the texts of the elements of a list that are not null, or that of a single value."""
    if isinstance(value, list):
        run.visit(len(value))
        return [text_of(run, loaded(item)) for item in value if item is not None]
    return [] if value is None else [text_of(run, value)]


def strings(items: Iterable[str]) -> Slice:
    """Return a slice of strings."""
    return Slice(items, STRING)


def _trunc(count: int, text: str) -> str:
    content = encode(text)
    if count < 0 and len(content) + count > 0:
        return decode(content[count:])
    return decode(content[:count]) if 0 <= count < len(content) else text


def _substr(start: int, end: int, text: str) -> str:
    content = encode(text)
    if start < 0:
        return decode(content[: _within(end, content)])
    if end < 0 or end > len(content):
        return decode(content[_within(start, content) :])
    if start > end:
        raise Failure("the start is greater than the end")
    return decode(content[start:end])


def _within(bound: int, content: bytes) -> int:
    if not 0 <= bound <= len(content):
        raise Failure("a bound lies outside of the string")
    return bound


def _abbrev(width: int, text: str) -> str:
    return text if width < _LEAST else decode(_abbreviated(encode(text), 0, width))


def _abbrevboth(left: int, right: int, text: str) -> str:
    if right < _LEAST or (left > 0 and right < _LEAST_WITH_OFFSET):
        return text
    return decode(_abbreviated(encode(text), left, right))


def _abbreviated(content: bytes, offset: int, width: int) -> bytes:
    if len(content) <= width:
        return content
    kept = width - len(_DOTS)
    offset = min(offset, len(content))
    if len(content) - offset < kept:
        offset = len(content) - kept
    if offset <= _LEAST:
        return content[:kept] + _DOTS
    if width < _LEAST_WITH_OFFSET:
        return b""
    if offset + kept < len(content):
        rest = content[offset:]
        return _DOTS + (_abbreviated(rest, 0, kept) if kept >= _LEAST else b"")
    return _DOTS + content[len(content) - kept :]


def _nospace(text: str) -> str:
    # Byte by byte, as in the original: each byte that is kept becomes a character.
    content = encode(text)
    kept = [chr(byte) for byte in content if not is_space(chr(byte))]
    return text if len(kept) == len(content) else "".join(kept)


def _initials(text: str) -> str:
    content = "".join(map(chr, encode(text)))  # byte by byte, too
    before = f" {content}"
    return "".join(
        each
        for each, previous in zip(content, before, strict=False)
        if is_space(previous) and not is_space(each)
    )


def _repeat(run: Run, count: int, text: str) -> str:
    if count < 0:
        raise Failure("a negative count")
    run.write(count * len(text))
    return text * count


def _trim_all(cut: str, text: str) -> str:
    return text.strip("".join(set(cut))) if cut else text


def _indent(run: Run, spaces: int, text: str) -> str:
    if spaces < 0:
        raise Failure("a negative count")
    run.write(len(text) + (text.count("\n") + 1) * spaces)
    pad = " " * spaces
    return pad + text.replace("\n", f"\n{pad}")


def _nindent(run: Run, spaces: int, text: str) -> str:
    return "\n" + _indent(run, spaces, text)


def _replace(run: Run, old: str, new: str, text: str) -> str:
    count = text.count(old)
    run.write(len(text) + count * max(len(new) - len(old), 0))
    return text.replace(old, new)


def _wrap(run: Run, width: int, text: str) -> str:
    return _wrapped(run, text, width, b"\n", cuts=False)


def _wrap_with(run: Run, width: int, separator: str, text: str) -> str:
    return _wrapped(run, text, width, encode(separator) or b"\n", cuts=True)


def _wrapped(run: Run, text: str, width: int, line_break: bytes, *, cuts: bool) -> str:
    """Break lines at spaces after at most `width` bytes; `cuts` words that are longer."""
    content, width, offset = encode(text), max(width, 1), 0
    run.write(len(content) + (len(content) // width + 1) * len(line_break))
    lines: list[bytes] = []
    while len(content) - offset > width:
        if content[offset : offset + 1] == b" ":
            offset += 1
            continue
        end = content.rfind(b" ", offset, offset + width + 1)
        if end < 0 and not cuts:
            end = content.find(b" ", offset + width)
            if end < 0:
                break
        if end < 0:
            lines.append(content[offset : offset + width])
            offset += width
        else:
            lines.append(content[offset:end])
            offset = end + 1
    return decode(line_break.join([*lines, content[offset:]]))


def _spaced(form: Callable[[str], str]) -> Function:
    def spaced(run: Run, *values: Any) -> str:
        return " ".join(form(text_of(run, value)) for value in values if value is not None)

    return function(spaced, rest=ANY)


def _join(run: Run, separator: str, value: Any) -> str:
    texts = strslice(run, value)
    run.write(sum(map(len, texts)) + len(separator) * len(texts))
    return separator.join(texts)


def _parts(run: Run, separator: str, text: str, count: int = -1) -> list[str]:
    """Split a text at a separator; an empty one splits it into characters."""
    if count == 0:
        return []
    parts = list(text) if not separator else text.split(separator, count - 1 if count > 0 else -1)
    if not separator and 0 < count < len(parts):
        parts = [*parts[: count - 1], "".join(parts[count - 1 :])]
    run.grow(len(parts))
    return parts


def _split_list(run: Run, separator: str, text: str) -> Slice:
    return strings(_parts(run, separator, text))


def _split(run: Run, separator: str, text: str) -> Map:
    return _numbered(_parts(run, separator, text))


def _splitn(run: Run, separator: str, count: int, text: str) -> Map:
    return _numbered(_parts(run, separator, text, count))


def _numbered(parts: list[str]) -> Map:
    return Map({f"_{index}": part for index, part in enumerate(parts)}, STRING)


def _to_strings(run: Run, value: Any) -> Slice:
    if isinstance(value, Slice) and value.element == STRING:
        return value  # itself, as in the original
    return strings(strslice(run, value))


def _sort_alpha(run: Run, value: Any) -> Slice:
    texts = strings([text_of(run, value)]) if value is None else _to_strings(run, value)
    run.visit(len(texts))
    texts.sort(key=encode)  # a list of texts is sorted in place, as in the original
    return texts


FUNCTIONS: Family = family(
    {
        "hello": plain(lambda: "Hello!"),
        "abbrev": plain(_abbrev, INT, STRING),
        "abbrevboth": plain(_abbrevboth, INT, INT, STRING),
        "trunc": plain(_trunc, INT, STRING),
        "substr": plain(_substr, INT, INT, STRING),
        "trim": plain(lambda text: text.strip(SPACES), STRING),
        "trimAll": plain(_trim_all, STRING, STRING),
        "trimSuffix": plain(lambda end, text: text.removesuffix(end), STRING, STRING),
        "trimPrefix": plain(lambda start, text: text.removeprefix(start), STRING, STRING),
        "nospace": plain(_nospace, STRING),
        "initials": plain(_initials, STRING),
        "repeat": function(_repeat, INT, STRING),
        "contains": plain(lambda part, text: part in text, STRING, STRING),
        "hasPrefix": plain(lambda start, text: text.startswith(start), STRING, STRING),
        "hasSuffix": plain(lambda end, text: text.endswith(end), STRING, STRING),
        "indent": function(_indent, INT, STRING),
        "nindent": function(_nindent, INT, STRING),
        "replace": function(_replace, STRING, STRING, STRING),
        "wrap": function(_wrap, INT, STRING),
        "wrapWith": function(_wrap_with, INT, STRING, STRING),
        "quote": _spaced(quote),
        "squote": _spaced("'{}'".format),
        "cat": _spaced(str),
        "join": function(_join, STRING, ANY),
        "split": function(_split, STRING, STRING),
        "splitn": function(_splitn, STRING, INT, STRING),
        "splitList": function(_split_list, STRING, STRING),
        "toString": function(text_of, ANY),
        "toStrings": function(_to_strings, ANY),
        "sortAlpha": function(_sort_alpha, ANY),
        "plural": plain(lambda one, many, count: one if count == 1 else many, STRING, STRING, INT),
    },
    trimall="trimAll",
)
