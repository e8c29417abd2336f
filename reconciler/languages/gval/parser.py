"""Parses the text of an expression into its tree."""

import re
from collections.abc import Callable
from typing import Final, NoReturn, TypeVar

from reconciler.engine.values.gonumbers import parse_float
from reconciler.languages.gval.functions import FUNCTIONS
from reconciler.languages.gval.lexer import Token, TokenKind, tokens
from reconciler.languages.gval.operators import PRECEDENCES, PREFIX
from reconciler.languages.gval.syntax import (
    Array,
    Call,
    Choice,
    Constant,
    Descent,
    Entry,
    Filter,
    Infix,
    Key,
    Mapping,
    Node,
    Path,
    Placeholder,
    Prefix,
    Script,
    Slice,
    Step,
    SyntaxFault,
    Union,
    Variable,
    Wildcard,
)

_LOWEST: Final = -1
_OPERATOR: Final = re.compile(r"[-=!<>&|+*/%^~?in]*")
_MOST_DIGITS: Final = 9
_SLICE: Final = (Constant(0.0), Constant(float(2**31 - 1)), Constant(1.0))
"""Defaults for the start, the end and the step of a slice."""

_Found = TypeVar("_Found")


class Parser:
    """Parses one expression, token by token."""

    def __init__(self, source: str, depth: int) -> None:
        self._source = source
        self._tokens = tuple(tokens(source))
        self._next = 0
        self._left = depth
        self._captures: list[bool] = []

    def expression(self) -> Node:
        """Parse the whole text as an expression.

        Raises:
            SyntaxFault: The text is not an expression.
        """
        node = self._expression()
        self._end()
        return node

    def path(self) -> Path:
        """Parse the whole text as a path, without anything around it.

        Raises:
            SyntaxFault: The text is not a path.
        """
        if not self._at("$", "@"):
            self._refuse("a path begins with $ or @")
        node = self._path()
        self._end()
        return node

    # -- tokens ---------------------------------------------------------------------------

    @property
    def _token(self) -> Token:
        return self._tokens[self._next]

    def _advance(self) -> Token:
        token = self._token
        self._next += 1
        return token

    def _at(self, *signs: str) -> bool:
        token = self._token
        return token.kind is TokenKind.SIGN and token.text in signs

    def _take(self, sign: str) -> bool:
        if self._at(sign):
            self._next += 1
            return True
        return False

    def _need(self, sign: str, where: str) -> None:
        if not self._take(sign):
            self._refuse(f'"{sign}" is missing {where}')

    def _end(self) -> None:
        if self._token.kind is not TokenKind.END:
            self._refuse("nothing may follow here")

    def _refuse(self, reason: str) -> NoReturn:
        raise SyntaxFault(f"{reason}, found {self._token.shown}", self._token.position)

    def _nested(self, read: Callable[[], _Found]) -> _Found:
        if not self._left:
            self._refuse("it is nested too deeply")
        self._left -= 1
        found = read()
        self._left += 1
        return found

    # -- operators ------------------------------------------------------------------------

    def _expression(self) -> Node:
        return self._nested(self._whole)

    def _whole(self) -> Node:
        node = self._infix(_LOWEST)
        while self._operator() == "?":
            self._advance()
            yes = self._expression()
            no: Node = Constant(None)
            if self._take(":"):
                no = self._expression()
            elif self._token.kind is not TokenKind.END:
                self._refuse('":" is missing after "?"')
            node = Choice(node, yes, no)
        return node

    def _infix(self, binding: int) -> Node:
        left = self._operand()
        while True:
            operator = self._operator()
            precedence = PRECEDENCES.get(operator, _LOWEST)
            if precedence <= binding:
                return left
            self._next += 1 if self._token.kind is TokenKind.NAME else len(operator)
            left = Infix(operator, left, self._infix(precedence))

    def _operator(self) -> str:
        """Return the operator at the current token, empty if there is none; consume nothing.

        As in the original, it is the whole run of signs without a space between them, and after
        the first sign the letters of ``in`` count as signs as well.
        """
        token = self._token
        if token.kind is TokenKind.NAME:
            return token.text if token.text in PRECEDENCES else ""
        if token.kind is not TokenKind.SIGN:
            return ""
        run = token.text
        if found := _OPERATOR.match(self._source, token.position):
            run = found[0]
        if run in PRECEDENCES or run == "?":
            return run
        if len(run) > 1:
            known = next((run[:end] for end in (2, 1) if run[:end] in PRECEDENCES), run[0])
            reason = f'there is no operator {run}: write a space after "{known}"'
            raise SyntaxFault(reason, token.position)
        return ""

    def _operand(self) -> Node:
        token = self._token
        if token.kind is TokenKind.NUMBER:
            return self._number()
        if token.kind is TokenKind.TEXT:
            return Constant(self._advance().text)
        if token.kind is TokenKind.NAME:
            return self._named()
        if token.text in PREFIX:
            self._advance()
            return Prefix(token.text, self._nested(self._operand))
        return self._enclosed()

    def _enclosed(self) -> Node:
        if self._at("$", "@"):
            return self._path()
        if self._take("["):
            return self._array()
        if self._take("{"):
            return self._mapping()
        if self._take("#"):
            return self._placeholder()
        if not self._take("("):
            self._refuse("a value is missing")
        node = self._expression()
        self._need(")", "after a part in parentheses")
        return node

    # -- operands -------------------------------------------------------------------------

    def _number(self) -> Constant:
        token = self._token
        value = parse_float(token.text)
        if value is None:
            self._refuse("a decimal number is expected")
        self._advance()
        return Constant(value)

    def _named(self) -> Node:
        name = self._advance().text
        if name in ("true", "false"):
            return Constant(name == "true")
        if name in FUNCTIONS:
            return Call(name, self._arguments() if self._take("(") else ())
        keys: list[Node] = [Constant(name)]
        while True:
            if self._take("."):
                if self._token.kind is not TokenKind.NAME:
                    self._refuse("a name is missing")
                part = self._advance().text
                name = f"{name}.{part}"
                keys.append(Constant(part))
            elif self._take("["):
                keys.append(self._expression())
                self._need("]", "after a key")
            elif self._take("("):
                return Call(name, self._arguments())
            else:
                return Variable(tuple(keys))

    def _arguments(self) -> tuple[Node, ...]:
        found: list[Node] = []
        if self._take(")"):
            return ()
        while True:
            found.append(self._expression())
            if self._take(")"):
                return tuple(found)
            self._need(",", "between arguments")

    def _array(self) -> Array:
        items: list[Node] = []
        while not self._take("]"):
            if not self._take(","):
                items.append(self._expression())
        return Array(tuple(items))

    def _mapping(self) -> Mapping:
        entries: list[Entry] = []
        while not self._take("}"):
            if not self._take(","):
                entries.append(self._entry())
        return Mapping(tuple(entries))

    def _entry(self) -> Entry:
        self._captures.append(False)
        key = self._expression()
        captures = self._captures.pop()
        if self._token.kind is TokenKind.END:
            self._refuse('":" is missing after the key of a map')
        # As in the original, the token after the key is not checked and may be any other.
        self._advance()
        if not captures:
            return Entry(key, self._expression(), captures=False)
        if not self._at("$", "@"):
            self._refuse("a key with # needs a path after it")
        return Entry(key, self._path(), captures=True)

    def _placeholder(self) -> Placeholder:
        if not self._captures:
            self._refuse("# is allowed only in the key of a map")
        self._captures[-1] = True
        if self._token.kind is TokenKind.NUMBER and self._token.text.isdecimal():
            if len(self._token.text) > _MOST_DIGITS:
                self._refuse(f"the number of a key has at most {_MOST_DIGITS} digits")
            return Placeholder(int(self._advance().text))
        return Placeholder(None)

    # -- paths ----------------------------------------------------------------------------

    def _path(self) -> Path:
        from_root = self._advance().text == "$"
        steps: list[Step] = []
        while True:
            if self._take("."):
                self._member(steps)
            elif self._take("["):
                steps.append(self._bracket())
            elif self._take("("):
                steps.append(self._script())
            else:
                return Path(from_root, tuple(steps))

    def _member(self, steps: list[Step]) -> None:
        if self._take("."):
            steps.append(Descent())
            steps.append(self._after_descent())
        elif self._take("*"):
            steps.append(Wildcard())
        elif self._token.kind is TokenKind.NAME:
            steps.append(Key(Constant(self._advance().text)))
        else:
            self._refuse("a name, .. or * is missing")

    def _after_descent(self) -> Step:
        if self._token.kind is TokenKind.NAME:
            return Key(Constant(self._advance().text))
        if self._take("*"):
            return Wildcard()
        if self._take("("):
            return self._script()
        position = self._token.position
        self._need("[", "after .. (or a name)")
        step = self._bracket()
        if isinstance(step, Slice):
            raise SyntaxFault("a slice cannot follow ..", position)
        # After .. a key selects one of several hits, and is captured as such.
        return Union((step.key,)) if isinstance(step, Key) else step

    def _script(self) -> Script:
        node = self._expression()
        self._need(")", "after a script")
        return Script(node)

    def _bracket(self) -> Step:
        position = self._token.position
        keys, separator = self._keys()
        if separator == "*":
            return Wildcard()
        if separator == "?":
            if len(keys) != 1:
                raise SyntaxFault("a filter has one condition", position)
            return Filter(keys[0])
        if separator == ":":
            if len(keys) > len(_SLICE):
                raise SyntaxFault("a slice has at most a start, an end and a step", position)
            return Slice(*keys, *_SLICE[len(keys) :])
        return Key(keys[0]) if len(keys) == 1 else Union(tuple(keys))

    def _keys(self) -> tuple[list[Node], str]:
        """Parse the keys in brackets, as the original does; return them and their separator.

        The separator is ``*`` where all members are selected, also after other keys.
        """
        keys: list[Node] = []
        separator = ""
        while True:
            if self._take("*"):
                self._need("]", 'after "*"')
                return [], "*"
            if self._at(":"):
                # The default of an omitted part: the end after one key, else the start.
                keys.append(_SLICE[1] if len(keys) == 1 else _SLICE[0])
            elif not self._at("?") and not (self._at("]") and separator == ":"):
                keys.append(self._expression())
            if not self._at(":", ",", "]") and not (self._at("?") and not keys):
                self._refuse('"]" is missing after a key')
            sign = self._advance().text
            separator = separator or sign
            if sign == "]":
                return keys, separator
            if sign != separator:
                raise SyntaxFault("keys, slices and filters do not mix", self._token.position)
