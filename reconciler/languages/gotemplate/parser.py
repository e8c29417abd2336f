"""The parser of templates, with the grammar of text/template of Go 1.19."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from reconciler.languages.gotemplate import constants
from reconciler.languages.gotemplate.faults import TemplateSyntaxError
from reconciler.languages.gotemplate.lexer import Kind, Token, tokens
from reconciler.languages.gotemplate.limits import Limits
from reconciler.languages.gotemplate.nodes import (
    Action,
    Break,
    Call,
    Chain,
    Command,
    Constant,
    Continue,
    Control,
    Dot,
    Field,
    Identifier,
    Nil,
    Node,
    Operand,
    Pipe,
    Text,
    Variable,
)

Body = tuple[Node, ...]

_CONTROLS: Final = frozenset({"if", "with", "range"})
_OPERANDS: Final = frozenset(
    {
        Kind.BOOL, Kind.CHARACTER, Kind.COMPLEX, Kind.DOT, Kind.FIELD, Kind.IDENTIFIER,
        Kind.NUMBER, Kind.STRING, Kind.VARIABLE, Kind.OPEN,
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Parsed:
    """A template and the templates that it defines.

    Attributes:
        body: Of the template itself.
        defined: The bodies of the defined templates, by name.
        called: The names of all functions in it.
    """

    body: Body
    defined: dict[str, Body]
    called: frozenset[str]


def parse(
    text: str, *, known: Collection[str], unknown: Callable[[str], str], limits: Limits
) -> Parsed:
    """Parse a template.

    Args:
        known: The names of the functions that it may call.
        unknown: Returns the error message for the name of any other function.

    Raises:
        TemplateSyntaxError: The text is no valid template.
    """
    if len(text) > limits.source:
        reason = f"the template is longer than {limits.source} characters"
        raise TemplateSyntaxError.at(text, 0, reason)
    parser = _Parser(text, known, unknown, limits, list(tokens(text)))
    body = parser.template()
    return Parsed(body, parser.defined, frozenset(parser.called))


def _is_empty(body: Body) -> bool:
    return all(isinstance(node, Text) and not node.text.strip() for node in body)


@dataclass(slots=True)
class _Scope:
    """The state of the parser within one template definition."""

    variables: list[str] = field(default_factory=lambda: ["$"])
    ranges: int = 0


@dataclass(slots=True)
class _Parser:
    """The parser at a position among the tokens."""

    text: str
    known: Collection[str]
    unknown: Callable[[str], str]
    limits: Limits
    tokens: list[Token]
    index: int = 0
    depth: int = 0
    scope: _Scope = field(default_factory=_Scope)
    defined: dict[str, Body] = field(default_factory=dict)
    called: set[str] = field(default_factory=set)

    def template(self) -> Body:
        """Parse the whole text."""
        body: list[Node] = []
        while self._peek().kind is not Kind.END:
            if self._at_keyword("define"):
                self._definition()
                continue
            nodes, ending = self._list(until_define=True)
            body += nodes
            if ending is not None:
                raise self._wrong(f"{{{{{ending}}}}} does not belong to any action")
        return tuple(body)

    def _peek(self) -> Token:
        return self.tokens[self.index]

    def _next(self) -> Token:
        token = self.tokens[self.index]
        self.index += 1
        return token

    def _skip_space(self) -> Token:
        while self._peek().kind is Kind.SPACE:
            self.index += 1
        return self._peek()

    def _expect(self, kind: Kind, what: str) -> Token:
        token = self._skip_space()
        if token.kind is not kind:
            raise self._unexpected(what)
        return self._next()

    def _at_keyword(self, word: str) -> bool:
        """Return whether an action with a keyword comes next."""
        if self._peek().kind is not Kind.LEFT:
            return False
        index = self.index + 1
        while self.tokens[index].kind is Kind.SPACE:
            index += 1
        token = self.tokens[index]
        return token.kind is Kind.KEYWORD and token.text == word

    def _definition(self) -> None:
        self._next()
        self._skip_space()
        self._next()
        name = self._name("define")
        self._expect(Kind.RIGHT, "define")
        self._define(name)

    def _define(self, name: str) -> None:
        """Parse the body of a definition; an empty one does not replace an earlier one."""
        outer, self.scope = self.scope, _Scope()
        start = self.index
        self._deeper()
        body = self._ended_list()
        self.depth -= 1
        self.scope = outer
        known = self.defined.get(name)
        if known is None or _is_empty(known):
            self.defined[name] = body
        elif not _is_empty(body):
            self.index = start
            raise self._wrong("a template of this name is defined twice")

    def _deeper(self) -> None:
        self.depth += 1
        if self.depth > self.limits.nesting:
            raise self._wrong(f"nested deeper than {self.limits.nesting} levels")

    def _ended_list(self) -> Body:
        body, ending = self._list()
        if ending != "end":
            raise self._wrong("an {{else}} where {{end}} is expected")
        return body

    def _list(self, *, until_define: bool = False) -> tuple[Body, str | None]:
        """Parse up to an ``end`` or ``else``, or to the end of the whole template.

        Args:
            until_define: The list is the outermost: a definition or the end of the text ends it.
        """
        body: list[Node] = []
        while True:
            token = self._peek()
            if token.kind is Kind.END:
                if until_define:
                    return tuple(body), None
                raise self._wrong("the text ends before an {{end}}")
            if token.kind is Kind.TEXT:
                self._next()
                body.append(Text(token.text))
                continue
            if until_define and self._at_keyword("define"):
                return tuple(body), None
            self._next()
            ending = self._ending()
            if ending is not None:
                return tuple(body), ending
            body.append(self._action())

    def _ending(self) -> str | None:
        token = self._skip_space()
        if token.kind is not Kind.KEYWORD or token.text not in {"end", "else"}:
            return None
        self._next()
        following = self._skip_space()
        if token.text == "end" or (following.kind, following.text) != (Kind.KEYWORD, "if"):
            self._expect(Kind.RIGHT, token.text)
        return token.text

    def _action(self) -> Node:
        token = self._skip_space()
        if token.kind is not Kind.KEYWORD or token.text == "nil":
            return Action(token.position, self._pipe("an action", Kind.RIGHT))
        self._next()
        match token.text:
            case "if" | "with" | "range":
                return self._control(token.text)
            case "break" | "continue":
                return self._jump(token)
            case "template":
                return self._call(token)
            case "block":
                return self._block(token)
            case _:
                self.index -= 1
                raise self._unexpected("an action")

    def _jump(self, token: Token) -> Node:
        self._expect(Kind.RIGHT, token.text)
        if not self.scope.ranges:
            raise self._wrong(f"{{{{{token.text}}}}} outside {{{{range}}}}")
        return Break() if token.text == "break" else Continue()

    def _call(self, token: Token) -> Node:
        name = self._name("template")
        if self._skip_space().kind is Kind.RIGHT:
            self._next()
            return Call(token.position, name, None)
        return Call(token.position, name, self._pipe("template", Kind.RIGHT))

    def _block(self, token: Token) -> Node:
        name = self._name("block")
        pipe = self._pipe("block", Kind.RIGHT)
        self._define(name)
        return Call(token.position, name, pipe)

    def _name(self, what: str) -> str:
        return self._string(self._expect(Kind.STRING, what))

    def _control(self, keyword: str) -> Control:
        mark = len(self.scope.variables)
        pipe = self._pipe(keyword, Kind.RIGHT)
        self._deeper()
        self.scope.ranges += keyword == "range"
        body, ending = self._list()
        self.scope.ranges -= keyword == "range"
        otherwise = self._otherwise(keyword) if ending == "else" else None
        self.depth -= 1
        del self.scope.variables[mark:]
        return Control(pipe.position, keyword, pipe, body, otherwise)

    def _otherwise(self, keyword: str) -> Body:
        token = self._skip_space()
        if token.kind is Kind.KEYWORD and token.text == "if":
            if keyword != "if":
                raise self._unexpected("else")
            self._next()
            return (self._control("if"),)
        return self._ended_list()

    def _pipe(self, what: str, end: Kind) -> Pipe:
        position = self._skip_space().position
        declared, assigns = self._declarations(what)
        commands: list[Command] = []
        while self._skip_space().kind is not end:
            token = self._peek()
            if token.kind not in _OPERANDS and (token.kind, token.text) != (Kind.KEYWORD, "nil"):
                raise self._unexpected(what)
            commands.append(self._command())
        if not commands:
            raise self._wrong(f"a value is missing in {what}")
        self._next()
        for command in commands[1:]:
            if isinstance(command.operands[0], Constant | Dot | Nil):
                reason = "something that is not a function gets the value of a pipeline"
                raise TemplateSyntaxError.at(self.text, command.position, reason)
        return Pipe(position, tuple(commands), declared, assigns)

    def _declarations(self, what: str) -> tuple[tuple[str, ...], bool]:
        declared: list[str] = []
        while self._peek().kind is Kind.VARIABLE:
            start = self.index
            variable = self._next()
            following = self._skip_space()
            declares = following.kind in {Kind.ASSIGN, Kind.DECLARE}
            if not declares and (following.kind, following.text) != (Kind.SIGN, ","):
                self.index = start
                break
            self._next()
            declared.append(variable.text)
            self.scope.variables.append(variable.text)
            follows = self._skip_space().kind
            if declares:
                return tuple(declared), following.kind is Kind.ASSIGN
            if what != "range" or len(declared) > 1 or follows is not Kind.VARIABLE:
                raise self._wrong(f"too many declarations in {what}")
        # {{range $i, $v}} without := declares the first and takes the second as its value.
        return tuple(declared), False

    def _command(self) -> Command:
        position = self._skip_space().position
        operands: list[Operand] = []
        while True:
            self._skip_space()
            operand = self._operand()
            if operand is not None:
                operands.append(operand)
            kind = self._peek().kind
            if kind in {Kind.SPACE, Kind.PIPE}:
                self.index += 1
            elif kind not in {Kind.RIGHT, Kind.CLOSE}:
                raise self._unexpected("an operand")
            if kind is not Kind.SPACE:
                break
        if not operands:
            raise self._wrong("a command is empty")
        return Command(position, tuple(operands))

    def _operand(self) -> Operand | None:
        node = self._term()
        if node is None or self._peek().kind is not Kind.FIELD:
            return node
        position = self._peek().position
        names: list[str] = []
        while self._peek().kind is Kind.FIELD:
            names.append(self._next().text[1:])
        if isinstance(node, Constant | Nil | Dot):
            raise TemplateSyntaxError.at(self.text, position, "a constant has no fields")
        if isinstance(node, Field):
            return Field(node.position, (*node.names, *names))
        if isinstance(node, Variable):
            return Variable(node.position, node.name, tuple(names))
        return Chain(position, node, tuple(names))

    def _term(self) -> Operand | None:
        token = self._skip_space()
        self.index += 1
        match token.kind:
            case Kind.IDENTIFIER:
                return self._identifier(token)
            case Kind.DOT:
                return Dot(token.position)
            case Kind.FIELD:
                return Field(token.position, (token.text[1:],))
            case Kind.VARIABLE:
                if token.text not in self.scope.variables:
                    raise self._at(token, f"the variable {token.text} is not defined here")
                return Variable(token.position, token.text)
            case Kind.KEYWORD if token.text == "nil":
                return Nil(token.position)
            case Kind.OPEN:
                self._deeper()
                pipe = self._pipe("parentheses", Kind.CLOSE)
                self.depth -= 1
                return pipe
            case _:
                return self._literal(token)

    def _identifier(self, token: Token) -> Identifier:
        if token.text not in self.known:
            raise self._at(token, self.unknown(token.text))
        self.called.add(token.text)
        return Identifier(token.position, token.text)

    def _literal(self, token: Token) -> Constant | None:
        try:
            match token.kind:
                case Kind.BOOL:
                    return Constant(token.position, token.text == "true")
                case Kind.STRING:
                    return Constant(token.position, constants.unquoted(token.text))
                case Kind.CHARACTER:
                    return constants.character(token.text, token.position)
                case Kind.NUMBER:
                    return constants.number(token.text, token.position)
                case Kind.COMPLEX:
                    return constants.complex_number(token.text, token.position)
                case _:
                    self.index -= 1
                    return None
        except ValueError as error:
            raise self._at(token, str(error)) from error

    def _string(self, token: Token) -> str:
        try:
            return constants.unquoted(token.text)
        except ValueError as error:
            raise self._at(token, str(error)) from error

    def _at(self, token: Token, reason: str) -> TemplateSyntaxError:
        return TemplateSyntaxError.at(self.text, token.position, reason)

    def _wrong(self, reason: str) -> TemplateSyntaxError:
        return self._at(self._peek(), reason)

    def _unexpected(self, what: str) -> TemplateSyntaxError:
        token = self._peek()
        found = "the end" if token.kind is Kind.END else token.text.strip() or "a space"
        return self._wrong(f"{found} is not expected in {what}")
