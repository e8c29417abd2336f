"""Strategic merge of a plain patch (without anchors) into an object.

The rules are those of kyaml's merge2, which Kyverno uses: null deletes, keyed lists merge with
the patched elements in front, all other lists are replaced, and `$patch` directives apply. The
differences: An element without its key is an error instead of the end of the list. A key that is
given in part finds its element. A patch that changes no element does not reorder the list, unless
it is one of several (a foreach goes backwards, so that elements in front end up in their old
order). The other directives of the API server are supported, too (see `directives`).
"""

import operator
from collections import defaultdict
from functools import partial
from typing import Any, Final

from reconciler.engine.allowance import STEPS_OF_ELEMENT, UNLIMITED, Allowance
from reconciler.engine.patch import directives
from reconciler.engine.patch.diff import equal
from reconciler.engine.patch.keys import KeyTable, Schema
from reconciler.engine.values import scalars
from reconciler.errors import EvaluationError
from reconciler.values import value_class

_ABSENT: Final = object()
_COMPARED: Final = 8
_PAIR: Final = 4
"""Steps of comparing an element of a list, and a pair of elements that have no hash."""

Path = tuple[str, ...]
Identity = tuple[Any, ...]


def merge(
    resource: dict[str, Any],
    patch: dict[str, Any],
    keys: KeyTable,
    *,
    fronts: bool = False,
    allowance: Allowance = UNLIMITED,
) -> dict[str, Any]:
    """Return the object with the patch merged in; the object itself when nothing changes.

    Args:
        resource: The object, not changed; unchanged parts are shared with the result.
        patch: Without anchors (see `anchors.compile_strategic`).
        keys: Which lists merge by key; lists of kinds that are not in the table are replaced.
        fronts: Move elements that the patch names to the front even if nothing changes.
        allowance: What the merge may cost.

    Raises:
        EvaluationError: Types of values differ, a keyed element has no key, a directive is wrong.
    """
    try:
        merging = _Merge(keys=keys, fronts=fronts, allowance=allowance)
        merged = merging.value(resource, patch, keys.of(resource), ())
    except RecursionError as error:
        raise EvaluationError("the object or the patch is nested too deeply") from error
    return {} if merged is _ABSENT else merged


@value_class(frozen=True, slots=True, kw_only=True)
class _Merge:
    """One merge of a patch into an object."""

    keys: KeyTable
    fronts: bool
    allowance: Allowance

    def value(self, old: Any, patch: Any, schema: Schema | None, path: Path) -> Any:
        """Return the merged value; `old` itself when nothing changes, _ABSENT to delete it."""
        if patch is None:
            return _ABSENT
        if old is None or old is _ABSENT:
            return self._insert(patch, schema, path)
        if isinstance(patch, dict) and isinstance(old, dict):
            return self._map(old, patch, schema, path)
        if _kind_name(old) != _kind_name(patch):
            raise EvaluationError(
                f"wrong node kind: expected {_kind_name(old)} but got {_kind_name(patch)}:"
                f" the patch must have at {_place(path)} what the object has there"
            )
        if isinstance(patch, list):
            return self._list(old, patch, schema, path)
        if isinstance(old, str):
            # A label with a count stays a text, even if the expression returns a number.
            patch = scalars.text(patch)
        return old if equal(old, patch) else patch

    def _insert(self, patch: Any, schema: Schema | None, path: Path) -> Any:
        """Return a new value without nulls, even if only an empty map is left."""
        if isinstance(patch, dict):
            return self._map({}, patch, schema or self.keys.of(patch), path)
        if isinstance(patch, list):
            return self._list([], patch, schema, path)
        return patch

    def _map(
        self, old: dict[str, Any], patch: dict[str, Any], schema: Schema | None, path: Path
    ) -> Any:
        if schema is None:
            # An object inside of another one, as in a custom resource, has a kind of its own.
            schema = self.keys.of(old)
        self.allowance.spend(len(old) + STEPS_OF_ELEMENT * len(patch))
        for key in patch:
            if key[:1] == directives.MARK:
                return self._directed(old, directives.read(patch, _place(path)), schema, path)
        return self._fields(old, patch, schema, path)

    def _fields(
        self, old: dict[str, Any], patch: dict[str, Any], schema: Schema | None, path: Path
    ) -> dict[str, Any]:
        merged = old
        for key, value in patch.items():
            before = old.get(key, _ABSENT)
            field_schema = schema.field(key) if schema else None
            after = self.value(before, value, field_schema, (*path, key))
            if after is before:
                continue
            if merged is old:
                merged = dict(old)
            if after is _ABSENT:
                del merged[key]
            else:
                merged[key] = after
        return merged

    def _directed(
        self,
        old: dict[str, Any],
        patch: directives.Directives,
        schema: Schema | None,
        path: Path,
    ) -> Any:
        if patch.strategy == "delete":
            return _ABSENT
        for key in (*patch.removed, *patch.order):
            listed = old.get(key)
            elements = len(listed) if isinstance(listed, list) else 0
            self.allowance.spend(len(old) + STEPS_OF_ELEMENT * elements)
        if patch.strategy == "replace":
            merged = self._insert(patch.fields, schema, path)
        else:
            merged = self._fields(patch.trim(old, _place(path)), patch.fields, schema, path)
        for key, order in patch.order.items():
            if isinstance(merged.get(key), list):
                listed = _ordered(
                    merged[key],
                    order,
                    old=old.get(key) or [],
                    patch=patch.fields.get(key) or [],
                    schema=schema.field(key) if schema else None,
                    path=(*path, key),
                )
                merged = {**merged, key: listed}
        return old if equal(old, merged) else merged

    def _list(self, old: list[Any], patch: list[Any], schema: Schema | None, path: Path) -> Any:
        self.allowance.spend(_COMPARED * (len(old) + len(patch)))
        strategy, last = "merge", None
        for element in patch:
            if isinstance(element, dict) and element.keys() == {directives.STRATEGY}:
                strategy, last = directives.strategy(element, _place(path)), element
        elements = patch if last is None else [other for other in patch if other != last]
        if strategy == "delete":
            return _ABSENT
        if schema is None or schema.merge_keys is None or strategy == "replace":
            return old if equal(old, elements) else elements
        if not schema.merge_keys:
            return self._set(old, elements)
        return _KeyedList(old, schema, path, self).merge(elements)

    def _set(self, old: list[Any], patch: list[Any]) -> list[Any]:
        try:
            return old if set(old).issuperset(patch) else list(dict.fromkeys((*patch, *old)))
        except TypeError:
            # Maps and lists have no hash.
            self.allowance.spend(_PAIR * (len(old) + len(patch)) ** 2)
        if all(value in old for value in patch):
            return old
        merged: list[Any] = []
        for value in (*patch, *old):
            if value not in merged:
                merged.append(value)
        return merged


def _ordered(
    merged: list[Any],
    order: list[Any],
    *,
    old: list[Any],
    patch: list[Any],
    schema: Schema | None,
    path: Path,
) -> list[Any]:
    # The API server identifies elements by the first key alone.
    keys = (schema.merge_keys or ())[:1] if schema else ()
    place = ".".join(path)
    if not keys and any(isinstance(item, dict | list) for item in merged):
        raise EvaluationError(f"$setElementOrder/{place}: the elements of this list have no key")
    identify = partial(_identity, keys=keys) if keys else directives.scalar
    named = [
        item for item in patch if not (isinstance(item, dict) and directives.STRATEGY in item)
    ]
    return directives.arrange(merged, old, order, identify=identify, named=named, place=place)


class _KeyedList:
    """One merge of a list whose elements are found by their keys."""

    def __init__(self, old: list[Any], schema: Schema, path: Path, merging: _Merge) -> None:
        self._old = old
        self._merging = merging
        self._keys = schema.merge_keys or ()
        self._items = schema.items
        self._path = path
        merging.allowance.spend(STEPS_OF_ELEMENT * len(old))
        self._places: dict[Identity, list[int]] = defaultdict(list)
        for i, element in enumerate(old):
            self._places[self._identity(element)].append(i)
        self._partial = [known for known in self._places if None in known]

    def merge(self, patch: list[Any]) -> list[Any]:
        """Return patched and new elements in the order of the patch, then the others as before."""
        front: list[tuple[Identity, Any]] = []
        found: dict[Identity, int] = {}
        partial = False
        used: set[int] = set()
        changed = False
        for element in patch:
            identity = self._identity_of_patch(element)
            partial = partial or None in identity
            at = self._find(front, identity) if partial else found.get(identity)
            if at is None:
                places = self._find_old(identity)
                at = found[identity] = len(front)
                front.append((identity, self._old[places[-1]] if places else _ABSENT))
                used.update(places)
                changed = changed or len(places) > 1
            before = front[at][1]
            place = (*self._path, _label(identity))
            after = self._merging.value(before, element, self._items, place)
            changed = changed or after is not before
            front[at] = (identity if after is _ABSENT else self._identity(after), after)
        if not changed and not self._merging.fronts:
            return self._old
        rest = [element for i, element in enumerate(self._old) if i not in used]
        merged = [element for _, element in front if element is not _ABSENT] + rest
        return self._old if not changed and equal(self._old, merged) else merged

    def _find(self, front: list[tuple[Identity, Any]], identity: Identity) -> int | None:
        """Return the index of an earlier element of the patch, if possible an exact match."""
        self._merging.allowance.spend(STEPS_OF_ELEMENT * len(front))
        for same in (operator.eq, _agree):
            for at, (known, _) in enumerate(front):
                if same(known, identity):
                    return at
        return None

    def _find_old(self, identity: Identity) -> list[int]:
        """Return the indexes of an element in the old list; several if it has duplicates."""
        if identity in self._places:
            return self._places[identity]
        others = self._places if None in identity else self._partial
        self._merging.allowance.spend(STEPS_OF_ELEMENT * len(others))
        near = [known for known in others if _agree(known, identity)]
        if len(near) > 1:
            raise EvaluationError(
                f"{_place((*self._path, _label(identity)))}: several elements of the object fit;"
                f" give all of {', '.join(self._keys)}"
            )
        return self._places[near[0]] if near else []

    def _identity_of_patch(self, element: Any) -> Identity:
        if not isinstance(element, dict):
            raise EvaluationError(
                f"wrong node kind: expected MappingNode but got {_kind_name(element)}:"
                f" the elements of {_place(self._path)} are maps"
            )
        identity = self._identity(element)
        if not any(part is not None for part in identity):
            raise EvaluationError(
                f"{_place(self._path)}: an element of the patch has no {' and '.join(self._keys)};"
                " name the element to patch, or use an anchor like (name) to select some"
            )
        return identity

    def _identity(self, element: Any) -> Identity:
        return _identity(element, self._keys)


def _identity(element: Any, keys: tuple[str, ...]) -> Identity:
    if not isinstance(element, dict):
        return (None,) * len(keys)
    values = [element.get(key) for key in keys]
    return tuple(None if isinstance(value, dict | list) else value for value in values)


def _agree(left: Identity, right: Identity) -> bool:
    """Return whether identities share at least one key part, and are equal in all they share."""
    pairs = [(a, b) for a, b in zip(left, right, strict=True) if a is not None and b is not None]
    return bool(pairs) and all(a == b for a, b in pairs)


def _kind_name(value: Any) -> str:
    if isinstance(value, dict):
        return "MappingNode"
    return "SequenceNode" if isinstance(value, list) else "ScalarNode"


def _label(identity: Identity) -> str:
    return f"[{','.join(str(part) for part in identity if part is not None)}]"


def _place(path: Path) -> str:
    return ".".join(path).replace(".[", "[") or "the top of the object"
