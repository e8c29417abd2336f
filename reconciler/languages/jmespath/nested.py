"""Expressions with variables inside them, as ``a."{{ b }}"``.

The text of an inner variable is data and stays data. Inside quotes, it becomes part of the string
at evaluation, without another parse, whatever characters it contains. Outside of quotes, it
becomes part of the expression, so it must be a field path or a number there; the expression is
then compiled at evaluation, and compiled ones are kept up to a limit.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from reconciler.errors import EvaluationError, InvalidPolicy
from reconciler.languages.jmespath.expression import Expression, from_tree, with_inner
from reconciler.languages.jmespath.faults import Unforgiven
from reconciler.languages.jmespath.limits import DEFAULT_LIMITS, Limits, Run
from reconciler.languages.jmespath.runtime import Node, chain
from reconciler.languages.jmespath.syntax import Source, decode_json, parse, quoted
from reconciler.languages.jmespath.values import as_text, plain

_NAME = r'(?:[A-Za-z_][A-Za-z0-9_]*|"[^"\\]*")'
_PATH_OR_NUMBER = re.compile(rf"-?[0-9]{{1,18}}|{_NAME}(?:\.{_NAME}|\[-?[0-9]{{1,18}}\])*")
_STAND_IN = "____"
_PRIVATE = range(0xE000, 0xF8FF)
_INDEX = 0xF0000


@dataclass(frozen=True, slots=True, kw_only=True)
class Hole:
    """A variable inside an expression: its place in the source, and its own expression."""

    start: int
    end: int
    inner: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class _Quoted:
    """A quoted part with holes in it, and the closure that returns its value."""

    start: int
    end: int
    node: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outer:
    """The outer expression.

    Attributes:
        shown: The text as written.
        fixed: The same, with a marker of equal length for each quoted part that has holes.
        marker: The character that markers begin with.
        parts: The quoted parts that have holes.
        free: The holes outside of quotes.
    """

    shown: str
    fixed: str
    marker: str
    parts: tuple[_Quoted, ...]
    free: tuple[Hole, ...]
    limits: Limits
    late: bool

    def texts(self, value: Any) -> Node | None:
        """Return the closure for a marker, None for every other text."""
        if not isinstance(value, str) or not value.startswith(self.marker) or len(value) == 1:
            return None
        index = ord(value[1]) - _INDEX
        return self.parts[index].node if 0 <= index < len(self.parts) else None

    def compile(self, texts: Sequence[str], *, location: str) -> Expression:
        """Compile with `texts` in place of the free holes.

        Raises:
            InvalidPolicy: The result is not a valid expression.
        """
        text = self._fill(self.fixed, texts)
        # Stand-ins are as long as their holes, so messages can show the author's own text.
        shown = self.shown if len(text) == len(self.shown) else self._fill(self.shown, texts)
        source = Source(text=text, shown=shown, location=location)
        return from_tree(
            parse(source, self.limits),
            source,
            limits=self.limits,
            texts=self.texts,
            unknown=_is_stand_in,
            late=self.late,
        )

    def _fill(self, text: str, texts: Sequence[str]) -> str:
        for hole, filling in reversed(list(zip(self.free, texts, strict=True))):
            text = text[: hole.start] + filling + text[hole.end :]
        return text


def compile_nested(
    source: str,
    holes: Sequence[Hole],
    *,
    location: str = "",
    limits: Limits = DEFAULT_LIMITS,
    late: bool = False,
) -> Expression:
    """Compile an expression that has holes; see `compile_expression`.

    Raises:
        InvalidPolicy: The expression cannot be compiled, whatever the values of the holes.
    """
    marker = _marker(source, location)
    masked = source
    for hole in holes:
        masked = masked[: hole.start] + marker * (hole.end - hole.start) + masked[hole.end :]
    parts = _quoted_parts(Source(text=masked, shown=source, location=location), holes)
    outer = _Outer(
        shown=source,
        fixed=_with_markers(masked, parts, marker),
        marker=marker,
        parts=tuple(parts),
        free=tuple(
            hole for hole in holes if not any(part.start < hole.start < part.end for part in parts)
        ),
        limits=limits,
        late=late,
    )
    stand_ins = [_stand_in(source, hole) for hole in outer.free]
    shape = outer.compile(stand_ins, location=location)
    expression = with_inner(shape, [hole.inner for hole in holes])
    return replace(expression, node=_spliced(outer), shares=True) if outer.free else expression


def _spliced(outer: _Outer) -> Node:
    @lru_cache(maxsize=outer.limits.spliced)
    def compiled(texts: tuple[str, ...]) -> Node:
        return outer.compile(texts, location="").node

    def evaluate(value: Any, run: Run) -> Any:
        texts = tuple(_spliceable(hole.inner, run) for hole in outer.free)
        try:
            node = compiled(texts)
        except InvalidPolicy as error:
            raise EvaluationError(error.reason) from error
        return node(value, run)

    return evaluate


def _spliceable(inner: Expression, run: Run) -> str:
    text = inner_text(inner, run)
    if not _PATH_OR_NUMBER.fullmatch(text):
        raise EvaluationError(
            f"the value of {inner.source} becomes part of an expression, but is neither a field"
            " path nor a number; write the variable inside quotes"
        )
    return text


def _stand_in(source: str, hole: Hole) -> str:
    before = source[: hole.start].rstrip()
    letter = "0" if before.endswith(("[", ":", "-")) else "_"
    return letter * (hole.end - hole.start)


def _is_stand_in(name: Any) -> bool:
    return _STAND_IN in str(name)


def read_path(source: str, path: Sequence[str | int]) -> Expression:
    """Return the expression for ``@``: the value at `path` in the target, else in the trigger."""
    in_target, in_trigger = chain(("target", *path)), chain(("request", "object", *path))

    def read(_value: Any, run: Run) -> Any:
        return (in_target if "target" in run.root else in_trigger)(run.root, run)

    names = _leading_names(path)
    return Expression(
        source=source,
        roots=frozenset({"request"}),
        reads=frozenset({("request", "object", *names), ("target", *names)}),
        functions=frozenset(),
        node=read,
        shares=False,
    )


def _leading_names(path: Sequence[str | int]) -> list[str]:
    names: list[str] = []
    for step in path:
        if isinstance(step, int):
            break
        names.append(step)
    return names


def inner_text(inner: Expression, run: Run) -> str:
    """Return the text of an inner variable, which is always resolved from the root of the data.

    A missing key in it is an error of its own, which the outer expression cannot swallow.
    """
    try:
        return as_text(inner.resolve(run), run)
    except EvaluationError as error:
        raise Unforgiven(f"failed to resolve {inner.source}: {error}") from error


def _quoted_parts(source: Source, holes: Sequence[Hole]) -> list[_Quoted]:
    parts = []
    for quote, start, end in quoted(source.text):
        inside = [hole for hole in holes if start < hole.start and hole.end < end]
        if not inside:
            continue
        pieces = _pieces(source.text, start + 1, end - 1, inside)
        try:
            node = _json_node(pieces) if quote == "`" else _text_node(pieces, quote)
        except ValueError:
            source.refuse(start, "the text around {{ }} is not a valid string")
        parts.append(_Quoted(start=start, end=end, node=node))
    return parts


def _pieces(source: str, start: int, end: int, holes: Sequence[Hole]) -> list[str | Expression]:
    pieces: list[str | Expression] = []
    for hole in holes:
        if start < hole.start:
            pieces.append(source[start : hole.start])
        pieces.append(hole.inner)
        start = hole.end
    if start < end:
        pieces.append(source[start:end])
    return pieces


def _text_node(pieces: Sequence[str | Expression], quote: str) -> Node:
    decode = _decode_raw if quote == "'" else _decode_name
    ready = [decode(piece) if isinstance(piece, str) else piece for piece in pieces]

    def text(_value: Any, run: Run) -> str:
        result = "".join(
            piece if isinstance(piece, str) else inner_text(piece, run) for piece in ready
        )
        run.check_text(len(result))
        return result

    return text


def _json_node(pieces: Sequence[str | Expression]) -> Node:
    ready: list[tuple[str | Expression, bool]] = []
    inside = False
    for piece in pieces:
        if isinstance(piece, str):
            text = piece.replace("\\`", "`")
            ready.append((text, inside))
            inside ^= _toggles(text)
        else:
            ready.append((piece, inside))

    def value(_value: Any, run: Run) -> Any:
        texts = []
        for piece, in_string in ready:
            text = piece if isinstance(piece, str) else inner_text(piece, run)
            if in_string and not isinstance(piece, str):
                text = json.dumps(text, ensure_ascii=False)[1:-1]
            texts.append(text)
        whole = "".join(texts)
        run.check_text(len(whole))
        try:
            return decode_json(whole)
        except ValueError:
            msg = "the literal between backticks is not JSON once its variables are put in"
            raise EvaluationError(msg) from None

    return value


def _toggles(text: str) -> bool:
    """Return whether a piece of JSON text has an odd number of quotes that are not escaped."""
    return len(re.sub(r"\\.", "", text).split('"')) % 2 == 0


def _decode_raw(text: str) -> str:
    return text.replace("\\'", "'")


def _decode_name(text: str) -> str:
    decoded = plain(json.loads(f'"{text}"'))
    return str(decoded)


def _with_markers(masked: str, parts: Sequence[_Quoted], marker: str) -> str:
    for index, part in enumerate(parts):
        quote = '"' if masked[part.start] == '"' else "'"
        body = (marker + chr(_INDEX + index)).ljust(part.end - part.start - 2, marker)
        masked = masked[: part.start] + quote + body + quote + masked[part.end :]
    return masked


def _marker(source: str, location: str) -> str:
    for code in _PRIVATE:
        if chr(code) not in source:
            return chr(code)
    raise InvalidPolicy(location, "the expression uses all private characters of Unicode")
