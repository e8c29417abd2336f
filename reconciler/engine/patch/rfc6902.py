"""JSON patch (RFC 6902), as lenient as a profile allows; `jsonpatch` is the strict one."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, cast

from reconciler.engine.allowance import STEPS_OF_ELEMENT, UNLIMITED, Allowance, Exhausted
from reconciler.engine.patch.diff import equal
from reconciler.engine.patch.paths import (
    APPEND,
    MAX_DEPTH,
    Pointer,
    parse_index,
    parse_pointer,
    render_pointer,
)
from reconciler.errors import EvaluationError, InvalidPolicy, read_each
from reconciler.values import value_class

OperationName = Literal["add", "remove", "replace", "move", "copy", "test"]

_WITH_VALUE: Final = frozenset({"add", "replace", "test"})
_WITH_SOURCE: Final = frozenset({"move", "copy"})
_NAMES: Final = ("add", "remove", "replace", "move", "copy", "test")

# More than an object in etcd (1.5 MiB) can hold; keeps `copy` and padding from filling the memory.
_MAX_NODES: Final = 500_000
_MAX_PADDING: Final = 1_000

_NODE: Final = 8
"""Steps of visiting a value."""

Edit = Callable[[Any, str], Any]
Place = Any  # a key of a map or an index of a list

_MISSING: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The options in which implementations of JSON patch differ.

    Attributes:
        create_parents: ``add`` creates missing maps and lists, padded with null up to the index.
        ignore_absent: ``remove`` of a missing value changes nothing.
        negative_index: ``-1`` is the end of a list for ``add``, its last element otherwise.
        absent_is_null: ``test`` with null holds for a missing key.
        replace_adds: ``replace`` adds a key to a map that does not have it.
        create_at_end: ``-`` creates a list where a parent is missing, and an element of a list;
            else it creates a map with the key ``-``, and no element.
    """

    create_parents: bool
    ignore_absent: bool
    negative_index: bool
    absent_is_null: bool
    replace_adds: bool = False
    create_at_end: bool = True


LENIENT: Final = Profile(
    create_parents=True, ignore_absent=True, negative_index=True, absent_is_null=True
)
EVANPHX4: Final = Profile(
    create_parents=False,
    ignore_absent=False,
    negative_index=True,
    absent_is_null=True,
    replace_adds=True,
)
"""The Go library evanphx/json-patch, version 4, with default options."""
KUBEMOD: Final = replace(LENIENT, create_at_end=False)
"""KubeMod's fork of evanphx/json-patch 5.1."""


@value_class(frozen=True, slots=True, kw_only=True)
class Operation:
    """One validated operation.

    Attributes:
        source: ``from`` of move and copy, else empty.
        value: For add, replace and test; shared with the resulting document, never changed.
        location: Of the operation in its policy, for errors; may be empty.
    """

    name: OperationName
    path: Pointer
    source: Pointer = ()
    value: Any = None
    location: str = ""


def compile_operations(value: Any, *, location: str) -> tuple[Operation, ...]:
    """Validate a decoded list of operations.

    Raises:
        InvalidPolicy: An operation is invalid; the error has its location.
    """
    if not isinstance(value, list):
        raise InvalidPolicy(location, "must be a list of operations, each with op and path")
    return read_each(_compile, value, location)


def _compile(operation: Any, location: str) -> Operation:
    if not isinstance(operation, dict):
        raise InvalidPolicy(location, "must be a map with op and path")
    name = operation.get("op")
    if name not in _NAMES:
        raise InvalidPolicy(f"{location}.op", f'unknown "{name}"; use one of {", ".join(_NAMES)}')
    if name in _WITH_VALUE and "value" not in operation:
        raise InvalidPolicy(location, f"{name} needs a value; write null if that is meant")
    return Operation(
        name=cast("OperationName", name),
        path=_pointer(operation, "path", location),
        source=_pointer(operation, "from", location) if name in _WITH_SOURCE else (),
        value=operation.get("value") if name in _WITH_VALUE else None,
    )


def _pointer(operation: dict[str, Any], field: str, location: str) -> Pointer:
    text = operation.get(field)
    if not isinstance(text, str):
        raise InvalidPolicy(
            location, f"{operation['op']} needs {field}, a string like /metadata/x"
        )
    try:
        pointer = parse_pointer(text)
    except ValueError as error:
        raise InvalidPolicy(f"{location}.{field}", str(error)) from error
    if len(pointer) > MAX_DEPTH:
        raise InvalidPolicy(f"{location}.{field}", f"deeper than {MAX_DEPTH} levels")
    return pointer


def apply_operations(
    document: Any,
    operations: tuple[Operation, ...],
    *,
    profile: Profile,
    allowance: Allowance = UNLIMITED,
) -> Any:
    """Return the document after all operations in order; they apply all or not at all.

    The input is not changed; untouched parts are shared with the result.

    Raises:
        EvaluationError: An operation does not apply to the document.
    """
    patcher = _Patcher(profile, allowance)
    for operation in operations:
        try:
            document = patcher.apply(document, operation)
        except EvaluationError as error:
            if isinstance(error, Exhausted) or not operation.location:
                raise
            bare = f"{operation.location}: the operation does not apply"
            raise EvaluationError(f"{operation.location}: {error}").bare(bare) from error
    return document


class _NoParent(Exception):
    """A part of the path before the last one does not exist."""


class _Patcher:
    """Applies operations to one document."""

    def __init__(self, profile: Profile, allowance: Allowance) -> None:
        self._profile = profile
        self._allowance = allowance
        self._nodes = 0

    def apply(self, document: Any, operation: Operation) -> Any:
        try:
            match operation.name:
                case "add":
                    create = self._profile.create_parents
                    return self._add(document, operation.path, operation.value, create=create)
                case "remove":
                    return self._remove(document, operation, operation.path)
                case "replace":
                    return self._replace(document, operation)
                case "test":
                    return self._test(document, operation)
                case "copy":
                    return self._add(document, operation.path, self._source(document, operation))
                case "move":
                    return self._move(document, operation)
        except _NoParent:
            if operation.name == "remove" and self._profile.ignore_absent:
                return document
            goal = "destination path" if operation.name in _WITH_SOURCE else "path"
            raise _unfit(operation, f"missing {goal}") from None

    def _add(self, document: Any, path: Pointer, value: Any, *, create: bool = False) -> Any:
        self._check_size(value, path)

        def insert(parent: Any, part: str) -> Any:
            if isinstance(parent, dict):
                return {**parent, part: value}
            if not isinstance(parent, list):
                raise _NoParent
            at = self._insertion(parent, part)
            return [*parent[:at], value, *parent[at:]]

        if not path:
            return value
        return self._change(document, path, insert, create=create)

    def _remove(self, document: Any, operation: Operation, path: Pointer) -> Any:
        def delete(parent: Any, part: str) -> Any:
            if isinstance(parent, list) and part == APPEND:
                raise _bad_index(part)
            place = self._existing(parent, part)
            if place is None and self._profile.ignore_absent:
                return parent
            if place is None:
                raise _unfit(operation, "missing key")
            rest = parent.copy()
            del rest[place]
            return rest

        if not path:
            raise EvaluationError("remove operation does not apply: it names the whole document")
        return self._change(document, path, delete)

    def _replace(self, document: Any, operation: Operation) -> Any:
        self._check_size(operation.value, operation.path)

        def exchange(parent: Any, part: str) -> Any:
            place = self._existing(parent, part)
            if place is None and self._profile.replace_adds and isinstance(parent, dict):
                place = part
            if place is None:
                raise _unfit(operation, "missing key")
            return _with(parent, place, operation.value)

        if not operation.path:
            return operation.value
        return self._change(document, operation.path, exchange)

    def _test(self, document: Any, operation: Operation) -> Any:
        self._check_size(operation.value, operation.path)
        found = self._get(document, operation.path)
        if found is _MISSING and self._profile.absent_is_null:
            found = None
        if not equal(found, operation.value):
            path = render_pointer(operation.path)
            raise EvaluationError(f"testing value {path} failed: test failed")
        return document

    def _move(self, document: Any, operation: Operation) -> Any:
        value = self._source(document, operation)
        source, path = operation.source, operation.path
        if path == source:
            return document
        if path[: len(source)] == source:
            raise EvaluationError(
                f"move operation does not apply: {render_pointer(path)} lies inside of"
                f" {render_pointer(source)}"
            )
        return self._add(self._remove(document, operation, source), path, value)

    def _change(self, document: Any, path: Pointer, edit: Edit, *, create: bool = False) -> Any:
        """Edit the innermost parent in a copy of the path to it; the input is not changed."""
        way: list[tuple[Any, Place]] = []
        parent, place, last = document, None, len(path) - 1
        for position in range(last):
            place = path[position]
            child = parent.get(place) if isinstance(parent, dict) else None
            if child is None:
                inner = path[position + 1] if create else None
                parent, place, child = self._enter(parent, place, inner)
            way.append((parent, place))
            parent = child
        changed = edit(parent, path[last])
        copied = len(parent) if isinstance(parent, dict | list) else 0
        for parent, place in reversed(way):
            copied += len(parent)
            if isinstance(parent, dict):
                changed = {**parent, place: changed}
            else:
                changed = _with(parent, place, changed)
        self._allowance.spend(STEPS_OF_ELEMENT * len(path) + copied)
        return changed

    def _enter(self, parent: Any, part: str, inner: str | None) -> tuple[Any, Place, Any]:
        """Return the parent, the place of a part in it, and the child at that place.

        A missing child is created if `inner`, the next part of the path, is given; the returned
        parent may then be a copy that is padded for it.
        """
        if isinstance(parent, list) and inner is None and parse_index(part) is None:
            raise _NoParent
        place = self._existing(parent, part)
        child = None if place is None else parent[place]
        if child is None and inner is not None:
            child = self._new_container(inner)
            if place is None:
                parent, place = self._make_room(parent, part)
        if place is None:
            raise _NoParent
        return parent, place, child

    def _new_container(self, part: str) -> dict[str, Any] | list[Any]:
        """Return an empty map or, if the part is a list index, a list padded up to it."""
        if part == APPEND and self._profile.create_at_end:
            return []
        index = parse_index(part)
        if index is None or (index < 0 and not self._profile.negative_index):
            return {}
        return self._pad([], max(index, 0))

    def _make_room(self, parent: Any, part: str) -> tuple[Any, Place]:
        if isinstance(parent, dict):
            return parent, part
        if not isinstance(parent, list):
            raise _NoParent
        ends = part == APPEND and self._profile.create_at_end
        at = len(parent) if ends else self._index(part)
        if at == -len(parent) - 1:
            return [None, *parent], 0
        if at < 0:
            raise _bad_index(part)
        return self._pad(parent, at), at

    def _pad(self, items: list[Any], length: int) -> list[Any]:
        if length - len(items) > _MAX_PADDING:
            raise _bad_index(str(length))
        return items + [None] * (length - len(items))

    def _source(self, document: Any, operation: Operation) -> Any:
        try:
            found = self._get(document, operation.source)
        except _NoParent:
            found = _MISSING
        if found is _MISSING:
            raise EvaluationError(
                f"{operation.name} operation does not apply: doc is missing from path:"
                f" {render_pointer(operation.source)}: missing value"
            )
        return found

    def _get(self, document: Any, path: Pointer) -> Any:
        """Return the value at the path; _MISSING when only its last part, a key, is missing."""
        if not path:
            return document
        for part in path[:-1]:
            document = self._step(document, part)
        place = self._existing(document, path[-1])
        if place is not None:
            return document[place]
        if isinstance(document, list):
            raise _bad_index(path[-1])
        if not isinstance(document, dict):
            raise _NoParent
        return _MISSING

    def _step(self, parent: Any, part: str) -> Any:
        place = self._existing(parent, part)
        if place is None:
            raise _NoParent
        return parent[place]

    def _existing(self, parent: Any, part: str) -> Place | None:
        """Return the key or index of a part in its parent, or None if it is missing."""
        if isinstance(parent, dict):
            return part if part in parent else None
        if not isinstance(parent, list) or part == APPEND:
            return None
        index = self._index(part)
        at = index + len(parent) if index < 0 else index
        return at if 0 <= at < len(parent) else None

    def _insertion(self, parent: list[Any], part: str) -> int:
        if part == APPEND:
            return len(parent)
        index = self._index(part)
        at = index + len(parent) + 1 if index < 0 else index
        if not 0 <= at <= len(parent):
            raise _bad_index(part)
        return at

    def _index(self, part: str) -> int:
        index = parse_index(part)
        if index is None or (index < 0 and not self._profile.negative_index):
            raise _bad_index(part)
        return index

    def _check_size(self, value: Any, path: Pointer) -> None:
        """Refuse a value that is too large or too deep for any stored object."""
        waiting = [(value, len(path))]
        known = self._nodes
        while waiting:
            node, depth = waiting.pop()
            self._nodes += 1
            if self._nodes > _MAX_NODES or depth > MAX_DEPTH:
                raise EvaluationError(f"the value at {render_pointer(path)} is too large")
            if isinstance(node, dict):
                waiting.extend((child, depth + 1) for child in node.values())
            elif isinstance(node, list):
                waiting.extend((child, depth + 1) for child in node)
        self._allowance.spend(_NODE * (self._nodes - known))


def _with(parent: Any, place: Place, value: Any) -> Any:
    if isinstance(parent, dict):
        return {**parent, place: value}
    return [*parent[:place], value, *parent[place + 1 :]]


def _unfit(operation: Operation, problem: str) -> EvaluationError:
    subject = "" if operation.name == "test" else "doc "
    return EvaluationError(
        f"{operation.name} operation does not apply: {subject}is {problem}:"
        f" {render_pointer(operation.path)}: missing value"
    )


def _bad_index(part: str) -> EvaluationError:
    return EvaluationError(f"Unable to access invalid index: {part}: invalid index referenced")
