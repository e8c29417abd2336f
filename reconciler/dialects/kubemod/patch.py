"""The patch of a ModRule: operations computed from the object before any is applied."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from reconciler.dialects.kubemod.items import refuse_misreadings, text_in
from reconciler.dialects.kubemod.values import Value, read_value
from reconciler.dialects.kubemod.view import LAST_APPLIED, REFERENCES, References, View
from reconciler.engine.allowance import Allowance, Exhausted
from reconciler.engine.context import Context
from reconciler.engine.outcome import Convergence
from reconciler.engine.patch import KeyTable
from reconciler.engine.patch.paths import APPEND, MAX_DEPTH, Pointer, parse_index, parse_pointer
from reconciler.engine.patch.rfc6902 import KUBEMOD, Operation, OperationName, apply_operations
from reconciler.engine.reading import each, mapping
from reconciler.engine.values import gojson
from reconciler.errors import ErrorList, EvaluationError, InvalidPolicy
from reconciler.languages.gval import Selection, compile_selection
from reconciler.languages.gval.syntax import Descent, Key, Script

MAX_OPERATIONS: Final = 10_000
"""The most operations that a rule may make for one object; no real object needs as many."""

_FIELDS: Final = ("op", "select", "path", "value")
_OPERATIONS: Final[Mapping[str, OperationName]] = {
    "add": "add",
    "remove": "remove",
    "replace": "replace",
}
_LAST_APPLIED: Final = ("metadata", "annotations", LAST_APPLIED)
_PLACEHOLDER: Final = re.compile(r"#([0-9]+)")
_STEPS: Final = 256
"""The steps of the allowance that an operation costs beside its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathTemplate:
    """A path in which ``#0``, ``#1`` and so on stand for captured keys.

    Attributes:
        parts: The parts between the slashes, each split into texts and key numbers.
        highest: The highest key number in the path, -1 where it has none.
        constant: The path if it has no key numbers, else empty.
    """

    location: str
    parts: tuple[tuple[str | int, ...], ...]
    highest: int = field(init=False)
    constant: Pointer = field(init=False)

    def __post_init__(self) -> None:
        numbers = (piece for part in self.parts for piece in part if isinstance(piece, int))
        object.__setattr__(self, "highest", max(numbers, default=-1))
        constant = () if self.highest >= 0 else self._filled(())
        object.__setattr__(self, "constant", constant)

    @property
    def ends_a_list(self) -> bool:
        """Return whether the path ends behind the last element of a list."""
        return bool(self.parts) and self.parts[-1] in (("-",), ("-1",))

    @property
    def may_insert(self) -> bool:
        """Return whether an add at the path may insert an element into a list."""
        (*_, last) = self.parts
        if len(last) != 1:
            return False
        return isinstance(last[0], int) or last[0] == APPEND or parse_index(last[0]) is not None

    def filled(self, keys: Sequence[int | str]) -> Pointer:
        """Return the path with captured keys filled in; a slash in a key does not split a part.

        Raises:
            EvaluationError: The path names a key that was not captured.
        """
        if self.highest < 0:
            return self.constant
        if self.highest >= len(keys):
            count = f"{len(keys)} key{'' if len(keys) == 1 else 's'}"
            reason = f"{self.location}: #{self.highest} does not exist; select captures {count}"
            raise EvaluationError(reason).bare(reason)
        return self._filled(keys)

    def _filled(self, keys: Sequence[int | str]) -> Pointer:
        return tuple(
            "".join(str(keys[piece]) if isinstance(piece, int) else piece for piece in part)
            for part in self.parts
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One item of ``patch``: an operation, or one for each hit of its select.

    Attributes:
        path: Without a select, placeholders in it are plain text.
    """

    location: str
    name: OperationName
    select: Selection | None
    path: PathTemplate
    value: Value

    def operations(self, view: View) -> list[Operation]:
        """Return the operations in the order in which they are applied.

        Raises:
            EvaluationError: A value or a path cannot be computed.
        """
        if self.select is None:
            return [self._operation(self.path.constant, self.value.of(view))]
        found = [
            self._operation(self.path.filled(hit.keys), self.value.of(view, hit.value, hit.keys))
            for hit in self.select.hits(view.full(), view.context.allowance)
        ]
        if self.name == "remove":
            # A removal shifts the elements behind it, so the last one is removed first.
            found.sort(key=lambda operation: _order(operation.path), reverse=True)
        return found

    def _operation(self, path: Pointer, value: Any) -> Operation:
        return Operation(name=self.name, path=path, value=value, location=self.location)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """The mutation of a ModRule; see `reconciler.engine.ports.Mutation`.

    Attributes:
        appends: An operation may add to a list by position.
    """

    edits: tuple[Edit, ...]
    references: References
    appends: bool
    convergence: Convergence
    merge_keys: bool = field(default=False, repr=False)

    def apply(
        self, index: int | None, context: Context, obj: Mapping[str, Any], keys: KeyTable
    ) -> dict[str, Any]:
        """Return the object with all operations applied.

        In a request, the annotation of client-side apply is patched as well, so that the next
        apply does not revert the change. In an existing object, that would hide the change from
        the next apply.

        Raises:
            EvaluationError: An operation cannot be computed, or does not fit the object.
        """
        del keys
        view = View(context, obj, self.references)
        operations: list[Operation] = []
        for edit in self.edits:
            for operation in edit.operations(view):
                context.allowance.spend(_STEPS)
                operations.append(operation)
                if len(operations) > MAX_OPERATIONS:
                    reason = f"the patch makes more than {MAX_OPERATIONS} operations of one object"
                    raise EvaluationError(reason).bare(reason)
        made = tuple(operations)
        after = self._applied(obj, view, made)
        text = _last_applied(after)
        if text is None and not any(operation.path == _LAST_APPLIED for operation in made):
            # A new map of annotations does not name it, and would make apply forget what it set.
            text = _last_applied(obj)
        if text is not None and index is None and view.is_request:
            text = _patched(text, made, context.allowance)
        return _with_last_applied(after, text)

    def _applied(
        self, obj: Mapping[str, Any], view: View, operations: tuple[Operation, ...]
    ) -> dict[str, Any]:
        seen = {**obj, REFERENCES: view.full()[REFERENCES]} if self.references else obj
        after: dict[str, Any] = apply_operations(
            seen, operations, profile=KUBEMOD, allowance=view.context.allowance
        )
        if REFERENCES in obj or REFERENCES not in after:
            return after
        return {name: value for name, value in after.items() if name != REFERENCES}


def _last_applied(obj: Mapping[str, Any]) -> str | None:
    """Return the last-applied-configuration of an object, None where it has none."""
    meta = obj.get("metadata")
    annotations = meta.get("annotations") if isinstance(meta, dict) else None
    text = annotations.get(LAST_APPLIED) if isinstance(annotations, dict) else None
    return text if isinstance(text, str) else None


def _patched(text: str, operations: tuple[Operation, ...], allowance: Allowance) -> str:
    """Return a last-applied-configuration with a patch applied, if the patch fits it."""
    try:
        # Unlike json, it refuses what the object could not be sent with: infinite numbers and
        # lone surrogates.
        after = apply_operations(
            orjson.loads(text), operations, profile=KUBEMOD, allowance=allowance
        )
        return gojson.escape(orjson.dumps(after, option=orjson.OPT_SORT_KEYS).decode())
    except Exhausted:
        raise
    except (ValueError, orjson.JSONEncodeError, RecursionError, EvaluationError):
        return text


def _with_last_applied(obj: dict[str, Any], text: str | None) -> dict[str, Any]:
    """Return an object with a last-applied-configuration, if it has annotations."""
    meta = obj.get("metadata")
    annotations = meta.get("annotations") if isinstance(meta, dict) else None
    if text is None or not isinstance(annotations, dict) or annotations.get(LAST_APPLIED) == text:
        return obj
    return {
        **obj,
        "metadata": {**obj["metadata"], "annotations": {**annotations, LAST_APPLIED: text}},
    }


def _order(path: Pointer) -> list[tuple[int, str]]:
    """Return the sort key of a path: indexes compare as numbers, and parents come first."""
    return [(-1, part) if (place := parse_index(part)) is None else (place, "") for part in path]


# -- reading ----------------------------------------------------------------------------------


def read_patch(raw: Any, location: str, references: References) -> Patch:
    """Read the list of operations.

    Raises:
        InvalidPolicy: Operations are invalid; it holds all errors with their locations.
    """
    edits = each(_edit, raw, location)
    appends = any(edit.name == "add" and edit.path.may_insert for edit in edits)
    stable = all(edit.value.converges for edit in edits)
    return Patch(
        edits=edits,
        references=references,
        appends=appends,
        convergence=Convergence.PROBED if stable else Convergence.NO,
    )


def _edit(raw: Any, location: str) -> Edit:
    with ErrorList() as errors:
        fields = mapping(raw, location, allowed=_FIELDS, errors=errors)
        name = fields.get("op")
        if not isinstance(name, str) or name not in _OPERATIONS:
            reason = f"expected one of {', '.join(_OPERATIONS)}"
            errors.add(InvalidPolicy(f"{location}.op", reason))
        source = text_in(fields, "select", location, errors)
        select = None
        if source is not None:
            place = f"{location}.select"
            select = errors.attempt(compile_selection, source, location=place)
        if select is not None:
            errors.attempt(refuse_misreadings, select.tree, f"{location}.select")
        text = text_in(fields, "path", location, errors)
        place = f"{location}.path"
        path = errors.attempt(read_path, text, place, captures=source is not None)
        if path is not None and select is not None:
            errors.attempt(_check_captures, path, select)
        written = text_in(fields, "value", location, errors)
        value = errors.attempt(read_value, written, f"{location}.value")
    return Edit(
        location=location,
        name=_OPERATIONS[str(name)],
        select=select,
        path=path or PathTemplate(location=location, parts=()),
        value=value or Value(location=location),
    )


def read_path(text: str | None, location: str, *, captures: bool) -> PathTemplate:
    """Read a JSON pointer with placeholders.

    Args:
        text: As written.
        location: Of the path in the rule.
        captures: Select captures keys to fill in; otherwise placeholders are plain text.

    Raises:
        InvalidPolicy: The text is no JSON pointer, empty, or too deep.
    """
    try:
        pointer = parse_pointer(text or "")
    except ValueError as error:
        raise InvalidPolicy(location, str(error)) from error
    if not pointer:
        raise InvalidPolicy(location, "a path is needed, such as /metadata/labels/color")
    if len(pointer) > MAX_DEPTH:
        raise InvalidPolicy(location, f"deeper than {MAX_DEPTH} levels")
    parts = tuple(_pieces(part) if captures else (part,) for part in pointer)
    return PathTemplate(location=location, parts=parts)


def _pieces(part: str) -> tuple[str | int, ...]:
    pieces = _PLACEHOLDER.split(part)
    return tuple(
        int(piece[:9]) if position % 2 else piece for position, piece in enumerate(pieces) if piece
    )


def _check_captures(path: PathTemplate, select: Selection) -> None:
    """Refuse a placeholder that no hit can fill."""
    several = [step for step in select.tree.steps if not isinstance(step, Key | Script)]
    # The number of keys that ``..`` captures differs between hits.
    if any(isinstance(step, Descent) for step in several) or path.highest < len(several):
        return
    known = "no wildcard or filter, and so no key"
    if several:
        known = f"{len(several)}: #0" + (f" to #{len(several) - 1}" if len(several) > 1 else "")
    reason = f"#{path.highest} is not among the keys that select captures ({known})"
    raise InvalidPolicy(path.location, reason)
