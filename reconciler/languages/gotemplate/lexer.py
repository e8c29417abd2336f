"""The lexer of templates, with the tokens of text/template of Go 1.19."""

import re
from collections.abc import Iterator
from enum import Enum, auto
from typing import Final, NamedTuple

from reconciler.languages.gotemplate.faults import TemplateSyntaxError

_LEFT: Final = "{{"
_RIGHT: Final = "}}"
_SPACES: Final = " \t\r\n"
_OPENING: Final = re.compile(r"\{\{(-[ \t\r\n])?")
_CLOSING: Final = re.compile(r"\}\}|[ \t\r\n]-\}\}[ \t\r\n]*")
_TERMINATORS: Final = frozenset(" \t\r\n.,|:()")
_KEYWORDS: Final = frozenset(
    {
        "block", "break", "continue", "define", "else", "end", "if", "range", "nil", "template",
        "with",
    }
)  # fmt: skip
_NUMBER: Final = re.compile(
    r"[+-]?(?:"
    r"0[xX][0-9a-fA-F_]*(?:\.[0-9a-fA-F_]*)?(?:[pP][+-]?[0-9_]*)?"
    r"|0[oO][0-7_]*(?:\.[0-7_]*)?"
    r"|0[bB][01_]*(?:\.[01_]*)?"
    r"|[0-9_]*(?:\.[0-9_]*)?(?:[eE][+-]?[0-9_]*)?"
    r")i?"
)
_QUOTED: Final = {
    '"': re.compile(r'"(?:[^"\\\n]|\\[^\n])*"'),
    "'": re.compile(r"'(?:[^'\\\n]|\\[^\n])*'"),
    "`": re.compile(r"`[^`]*`"),
}
_UNENDED: Final = {
    '"': "a quoted string without its closing quote",
    "'": "a character constant without its closing quote",
    "`": "a raw string without its closing quote",
}


class Kind(Enum):
    """The kind of a token."""

    TEXT = auto()
    LEFT = auto()
    RIGHT = auto()
    SPACE = auto()
    PIPE = auto()
    ASSIGN = auto()
    DECLARE = auto()
    OPEN = auto()
    CLOSE = auto()
    STRING = auto()
    CHARACTER = auto()
    NUMBER = auto()
    COMPLEX = auto()
    BOOL = auto()
    DOT = auto()
    FIELD = auto()
    VARIABLE = auto()
    IDENTIFIER = auto()
    KEYWORD = auto()
    SIGN = auto()
    END = auto()


class Token(NamedTuple):
    """A token with its text in the template."""

    kind: Kind
    text: str
    position: int


_QUOTES: Final = {'"': Kind.STRING, "`": Kind.STRING, "'": Kind.CHARACTER}
_SINGLE: Final = {"|": Kind.PIPE, "=": Kind.ASSIGN}


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of a template; the last one has the kind END.

    Raises:
        TemplateSyntaxError: The text contains an invalid token.
    """
    position = 0
    while opening := _OPENING.search(text, position):
        plain = text[position : opening.start()]
        if plain := plain.rstrip(_SPACES) if opening[1] else plain:
            yield Token(Kind.TEXT, plain, position)
        position = opening.end()
        if text.startswith("/*", position):
            position = _comment_end(text, position)
            continue
        yield Token(Kind.LEFT, _LEFT, opening.start())
        action = _Action(text, position)
        yield from action.tokens()
        position = action.position
    if position < len(text):
        yield Token(Kind.TEXT, text[position:], position)
    yield Token(Kind.END, "", len(text))


def _comment_end(text: str, start: int) -> int:
    end = text.find("*/", start + 2)
    if end < 0:
        raise TemplateSyntaxError.at(text, start, "a comment without its end */")
    closing = _CLOSING.match(text, end + 2)
    if closing is None:
        reason = "a comment must be an action of its own; write }} directly after its end */"
        raise TemplateSyntaxError.at(text, end, reason)
    return closing.end()


def _is_word(character: str) -> bool:
    return character == "_" or character.isalpha() or character.isdecimal()


class _Action:
    """The lexer of one action, between its delimiters.

    Attributes:
        position: Of the next character; in the end behind the closing delimiter.
    """

    def __init__(self, text: str, position: int) -> None:
        self.text = text
        self.position = position
        self._open = 0

    def tokens(self) -> Iterator[Token]:
        text = self.text
        while True:
            closing = _CLOSING.match(text, self.position)
            if closing is not None:
                if self._open:
                    raise self._wrong("a parenthesis without its closing one")
                yield Token(Kind.RIGHT, _RIGHT, self.position)
                self.position = closing.end()
                return
            if self.position >= len(text):
                raise self._wrong("an action without its closing }}")
            yield self._next(text[self.position])

    def _next(self, first: str) -> Token:
        if first in _SPACES:
            return self._token(Kind.SPACE, self._space_end())
        if first in _QUOTES:
            return self._quoted(first)
        following = self.text[self.position + 1 : self.position + 2]
        if first in "+-" or "0" <= first <= "9" or (first == "." and "0" <= following <= "9"):
            return self._number()
        if first in ".$":
            return self._name(Kind.FIELD if first == "." else Kind.VARIABLE)
        return self._word() if _is_word(first) else self._sign(first, following)

    def _sign(self, sign: str, following: str) -> Token:
        if sign in "()":
            return self._parenthesis(sign)
        if sign == ":":
            if following != "=":
                raise self._wrong("a : that is not followed by =")
            return self._token(Kind.DECLARE, self.position + 2)
        if not (sign.isascii() and sign.isprintable()):
            raise self._wrong("a character that is not allowed in an action")
        return self._token(_SINGLE.get(sign, Kind.SIGN), self.position + 1)

    def _token(self, kind: Kind, end: int) -> Token:
        token = Token(kind, self.text[self.position : end], self.position)
        self.position = end
        return token

    def _space_end(self) -> int:
        end = self.position
        while end < len(self.text) and self.text[end] in _SPACES:
            end += 1
        # The last space may belong to a closing delimiter that trims.
        trims = self.text.startswith("-" + _RIGHT, end) and end - 1 > self.position
        return end - 1 if trims else end

    def _quoted(self, quote: str) -> Token:
        found = _QUOTED[quote].match(self.text, self.position)
        if found is None:
            raise self._wrong(_UNENDED[quote])
        return self._token(_QUOTES[quote], found.end())

    def _parenthesis(self, sign: str) -> Token:
        self._open += 1 if sign == "(" else -1
        if self._open < 0:
            raise self._wrong("a closing parenthesis without an opening one")
        return self._token(Kind.OPEN if sign == "(" else Kind.CLOSE, self.position + 1)

    def _number(self) -> Token:
        end = self._number_end(self.position)
        if self.text[end : end + 1] not in {"+", "-"}:
            return self._token(Kind.NUMBER, end)
        end = self._number_end(end)
        if self.text[end - 1] != "i":
            raise self._wrong("a number that cannot be read")
        return self._token(Kind.COMPLEX, end)

    def _number_end(self, start: int) -> int:
        found = _NUMBER.match(self.text, start)
        end = found.end() if found else start
        if end < len(self.text) and _is_word(self.text[end]):
            raise self._wrong("a number that cannot be read")
        return end

    def _name(self, kind: Kind) -> Token:
        end = self._word_end(self.position + 1)
        if end == self.position + 1 and kind is Kind.FIELD:
            kind = Kind.DOT
        return self._token(kind, end)

    def _word(self) -> Token:
        end = self._word_end(self.position)
        word = self.text[self.position : end]
        if word in _KEYWORDS:
            return self._token(Kind.KEYWORD, end)
        return self._token(Kind.BOOL if word in {"true", "false"} else Kind.IDENTIFIER, end)

    def _word_end(self, end: int) -> int:
        text = self.text
        while end < len(text) and _is_word(text[end]):
            end += 1
        if end == len(text) or text[end] in _TERMINATORS or text.startswith(_RIGHT, end):
            return end
        self.position = end
        raise self._wrong(
            f"the character {text[end]!r} is not allowed in a name; use index for such a key"
        )

    def _wrong(self, reason: str) -> TemplateSyntaxError:
        return TemplateSyntaxError.at(self.text, self.position, reason)
