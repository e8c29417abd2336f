"""Splits an expression into tokens, which are those of Go."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from reconciler.engine.values.goescapes import ESCAPE, unescape
from reconciler.languages.gval.syntax import SyntaxFault


class TokenKind(Enum):
    """The kind of a token."""

    NAME = "name"
    NUMBER = "number"
    TEXT = "text"
    SIGN = "sign"
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """A token of an expression.

    Attributes:
        text: As written; for a text literal, its value.
        position: Index of its first character.
    """

    kind: TokenKind
    text: str
    position: int

    @property
    def shown(self) -> str:
        """The name of the token in a message."""
        if self.kind is TokenKind.END:
            return "the end of the expression"
        return "a string" if self.kind is TokenKind.TEXT else f'"{self.text}"'


_TOKEN: Final = re.compile(
    r"""
      (?P<space>[ \t\r\n]+ | //[^\n]* | /\*.*?(?:\*/|\Z) | \A\ufeff)
    | (?P<name>[^\W\d]\w*)
    | (?P<number>
        0[bBoO][0-9_]*
      | (?:0[xX][0-9a-fA-F_]*\.?[0-9a-fA-F_]*|[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)
        (?:[eEpP][+-]?[0-9_]*)?
      )
    | (?P<quoted>"(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*')
    | (?P<raw>`[^`]*`)
    | (?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)


def tokens(source: str) -> Iterator[Token]:
    """Yield the tokens, the last one of kind END; comments are skipped.

    A sign is one character: whether the next one belongs to it depends on the context.

    Raises:
        SyntaxFault: A literal does not end, or has an escape that Go does not define.
    """
    for match in _TOKEN.finditer(source):
        position, text = match.start(), match[0]
        match match.lastgroup:
            case "space":
                continue
            case "name":
                _check_letters(text, position)
                yield Token(TokenKind.NAME, text, position)
            case "number":
                yield Token(TokenKind.NUMBER, text, position)
            case "quoted":
                yield Token(TokenKind.TEXT, _unquoted(text, position), position)
            case "raw":
                yield Token(TokenKind.TEXT, text[1:-1].replace("\r", ""), position)
            case _:
                if text in "\"'`":
                    raise SyntaxFault("a string is not closed", position)
                yield Token(TokenKind.SIGN, text, position)
    yield Token(TokenKind.END, "", len(source))


def _check_letters(name: str, position: int) -> None:
    # Regular expressions accept numerals such as ² in names, Go does not.
    for offset, character in enumerate(name):
        if not (character.isalpha() or character.isdecimal() or character == "_"):
            raise SyntaxFault(f"{character} is allowed only in strings", position + offset)


def _unquoted(literal: str, position: int) -> str:
    quote, inner = literal[0], literal[1:-1]
    # An escaped byte may be a part of a character.
    written = bytearray()
    end, parts = 0, 0
    for match in ESCAPE.finditer(inner):
        written += inner[end : match.start()].encode("utf-8", "surrogatepass")
        written += _escaped(match, quote, position + 1 + match.start())
        parts += match.start() - end + 1
        end = match.end()
    written += inner[end:].encode("utf-8", "surrogatepass")
    # Go accepts single quotes without a character.
    if quote == "'" and parts + len(inner) - end > 1:
        reason = "a string needs double quotes; single quotes hold one character"
        raise SyntaxFault(reason, position)
    return written.decode("utf-8", "replace")


def _escaped(match: re.Match[str], quote: str, position: int) -> bytes:
    try:
        return unescape(match, quote)
    except ValueError:
        reason = f"unknown escape {match[0]}: write a backslash in a string twice"
        raise SyntaxFault(reason, position) from None
