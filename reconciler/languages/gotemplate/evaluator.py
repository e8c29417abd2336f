"""The evaluator of parsed templates, with the semantics of text/template of Go 1.19."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from reconciler.engine.allowance import STEPS_OF_ELEMENT
from reconciler.errors import EvaluationError
from reconciler.languages.gotemplate import signature
from reconciler.languages.gotemplate.faults import BreakRange, ContinueRange, place
from reconciler.languages.gotemplate.limits import Run
from reconciler.languages.gotemplate.nodes import (
    Action,
    Break,
    Call,
    Chain,
    Command,
    Constant,
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
from reconciler.languages.gotemplate.printing import sprint
from reconciler.languages.gotemplate.signature import Failure, Function
from reconciler.languages.gotemplate.values import (
    MISSING,
    Int,
    Int64,
    Map,
    Record,
    deref,
    loaded,
    truth,
    type_name,
)

Body = tuple[Node, ...]

_ANY: Final = frozenset({signature.ANY, signature.VALUE})
_INTEGERS: Final[Mapping[str, type[Int]]] = {
    signature.INT: Int,
    signature.INT64: Int64,
    signature.DURATION: Int64,
}


_ABSENT: Final = object()
"""Stands for a missing receiver or pipeline value."""
_NAMED: Final = (Identifier, Field, Chain)
"""What may take arguments, as a variable with fields may."""


@dataclass(slots=True)
class Rendering:
    """One rendering of a template.

    Attributes:
        text: Of the template, for the positions in errors.
        functions: The functions that it may call, by name.
        templates: The templates that it defines, by name.
        run: Counts the cost.
        written: The pieces of the output.
    """

    text: str
    functions: Mapping[str, Function]
    templates: Mapping[str, Body]
    run: Run
    written: list[str] = field(default_factory=list)
    _length: int = 0
    _depth: int = 0
    _variables: list[tuple[str, Any]] = field(default_factory=list)

    def render(self, body: Body, data: Any) -> str:
        """Render a body on data.

        Raises:
            EvaluationError: The template cannot be rendered on this data.
        """
        self._variables = [("$", data)]
        self._walk_all(body, data)
        return "".join(self.written)

    def _write(self, text: str) -> None:
        self._length += len(text)
        self.run.write(self._length)
        self.written.append(text)

    def _deeper(self, position: int) -> None:
        self._depth += 1
        if self._depth > self.run.limits.depth:
            limit = self.run.limits.depth
            raise self._fault(position, f"nested deeper than {limit} levels while it is rendered")

    # -- output ------------------------------------------------------------------------------

    def _walk_all(self, body: Body, dot: Any) -> None:
        for node in body:
            self.run.spend(STEPS_OF_ELEMENT)
            match node:
                case Text():
                    self._write(node.text)
                case Action():
                    value = self._pipe(node.pipe, dot)
                    if not node.pipe.declared:
                        self._print(value, node.position)
                case Control():
                    self._control(node, dot)
                case Call():
                    self._call(node, dot)
                case Break():
                    raise BreakRange
                case _:
                    raise ContinueRange

    def _print(self, value: Any, position: int) -> None:
        if type(value) is str:
            self._write(value)
            return
        value = deref(value)
        if value is MISSING:
            self._write("<no value>")
            return
        try:
            self._write(sprint(self.run, value))
        except Failure as failure:
            raise self._fault(position, str(failure)) from failure

    def _control(self, node: Control, dot: Any) -> None:
        mark = len(self._variables)
        self._deeper(node.position)
        if node.keyword == "range":
            self._range(node, dot)
        else:
            value = self._pipe(node.pipe, dot)
            if truth(value):
                self._walk_all(node.body, value if node.keyword == "with" else dot)
            elif node.otherwise is not None:
                self._walk_all(node.otherwise, dot)
        self._depth -= 1
        del self._variables[mark:]

    def _range(self, node: Control, dot: Any) -> None:
        value = deref(self._pipe(node.pipe, dot))
        items: list[tuple[Any, Any]]
        if isinstance(value, list):
            items = [(Int(index), item) for index, item in enumerate(value)]
        elif isinstance(value, dict):
            items = sorted(value.items())
        elif value is MISSING or value is None:
            items = []
        else:
            kind = type_name(value)
            raise self._fault(node.position, f"range takes a list or a map, not {kind}")
        self.run.visit(len(items))
        if items:
            self._iterate(node, items)
        elif node.otherwise is not None:
            with suppress(BreakRange):  # as in the original: the inner range ends
                self._walk_all(node.otherwise, dot)

    def _iterate(self, node: Control, items: list[tuple[Any, Any]]) -> None:
        mark, depth = len(self._variables), self._depth
        for index, item in items:
            item = loaded(item)  # noqa: PLW2901
            self._bind(node.pipe, index, item, mark)
            try:
                self._walk_all(node.body, item)
            except ContinueRange:
                pass
            except BreakRange:
                break
            finally:
                self._depth = depth
                del self._variables[mark:]

    def _bind(self, pipe: Pipe, index: Any, item: Any, mark: int) -> None:
        """Set the variables of a range; a single variable is set to the element."""
        names = pipe.declared
        if not names:
            return
        values = (item,) if len(names) == 1 else (index, item)
        if pipe.assigns:
            for name, value in zip(names, values, strict=True):
                self._set(name, value)
        else:
            self._variables[mark - len(names) : mark] = zip(names, values, strict=True)

    def _call(self, node: Call, dot: Any) -> None:
        body = self.templates.get(node.name)
        if body is None:
            raise self._fault(node.position, f'no template "{node.name}" is defined')
        data = MISSING if node.pipe is None else self._pipe(node.pipe, dot)
        outer, self._variables = self._variables, [("$", data)]
        self._deeper(node.position)
        self._walk_all(body, data)
        self._depth -= 1
        self._variables = outer

    # -- evaluation --------------------------------------------------------------------------

    def _pipe(self, pipe: Pipe, dot: Any) -> Any:
        value: Any = _ABSENT
        for command in pipe.commands:
            value = self._command(command, dot, value)
            if value is None:
                value = MISSING
        for name in pipe.declared:
            if pipe.assigns:
                self._set(name, value)
            else:
                self._variables.append((name, value))
        return value

    def _set(self, name: str, value: Any) -> None:
        for index in range(len(self._variables) - 1, -1, -1):
            if self._variables[index][0] == name:
                self._variables[index] = (name, value)
                return
        raise EvaluationError(f"the variable {name} is not defined")

    def _command(self, command: Command, dot: Any, final: Any) -> Any:
        self.run.spend(STEPS_OF_ELEMENT * len(command.operands))
        first, *arguments = command.operands
        if isinstance(first, _NAMED) or (isinstance(first, Variable) and first.names):
            return self._operand(first, dot, arguments, final)
        if arguments or final is not _ABSENT:
            raise self._fault(first.position, "something that is not a function has an argument")
        if isinstance(first, Nil):
            raise self._fault(first.position, "nil is not a command")
        return self._operand(first, dot)

    def _operand(
        self, operand: Operand, dot: Any, arguments: Sequence[Operand] = (), final: Any = _ABSENT
    ) -> Any:
        """Evaluate an operand; nil is a nil interface."""
        match operand:
            case Field():
                return self._fields(dot, operand, arguments, dot=dot, final=final)
            case Identifier(name=name):
                function = self.functions[name]
                return self._apply(operand, name, function, arguments, dot=dot, final=final)
            case Constant():
                if operand.value is None:
                    raise self._fault(operand.position, "the number does not fit into an int")
                return operand.value
            case Variable():
                value = self._variable(operand)
                return self._fields(value, operand, arguments, dot=dot, final=final)
            case Pipe():
                self._deeper(operand.position)
                value = self._pipe(operand, dot)
                self._depth -= 1
                return value
            case Dot():
                return dot
            case Chain():
                value = self._operand(operand.operand, dot)
                return self._fields(value, operand, arguments, dot=dot, final=final)
            case Nil():
                return None

    def _variable(self, variable: Variable) -> Any:
        self.run.spend(len(self._variables))
        for name, value in reversed(self._variables):
            if name == variable.name:
                return value
        raise self._fault(variable.position, f"the variable {variable.name} has no value yet")

    def _fields(
        self,
        value: Any,
        node: Field | Chain | Variable,
        arguments: Sequence[Operand],
        *,
        dot: Any,
        final: Any,
    ) -> Any:
        """Return the value at a path of fields; the last may be a method and get the arguments."""
        names = node.names
        self.run.spend(len(names))
        last = len(names) - 1
        for index, name in enumerate(names):
            if type(value) is dict and (index < last or (not arguments and final is _ABSENT)):
                value = loaded(value.get(name, MISSING))
            elif value is MISSING:
                return MISSING
            elif index < last:
                value = self._field(value, node, name, (), dot=dot, final=_ABSENT)
            else:
                value = self._field(value, node, name, arguments, dot=dot, final=final)
        return value

    def _field(
        self,
        receiver: Any,
        node: Operand,
        name: str,
        arguments: Sequence[Operand],
        *,
        dot: Any,
        final: Any,
    ) -> Any:
        value = deref(receiver)
        if value is None:
            raise self._fault(node.position, f"null has no field {name}")
        methods = getattr(type(value), "methods", None)
        method = methods().get(name) if methods else None
        if method is not None:
            return self._apply(node, name, method, arguments, dot=dot, final=final, receiver=value)
        fields = value.fields if isinstance(value, Record) and name in value.fields else value
        if not isinstance(fields, Mapping):
            raise self._fault(node.position, f"there is no field {name} in {type_name(value)}")
        if arguments or final is not _ABSENT:
            raise self._fault(node.position, f"{name} has arguments, but is not a function")
        return loaded(fields.get(name, MISSING))

    # -- calls -------------------------------------------------------------------------------

    def _apply(
        self,
        node: Operand,
        name: str,
        function: Function,
        arguments: Sequence[Operand],
        *,
        dot: Any,
        final: Any,
        receiver: Any = _ABSENT,
    ) -> Any:
        count = len(arguments) + (final is not _ABSENT)
        fixed = len(function.parameters)
        if count < fixed or (function.rest is None and count > fixed):
            least = "at least " if function.rest is not None else ""
            reason = f"{name} takes {least}{fixed} arguments and gets {count}"
            raise self._fault(node.position, reason)
        if function.decides is not None:
            return self._decide(function.decides, arguments, dot, final)
        types = (*function.parameters, *[function.rest or ""] * (count - fixed))
        values = [
            self._argument(argument, types[index], dot) for index, argument in enumerate(arguments)
        ]
        if final is not _ABSENT:
            values.append(self._typed(final, types[-1], node.position))
        self.run.call(values)
        given = values if receiver is _ABSENT else [receiver, *values]
        try:
            return self.run.returned(function.call(self.run, *given))
        except Failure as failure:
            raise self._failed(node.position, name, failure) from failure

    def _decide(
        self,
        until: bool,  # noqa: FBT001
        arguments: Sequence[Operand],
        dot: Any,
        final: Any,
    ) -> Any:
        """Evaluate arguments up to the first that decides the result of ``and`` or ``or``."""
        value: Any = MISSING
        for argument in arguments:
            value = self._argument(argument, signature.VALUE, dot)
            if truth(value) is until:
                return value
        return value if final is _ABSENT else final

    def _argument(self, node: Operand, wanted: str, dot: Any) -> Any:
        if isinstance(node, Constant):
            return self._constant(node, wanted)
        if not isinstance(node, Nil):
            return self._typed(self._operand(node, dot), wanted, node.position)
        if wanted in _ANY:
            return None
        if wanted == signature.MAP:
            return Map(nil=True)
        raise self._fault(node.position, f"nil cannot be used as {wanted}")

    def _constant(self, node: Constant, wanted: str) -> Any:
        """Return a constant with the wanted type; a number literal is untyped."""
        value = node.value
        match wanted:
            case signature.ANY | signature.VALUE:
                return self._operand(node, None)
            case signature.STRING if isinstance(value, str):
                return value
            case signature.BOOL if isinstance(value, bool):
                return value
            case _ if wanted in _INTEGERS and node.whole is not None:
                return _INTEGERS[wanted](node.whole)
            case signature.FLOAT if node.real is not None:
                return node.real
        raise self._fault(node.position, f"expected {wanted}")

    def _typed(self, value: Any, wanted: str, position: int) -> Any:
        """Return a value, after a check that it has the wanted type."""
        if wanted in _ANY:
            return None if value is MISSING else value
        if value is MISSING:
            if wanted == signature.MAP:
                return Map(nil=True)
            raise self._fault(position, f"expected {wanted}, but there is no value")
        found = type_name(value)
        if found != wanted:
            found = "null" if value is None else found
            raise self._fault(position, f"expected {wanted}, found {found}")
        return value

    # -- errors ------------------------------------------------------------------------------

    def _fault(self, position: int, reason: str) -> EvaluationError:
        text = f"{place(self.text, position)}: {reason}"
        return EvaluationError(text).bare(text)

    def _failed(self, position: int, name: str, failure: Failure) -> EvaluationError:
        at = f"{place(self.text, position)}: {name}"
        error = EvaluationError(f"{at}: {failure}")
        return error.bare(f"{at} fails" if failure.quotes else str(error))
