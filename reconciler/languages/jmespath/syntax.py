"""Parses the text of an expression into its tree, with the parser of package `jmespath`."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NoReturn, cast

from jmespath.exceptions import IncompleteExpressionError, LexerError, ParseError
from jmespath.parser import Parser

from reconciler.errors import InvalidPolicy
from reconciler.languages.jmespath.limits import Limits
from reconciler.languages.jmespath.values import plain

Tree = dict[str, Any]


class _Parser(Parser):
    """The package's parser, changed so that ``a[0][1:].b`` is no projection; ``a[1:].b`` is."""

    _CACHE: ClassVar[dict[str, Any]] = {}

    def _token_led_lbracket(self, left: Tree) -> Any:
        ahead = self._lookahead  # type: ignore[attr-defined]
        if left["type"] == "index_expression" and "colon" in {ahead(0), ahead(1)}:
            left = {"type": "subexpression", "children": [left]}
        return super()._token_led_lbracket(left)  # type: ignore[misc]


_SHOWN = 120
_WORD = re.compile(r"\S[A-Za-z0-9_]{0,40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The text of an expression.

    Attributes:
        shown: The text as the author wrote it; as long as `text`, so that columns agree.
    """

    text: str
    shown: str
    location: str = ""

    def refuse(self, position: int, reason: str) -> NoReturn:
        """Raise InvalidPolicy for a place in the text; `position` counts from zero."""
        raise InvalidPolicy(self.location, self.said_of(position, reason))

    def said_of(self, position: int, reason: str) -> str:
        """Return the message of `refuse` for a place in the text."""
        shown = self.shown if len(self.shown) <= _SHOWN else self.shown[:_SHOWN] + "..."
        return f"incorrect expression {shown!r}, column {position + 1}: {reason}"


def parse(source: Source, limits: Limits) -> Tree:
    """Parse an expression.

    Raises:
        InvalidPolicy: It is not an expression, too long or too deep; the reason has the column.
    """
    if not source.text.strip():
        raise InvalidPolicy(source.location, "the expression is empty")
    if len(source.text) > limits.source:
        source.refuse(limits.source, "the expression is too long")
    try:
        _check_literals(source)
        tree = cast("Tree", _Parser().parse(source.text).parsed)
    except ParseError as error:
        source.refuse(error.lex_position, _reason(error, source.shown))
    except (ValueError, IndexError, KeyError):
        source.refuse(0, "not a valid expression")
    except RecursionError:
        source.refuse(0, "the expression is nested too deeply")
    if _deeper_than(tree, limits.depth):
        source.refuse(0, f"the expression is nested deeper than {limits.depth} levels")
    return tree


def quoted(source: str) -> Iterator[tuple[str, int, int]]:
    """Yield ``(quote, start, end)`` of each quoted part, quotes included.

    An unclosed part ends at the end of the text; the parser reports it.
    """
    position = 0
    while position < len(source):
        quote = source[position]
        if quote not in "'\"`":
            position += 1
            continue
        end = position + 1
        while end < len(source) and source[end] != quote:
            end += 2 if source[end] == "\\" else 1
        end = min(end + 1, len(source))
        yield quote, position, end
        position = end


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)


def decode_json(text: str) -> Any:
    """Decode strictly: no NaN, no infinity, numbers within range.

    Raises:
        ValueError: `text` is not JSON.
    """
    return plain(_DECODER.decode(text))


def _check_literals(source: Source) -> None:
    # The parser reads a literal that is not JSON as a string; the language has no such form.
    text = source.text
    for quote, start, end in quoted(text):
        if quote != "`" or end - start == 1 or text[end - 1] != quote:
            continue
        try:
            decode_json(text[start + 1 : end - 1].replace("\\`", "`"))
        except ValueError:
            source.refuse(start, "the literal between backticks is not JSON")


def _reason(error: ParseError, shown: str) -> str:
    if isinstance(error, IncompleteExpressionError):
        return "the expression ends too early"
    if isinstance(error, LexerError) and error.message.startswith("Unclosed"):
        return "the quote is not closed"
    found = _WORD.match(shown, error.lex_position)
    return f"unexpected {found[0]!r}" if found else "the expression ends too early"


def _deeper_than(tree: Tree, depth: int) -> bool:
    waiting: list[tuple[Any, int]] = [(tree, 1)]
    while waiting:
        node, level = waiting.pop()
        if not isinstance(node, dict):
            continue
        if level > depth:
            return True
        waiting.extend((child, level + 1) for child in node["children"])
    return False
