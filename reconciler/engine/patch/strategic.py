"""Strategic merge of a plain patch (without anchors) into an object.

The rules are those of kyaml's merge2, which Kyverno uses: null deletes, keyed lists merge with
the patched elements in front, all other lists are replaced, `$patch` directives. Different from
it: an element without its key is an error instead of the end of the list, a key that is given in
part finds its element, and a patch that changes no element does not reorder the list, unless it is
one of several (a foreach goes backwards, so that elements in front end up in their old order).
"""

import operator
from typing import Any, Final

from reconciler.engine.patch.diff import equal
from reconciler.engine.patch.keys import Schema, schema_for
from reconciler.errors import EvaluationError

DIRECTIVE: Final = "$patch"

_ABSENT: Final = object()
_STRATEGIES: Final = ("delete", "merge", "replace")

Path = tuple[str, ...]
Identity = tuple[Any, ...]


def merge(
    resource: dict[str, Any],
    patch: dict[str, Any],
    schema: Schema | None,
    *,
    fronts: bool = False,
) -> dict[str, Any]:
    """The object with the patch merged in; the object itself when nothing changes.

    Args:
        resource: The object; stays as it is, unchanged parts are shared with the result.
        patch: Without anchors (see `anchors.preprocess`).
        schema: From `schema_for`; None for custom resources, whose lists are replaced.
        fronts: Elements that the patch names come to the front even if nothing changes.

    Raises:
        EvaluationError: kinds of value differ, a keyed element has no key, unknown `$patch`.
    """
    try:
        merged = _merge(resource, patch, schema, (), fronts=fronts)
    except RecursionError as error:
        raise EvaluationError("the object or the patch is nested too deeply") from error
    return {} if merged is _ABSENT else merged


def _merge(old: Any, patch: Any, schema: Schema | None, path: Path, *, fronts: bool) -> Any:
    """The merged value; `old` itself when nothing changes, _ABSENT when it is to go."""
    if patch is None:
        return _ABSENT
    if old is None or old is _ABSENT:
        return _insert(patch, schema, path)
    if _kind_name(old) != _kind_name(patch):
        raise EvaluationError(
            f"wrong node kind: expected {_kind_name(old)} but got {_kind_name(patch)}:"
            f" the patch must have at {_place(path)} what the object has there"
        )
    if isinstance(patch, dict):
        return _merge_map(old, patch, schema, path, fronts=fronts)
    if isinstance(patch, list):
        return _merge_list(old, patch, schema, path, fronts=fronts)
    return old if equal(old, patch) else patch


def _insert(patch: Any, schema: Schema | None, path: Path) -> Any:
    """A value where nothing was: without nulls, even if an empty map is all that is left."""
    if isinstance(patch, dict):
        return _merge_map({}, patch, schema or _own_schema(patch), path, fronts=False)
    if isinstance(patch, list):
        return _merge_list([], patch, schema, path, fronts=False)
    return patch


def _merge_map(
    old: dict[str, Any], patch: dict[str, Any], schema: Schema | None, path: Path, *, fronts: bool
) -> Any:
    if DIRECTIVE in patch:
        return _merge_directed(old, patch, schema, path, fronts=fronts)
    if schema is None:
        schema = _own_schema(old)
    merged = old
    for key, value in patch.items():
        before = old.get(key, _ABSENT)
        below = schema.field(key) if schema else None
        after = _merge(before, value, below, (*path, key), fronts=fronts)
        if after is before:
            continue
        if merged is old:
            merged = dict(old)
        if after is _ABSENT:
            del merged[key]
        else:
            merged[key] = after
    return merged


def _merge_directed(
    old: dict[str, Any], patch: dict[str, Any], schema: Schema | None, path: Path, *, fronts: bool
) -> Any:
    strategy = _strategy(patch, path)
    if strategy == "delete":
        return _ABSENT
    rest = {key: value for key, value in patch.items() if key != DIRECTIVE}
    if strategy == "merge":
        return _merge_map(old, rest, schema, path, fronts=fronts)
    new = _insert(rest, schema, path)
    return old if equal(old, new) else new


def _own_schema(value: dict[str, Any]) -> Schema | None:
    """An object inside of another one (a template in a custom resource) knows its kind."""
    api_version, kind = value.get("apiVersion"), value.get("kind")
    if isinstance(api_version, str) and isinstance(kind, str):
        return schema_for(api_version, kind)
    return None


def _merge_list(
    old: list[Any], patch: list[Any], schema: Schema | None, path: Path, *, fronts: bool
) -> Any:
    strategy = "merge"
    elements = patch
    for element in patch:
        if isinstance(element, dict) and element.keys() == {DIRECTIVE}:
            strategy = _strategy(element, path)
            elements = [other for other in patch if other != element]
    if strategy == "delete":
        return _ABSENT
    if schema is None or schema.merge_keys is None or strategy == "replace":
        return old if equal(old, elements) else elements
    if not schema.merge_keys:
        return _merge_set(old, elements)
    return _KeyedList(old, schema, path, fronts=fronts).merge(elements)


def _merge_set(old: list[Any], patch: list[Any]) -> list[Any]:
    if all(value in old for value in patch):
        return old
    merged: list[Any] = []
    for value in (*patch, *old):
        if value not in merged:
            merged.append(value)
    return merged


class _KeyedList:
    """One merge of a list whose elements are found by their keys."""

    def __init__(self, old: list[Any], schema: Schema, path: Path, *, fronts: bool) -> None:
        self._old = old
        self._keys = schema.merge_keys or ()
        self._items = schema.items
        self._path = path
        self._fronts = fronts
        self._identities = [self._identity(element) for element in old]

    def merge(self, patch: list[Any]) -> list[Any]:
        """Patched and new elements in the order of the patch, then the others as they were."""
        front: list[tuple[Identity, Any]] = []
        used: set[int] = set()
        changed = False
        for element in patch:
            identity = self._identity_of_patch(element)
            at = _find(front, identity)
            if at is None:
                places = self._places(identity)
                at = len(front)
                front.append((identity, self._old[places[-1]] if places else _ABSENT))
                used.update(places)
                changed = changed or len(places) > 1
            before = front[at][1]
            place = (*self._path, _label(identity))
            after = _merge(before, element, self._items, place, fronts=self._fronts)
            changed = changed or after is not before
            front[at] = (identity if after is _ABSENT else self._identity(after), after)
        if not changed and not self._fronts:
            return self._old
        rest = [element for i, element in enumerate(self._old) if i not in used]
        merged = [element for _, element in front if element is not _ABSENT] + rest
        return self._old if not changed and equal(self._old, merged) else merged

    def _places(self, identity: Identity) -> list[int]:
        """Where in the old list the element stands; more than once if it is there twice."""
        exact = [i for i, known in enumerate(self._identities) if known == identity]
        if exact or len(self._keys) == 1:
            return exact
        near = [i for i, known in enumerate(self._identities) if _agree(known, identity)]
        if len({self._identities[i] for i in near}) > 1:
            raise EvaluationError(
                f"{_place((*self._path, _label(identity)))}: several elements of the object fit;"
                f" give all of {', '.join(self._keys)}"
            )
        return near

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
        if not isinstance(element, dict):
            return (None,) * len(self._keys)
        values = [element.get(key) for key in self._keys]
        return tuple(None if isinstance(value, dict | list) else value for value in values)


def _find(front: list[tuple[Identity, Any]], identity: Identity) -> int | None:
    """Where an earlier element of the same patch stands, the same one rather than a similar."""
    for same in (operator.eq, _agree):
        for at, (known, _) in enumerate(front):
            if same(known, identity):
                return at
    return None


def _agree(left: Identity, right: Identity) -> bool:
    """Equal where both say something, and both say something somewhere."""
    pairs = [(a, b) for a, b in zip(left, right, strict=True) if a is not None and b is not None]
    return bool(pairs) and all(a == b for a, b in pairs)


def _strategy(patch: dict[str, Any], path: Path) -> str:
    strategy = patch[DIRECTIVE]
    if strategy not in _STRATEGIES:
        raise EvaluationError(
            f"unknown patch strategy '{strategy}' at {_place(path)};"
            f" use one of {', '.join(_STRATEGIES)}"
        )
    return str(strategy)


def _kind_name(value: Any) -> str:
    if isinstance(value, dict):
        return "MappingNode"
    return "SequenceNode" if isinstance(value, list) else "ScalarNode"


def _label(identity: Identity) -> str:
    return f"[{','.join(str(part) for part in identity if part is not None)}]"


def _place(path: Path) -> str:
    return ".".join(path).replace(".[", "[") or "the top of the object"
