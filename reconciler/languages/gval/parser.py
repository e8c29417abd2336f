"""From the text of an expression to its tree."""

from collections.abc import Callable
from typing import Final, NoReturn, TypeVar

from reconciler.engine.values.gonumbers import parse_float
from reconciler.languages.gval.functions import FUNCTIONS
from reconciler.languages.gval.lexer import Token, TokenKind, tokens
from reconciler.languages.gval.operators import DECIDED, INFIX, PRECEDENCES, PREFIX, REGEX
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
from reconciler.languages.gval.values import Failure

_LOWEST: Final = -1
_TO_THE_END: Final = float(2**31 - 1)
_SLICE: Final = 3

_Found = TypeVar("_Found")


class Parser:
    """Reads one expression, token by token."""

    def __init__(self, source: str, depth: int) -> None:
        self._tokens = tuple(tokens(source))
        self._next = 0
        self._left = depth
        self._captures: list[bool] = []

    def expression(self) -> Node:
        """Read all of it as an expression.

        Raises:
            SyntaxFault: It is none.
        """
        node = self._expression()
        self._end()
        return node

    def path(self) -> Path:
        """Read all of it as a path, and nothing around it.

        Raises:
            SyntaxFault: It is none.
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
            self._refuse("nothing can stand there")

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
        while self._take("?"):
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
            token = self._token
            precedence = PRECEDENCES.get(token.text, _LOWEST)
            if token.kind not in (TokenKind.SIGN, TokenKind.NAME) or precedence <= binding:
                return left
            self._advance()
            right = self._infix(precedence)
            left = self._folded(Infix(token.text, left, right), token)

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
            return self._folded(Prefix(token.text, self._nested(self._operand)), token)
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

    def _folded(self, node: Infix | Prefix, token: Token) -> Node:
        """Compute what is made of literals; what fails there fails always."""
        try:
            if isinstance(node, Prefix):
                if isinstance(node.operand, Constant):
                    return Constant(PREFIX[node.operator](node.operand.value))
                return node
            left, right = node.left, node.right
            if isinstance(left, Constant) and isinstance(right, Constant):
                if node.operator in DECIDED and DECIDED[node.operator](left.value):
                    return Constant(left.value)
                if node.operator not in REGEX:
                    return Constant(INFIX[node.operator](left.value, right.value))
        except Failure as error:
            raise SyntaxFault(str(error), token.position) from None
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
        self._need(":", "after the key of a map")
        if not captures:
            return Entry(key, self._expression(), captures=False)
        if not self._at("$", "@"):
            self._refuse("a key with # needs a path after it")
        return Entry(key, self._path(), captures=True)

    def _placeholder(self) -> Placeholder:
        if not self._captures:
            self._refuse("# stands in the key of a map only")
        self._captures[-1] = True
        if self._token.kind is TokenKind.NUMBER and self._token.text.isdecimal():
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
        self._need("[", "or a name after ..")
        step = self._bracket()
        if isinstance(step, Slice):
            raise SyntaxFault("a slice cannot stand after ..", position)
        # After .. a key is one of several hits, and captured as such.
        return Union((step.key,)) if isinstance(step, Key) else step

    def _script(self) -> Script:
        node = self._expression()
        self._need(")", "after a script")
        return Script(node)

    def _bracket(self) -> Step:
        if self._take("*"):
            self._need("]", 'after "[*"')
            return Wildcard()
        if self._take("?"):
            condition = self._expression()
            self._need("]", "after a filter")
            return Filter(condition)
        if self._at(":"):
            return self._slice(None)
        first = self._expression()
        if self._at(":"):
            return self._slice(first)
        keys = [first]
        while self._take(","):
            keys.append(self._expression())
        self._need("]", "after a key")
        return Key(first) if len(keys) == 1 else Union(tuple(keys))

    def _slice(self, first: Node | None) -> Slice:
        parts = [first]
        while self._take(":"):
            parts.append(None if self._at(":", "]") else self._expression())
        if len(parts) > _SLICE:
            self._refuse("a slice has at most a start, an end and a step")
        self._need("]", "after a slice")
        parts += [None] * (_SLICE - len(parts))
        defaults = (0.0, _TO_THE_END, 1.0)
        start, end, step = (
            Constant(default) if part is None else part
            for part, default in zip(parts, defaults, strict=True)
        )
        return Slice(start, end, step)
