r"""Documents with variables: compiled once, rendered on many contexts.

``{{ expr }}`` is allowed in leaf strings and map keys. A string that is one variable becomes its
value, of any type; inside other text the value becomes text. ``\{{`` is plain text.

The value of a variable is data, which is never searched for variables again. So ``{{- expr }}``,
which asks for that, is like ``{{ expr }}``, except that its value must be a string.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reconciler.engine.context import Context
from reconciler.errors import ErrorList, EvaluationError, InvalidPolicy
from reconciler.languages.jmespath import braces, references
from reconciler.languages.jmespath.assembly import (
    Constant,
    Made,
    Make,
    from_entries,
    from_items,
    key_maker,
    maker,
)
from reconciler.languages.jmespath.braces import Variable
from reconciler.languages.jmespath.expression import Expression, compile_expression
from reconciler.languages.jmespath.limits import DEFAULT_LIMITS, Run
from reconciler.languages.jmespath.nested import Hole, compile_nested, read_path
from reconciler.languages.jmespath.values import as_text, copy_value

Path = tuple[str | int, ...]
Check = Callable[[Expression, str], None]
_HERE = "@"
_LAZY = frozenset({"images"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Variable:
    expression: Expression
    shallow: bool
    place: str

    def value(self, run: Run) -> Any:
        try:
            return self.expression.resolve(run)
        except EvaluationError as error:
            raise self._failed(str(error)) from error

    def text(self, run: Run) -> str:
        value = self.value(run)
        if self.shallow and value is not None and not isinstance(value, str):
            raise self._failed("a variable written {{- }} must resolve to a string")
        text = as_text(value, run)
        run.put_in(len(text))
        return text

    def name_part(self, run: Run) -> str:
        value = self.value(run)
        if value is None or isinstance(value, dict | list):
            raise self._failed("expected a string here, got null, a map or a list")
        return as_text(value, run)

    def _failed(self, reason: str) -> EvaluationError:
        place = f" at path {self.place}" if self.place else ""
        said = f"failed to resolve {self.expression.source}{place}"
        return EvaluationError(f"{said}: {reason}").bare(said)


_Parts = tuple[str | _Variable, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A compiled document.

    Attributes:
        expressions: Its variables in the order of the document; nested ones are part of the
            outer ones.
        places: The location of each variable in the policy.
        roots: The root fields that the variables can read.
        reads: The field paths that they can read, as in `Expression.reads`.
        constant: Whether it has no variables.
        dynamic: Whether `roots` is incomplete, because data decides what is read from the root.
    """

    expressions: tuple[Expression, ...]
    places: tuple[str, ...] = field(repr=False, compare=False)
    roots: frozenset[str]
    reads: frozenset[tuple[str, ...]]
    constant: bool
    dynamic: bool
    make: Make = field(repr=False, compare=False)
    parts: _Parts | None = field(repr=False, compare=False)

    def placed(self) -> Iterator[tuple[Expression, str]]:
        """Yield each variable with its location."""
        return zip(self.expressions, self.places, strict=True)

    def render(self, context: Context) -> Any:
        """Return the document with the values of its variables, as a copy for the caller.

        Raises:
            EvaluationError: A variable cannot be resolved; the text names it and its path.
        """
        run = self._run(context)
        try:
            return self.make(run)
        except RecursionError:
            raise EvaluationError("the data is nested too deeply") from None
        finally:
            run.settle()

    def render_literal(self, context: Context, *, escape: Callable[[str], str]) -> str:
        """Render a document that is one string, with `escape` applied to the values of variables.

        Raises:
            EvaluationError: As `render`; also when a value is null, a map or a list, or the
                document is not a string.
        """
        return "".join(
            escape(text) if is_value else text for text, is_value in self.pieces(context)
        )

    def pieces(self, context: Context) -> list[tuple[str, bool]]:
        """Render a document that is one string to parts, each with whether a variable yielded it.

        Raises:
            EvaluationError: As `render_literal`.
        """
        if self.parts is None:
            raise EvaluationError("expected a string here")
        run = self._run(context)
        try:
            return [
                (part, False) if isinstance(part, str) else (part.name_part(run), True)
                for part in self.parts
            ]
        finally:
            run.settle()

    def _run(self, context: Context) -> Run:
        roots = self.roots | _LAZY if self.dynamic else self.roots
        return Run(context.view(roots), DEFAULT_LIMITS, context.allowance)


def compile_template(
    document: Any,
    *,
    location: str = "",
    at: Path | None = (),
    within: Sequence[str] = (),
    check: Check | None = None,
) -> Template:
    """Compile a document, which is not copied and must not be changed afterwards.

    Args:
        document: Any JSON value; references ``$(...)`` are resolved inside it.
        location: Of the document in the policy, for messages.
        at: The path of the target or trigger that the document describes, for ``{{ @ }}``; None
            where it describes none, which makes ``{{ @ }}`` an error.
        within: The fields that lead to the document from where absolute references begin.
        check: Refuses an expression that is not allowed at its location. If given, it also
            handles wrong calls, which are in `Expression.faults`.

    Raises:
        InvalidPolicy: Expressions or references are wrong; it holds all errors.
    """
    root = document
    for field_name in reversed(within):
        root = {field_name: root}
    with ErrorList() as errors:
        compiler = _Compiler(
            document=document,
            root=root,
            within=tuple(within),
            location=location,
            at=at,
            check=check,
            errors=errors,
        )
        try:
            made, parts = compiler.whole()
        except RecursionError:
            raise InvalidPolicy(location, "the document is nested too deeply") from None
    expressions = tuple(compiler.expressions)
    return Template(
        expressions=expressions,
        places=tuple(compiler.places),
        roots=frozenset[str]().union(*(one.roots for one in expressions)),
        reads=frozenset[tuple[str, ...]]().union(*(one.reads for one in expressions)),
        constant=not expressions,
        dynamic=any(one.dynamic for one in expressions),
        make=maker(made),
        parts=parts,
    )


def find_unclosed(document: Any) -> Iterator[str]:
    """Yield the path of each text with a variable that is not closed."""
    for path, text in _texts(document, ()):
        if braces.unclosed(text, passes=DEFAULT_LIMITS.passes):
            yield place("", path)


def place(location: str, path: Sequence[str | int]) -> str:
    """Return a path for people, as ``spec.containers[0].image``, prefixed with `location`."""
    text = location
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif step.replace("-", "").replace("_", "").isalnum():
            text += f".{step}" if text else step
        else:
            text += f'["{step}"]'
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compiler:
    document: Any
    root: Any
    within: Path
    location: str
    at: Path | None
    check: Check | None
    errors: ErrorList
    expressions: list[Expression] = field(default_factory=list)
    places: list[str] = field(default_factory=list)

    def whole(self) -> tuple[Made, _Parts | None]:
        if not isinstance(self.document, str):
            return self._value(self.document, (), self.at), None
        parts = self._text(self.document, (), self.at)
        return _from_parts(parts), parts

    def _value(self, value: Any, path: Path, here: Path | None) -> Made:
        if isinstance(value, str):
            return _from_parts(self._text(value, path, here))
        if isinstance(value, dict):
            return self._map(value, path, here)
        if isinstance(value, list):
            items = [
                self._value(item, (*path, index), _child_path(here, index))
                for index, item in enumerate(value)
            ]
            return from_items(items)
        return Constant(value)

    def _map(self, value: Mapping[str, Any], path: Path, here: Path | None) -> Made:
        entries: list[tuple[Made, Made]] = []
        for key, item in value.items():
            inner_path = (*path, key)
            name = _from_parts(self._text(str(key), inner_path, None))
            inside = _child_path(here, key) if isinstance(name, Constant) else None
            if not isinstance(name, Constant):
                name = key_maker(name, key, place(self.location, inner_path))
            entries.append((name, self._value(item, inner_path, inside)))
        return from_entries(entries, place(self.location, path))

    def _text(self, text: str, path: Path, here: Path | None) -> _Parts:
        # A document with an error is never rendered, so a placeholder is enough.
        return self.errors.attempt(self._parts, text, path, here) or ("",)

    def _parts(self, text: str, path: Path, here: Path | None) -> _Parts:
        at = place(self.location, path)
        pointer = "".join("/" + references.step(str(step)) for step in (*self.within, *path))
        text = references.resolve(text, self.root, pointer, location=at)
        parts: list[str | _Variable] = []
        position = 0
        for variable in braces.find(text, passes=DEFAULT_LIMITS.passes, location=at):
            if position < variable.start:
                parts.append(braces.unescape(text[position : variable.start]))
            position = variable.end
            expression = self.errors.attempt(self._expression, variable, at, here)
            if expression is None:
                continue
            if self.check is not None:
                self.errors.attempt(self.check, expression, at)
            self.expressions.append(expression)
            self.places.append(at)
            parts.append(_Variable(expression=expression, shallow=variable.shallow, place=at))
        if position < len(text) or not parts:
            parts.append(braces.unescape(text[position:]))
        return tuple(parts)

    def _expression(self, variable: Variable, at: str, here: Path | None) -> Expression:
        if variable.body == _HERE:
            return read_path(_HERE, self._here(here, at))
        late = self.check is not None
        if not variable.inner:
            return compile_expression(variable.body, location=at, late=late)
        holes = [
            Hole(
                start=one.start - variable.offset,
                end=one.end - variable.offset,
                inner=self._expression(one, at, here),
            )
            for one in variable.inner
        ]
        return compile_nested(variable.body, holes, location=at, late=late)

    def _here(self, here: Path | None, at: str) -> Path:
        if here is None:
            raise InvalidPolicy(
                at,
                "{{ @ }} is valid only in a patch, and not in or below a key with an anchor or a"
                " variable; write the whole path",
            )
        return here


def _child_path(here: Path | None, step: str | int) -> Path | None:
    if here is None or (isinstance(step, str) and references.is_anchored(step)):
        return None
    return (*here, step)


def _from_parts(parts: _Parts) -> Made:
    first = parts[0]
    if len(parts) > 1:
        return lambda run: "".join(
            [part if isinstance(part, str) else part.text(run) for part in parts]
        )
    if isinstance(first, str):
        return Constant(first)
    return lambda run: copy_value(first.value(run), run)


def _texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield (*path, key), str(key)
            yield from _texts(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, (*path, index))
