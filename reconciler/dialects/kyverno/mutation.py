"""The edits of a rule, and their application to an object."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from reconciler.dialects.kyverno.anchors import StrategicPatch
from reconciler.dialects.kyverno.entries import Entry, with_entries
from reconciler.dialects.kyverno.jsonpatch import Positions
from reconciler.dialects.kyverno.patchtext import parse_operations
from reconciler.dialects.kyverno.preconditions import Conditions
from reconciler.dialects.kyverno.template import Template
from reconciler.engine.context import Context
from reconciler.engine.outcome import Unmet
from reconciler.engine.patch import (
    LENIENT,
    KeyTable,
    Operation,
    apply_operations,
    compile_operations,
    equal,
    merge,
)
from reconciler.engine.patch.paths import MAX_DEPTH
from reconciler.errors import EvaluationError
from reconciler.languages.jmespath import Expression
from reconciler.languages.jmespath.values import deeper_than

_ELEMENT = 1_000
"""Steps of an element of a foreach, beside those of its expressions and of its patch."""
_READ = 16
"""Steps of reading a character of the text of a JSON patch."""
_WORD = re.compile(r"[-+.~\w]*")
"""Texts that YAML may read as a number, true, false or null, but never as a list or map."""

UNTOUCHED = Unmet(reason="0 elements processed")
"""The result of a foreach that changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategicEdit:
    """A strategic merge patch with anchors; for custom resources without merge keys a merge patch.

    Attributes:
        patch: The anchors, found in the text as written.
        fronts: The patch belongs to a foreach, and always moves the elements that it names.
    """

    template: Template
    patch: StrategicPatch
    fronts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonPatchEdit:
    """A JSON patch (RFC 6902).

    Attributes:
        patch: The list of operations with variables, or a text that is a single variable.
        quoted: Positions of variables whose value of any type becomes text.
        plain: Positions of variables whose text is read as YAML reads a scalar without quotes.
        written: Those of them that the policy turns into JSON, which is read as an object again.
        operations: The compiled operations of a patch without variables.
        appends: The patch may add to a list by position.
    """

    patch: Template
    location: str
    appends: bool
    quoted: frozenset[Positions] = frozenset()
    plain: frozenset[Positions] = frozenset()
    written: frozenset[Positions] = frozenset()
    operations: tuple[Operation, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeachEdit:
    """Edits for each element of a list.

    The list is evaluated once, before the first element. The expressions of every element see the
    target as it was then, while its patch applies to the result of the elements before it.

    Attributes:
        reverse: Iterate from the last element to the first; ``elementIndex`` stays the position.
        depth: Number of enclosing foreach blocks.
        changes_trigger: The rule changes its trigger: later edits see it in ``request.object``.
    """

    elements: Expression
    reverse: bool
    depth: int
    entries: tuple[Entry, ...]
    preconditions: Conditions | None
    edits: "tuple[Edit, ...]"
    location: str
    changes_trigger: bool = False


Edit = StrategicEdit | JsonPatchEdit | ForeachEdit


def with_nested(edits: Iterable[Edit]) -> Iterator[Edit]:
    """Yield edits, and those inside of a foreach after it."""
    for edit in edits:
        yield edit
        if isinstance(edit, ForeachEdit):
            yield from with_nested(edit.edits)


def apply_edits(
    edits: tuple[Edit, ...], context: Context, obj: Mapping[str, Any], keys: KeyTable
) -> dict[str, Any] | Unmet:
    """Return the object after all edits in order, or why there is nothing to change.

    Args:
        edits: Of a rule or of one element of a foreach.
        context: With the target bound.
        obj: The object to change; not changed by this call.
        keys: Which lists merge by key.

    Raises:
        EvaluationError: An edit cannot be applied; then none is.
        InvalidPolicy: A patch is invalid after variable substitution.
    """
    after: dict[str, Any] = dict(obj)
    unmet: Unmet | None = None
    for edit in edits:
        result = _apply(edit, context, after, keys)
        if isinstance(result, Unmet):
            unmet = result
            continue
        if isinstance(edit, ForeachEdit):
            # The next block must see the result of this one.
            context = (
                context.with_object(result)
                if edit.changes_trigger
                else context.bind(target=result)
            )
        after = result
    if unmet is not None and equal(obj, after):
        return unmet
    return after


def _apply(
    edit: Edit, context: Context, obj: dict[str, Any], keys: KeyTable
) -> dict[str, Any] | Unmet:
    match edit:
        case StrategicEdit():
            return _merge_strategic(edit, context, obj, keys)
        case JsonPatchEdit():
            return _apply_operations(edit, context, obj)
        case ForeachEdit():
            return _apply_each(edit, context, obj, keys)


def _apply_operations(
    edit: JsonPatchEdit, context: Context, obj: dict[str, Any]
) -> dict[str, Any]:
    operations = edit.operations
    if operations is None:
        operations = compile_operations(_operations(edit, context), location=edit.location)
    try:
        changed: dict[str, Any] = apply_operations(
            obj, operations, profile=LENIENT, allowance=context.allowance
        )
    except EvaluationError as error:
        raise EvaluationError(f"failed to patch resource: {error}") from error
    return changed


def _operations(edit: JsonPatchEdit, context: Context) -> Any:
    rendered = _substitute(edit.patch, context)
    if isinstance(rendered, str):
        context.allowance.spend(_READ * len(rendered))
        return parse_operations(rendered, location=edit.location)
    readings = ((edit.quoted, _text), (edit.plain, _scalar), (edit.written, _from_json))
    for paths, convert in readings:
        for path in paths:
            _convert(rendered, path, convert)
    return rendered


def _convert(document: Any, path: Positions, convert: Callable[[Any], Any]) -> None:
    *steps, last = path
    part: Any = document
    for step in steps:
        part = part[_key(part, step)]
    key = _key(part, last)
    part[key] = convert(part[key])


def _key(part: dict[str, Any] | list[Any], position: int) -> Any:
    return list(part)[position] if isinstance(part, dict) else position


def _text(value: Any) -> Any:
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except orjson.JSONEncodeError as error:
        raise EvaluationError(f"a value cannot become text: {error}") from error


def _scalar(value: Any) -> Any:
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        return value
    (read,) = parse_operations(f"- {value}", location="")
    return value if isinstance(read, list) else read


def _from_json(value: Any) -> Any:
    """Return the map or list that a text is in JSON, or what is none as it is."""
    if not isinstance(value, str) or not value.startswith(("{", "[")):
        return value
    try:
        read = orjson.loads(value)
    except orjson.JSONDecodeError:
        return value
    return value if deeper_than(read, MAX_DEPTH) else read


def _merge_strategic(
    edit: StrategicEdit, context: Context, obj: dict[str, Any], keys: KeyTable
) -> dict[str, Any] | Unmet:
    patch = _substitute(edit.template, context)
    allowance = context.allowance
    try:
        plain = edit.patch.resolve(patch, obj, keys, allowance=allowance)
        if isinstance(plain, Unmet):
            return plain
        return merge(obj, plain, keys, fronts=edit.fronts, allowance=allowance)
    except EvaluationError as error:
        raise EvaluationError(f"failed to patch resource: {error}") from error


def _apply_each(
    edit: ForeachEdit, context: Context, obj: dict[str, Any], keys: KeyTable
) -> dict[str, Any] | Unmet:
    after = obj
    for index, bound in bound_elements(edit, context):
        context.allowance.spend(_ELEMENT)
        if not _holds(edit, bound, index):
            continue
        try:
            result = apply_edits(edit.edits, bound, after, keys)
        except EvaluationError as error:
            raise EvaluationError(f"failed to mutate elements: {error}") from error
        if not isinstance(result, Unmet):
            after = result
    return UNTOUCHED if equal(obj, after) else after


def bound_elements(edit: ForeachEdit, context: Context) -> Iterator[tuple[int, Context]]:
    """Yield the position of each element, and the context for its edits.

    Raises:
        EvaluationError: The list cannot be evaluated.
    """
    for index, element in _elements(edit, context):
        bound = context.bind(
            **{
                "element": element,
                "elementIndex": index,
                f"element{edit.depth}": element,
                f"elementIndex{edit.depth}": index,
            }
        )
        yield index, with_entries(bound, edit.entries)


def _elements(edit: ForeachEdit, context: Context) -> Iterator[tuple[int, Any]]:
    try:
        found = context.search(edit.elements)
    except EvaluationError as error:
        msg = f"failed to evaluate list {edit.elements.source}: {error}"
        raise EvaluationError(msg) from error
    listed = list(enumerate(found if isinstance(found, list) else [found]))
    for index, element in reversed(listed) if edit.reverse else listed:
        if element is not None:
            yield index, element


def _holds(edit: ForeachEdit, context: Context, index: int) -> bool:
    if edit.preconditions is None:
        return True
    try:
        return edit.preconditions.evaluate(context).passed
    except EvaluationError as error:
        msg = f"failed to evaluate mutate.foreach[{index}].preconditions: {error}"
        raise EvaluationError(msg) from error


def _substitute(template: Template, context: Context) -> Any:
    try:
        return template.render(context)
    except EvaluationError as error:
        raise EvaluationError(f"variable substitution failed: {error}") from error
