"""The directives of a strategic merge patch.

``$patch`` replaces, deletes or merges the value that holds it; ``$retainKeys`` drops every other
field; ``$deleteFromPrimitiveList/x`` removes values from the list ``x``; ``$setElementOrder/x``
orders it. They work as in the API server, which does not have ``$patch: merge``, however.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from reconciler.errors import EvaluationError

MARK: Final = "$"
STRATEGY: Final = "$patch"
STRATEGIES: Final = ("delete", "merge", "replace")
_RETAIN: Final = "$retainKeys"
_REMOVE: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"

Token = tuple[Any, ...]
Identify = Callable[[Any], Token]


@dataclass(frozen=True, slots=True, kw_only=True)
class Directives:
    """The fields and directives of one map of a patch.

    Attributes:
        retained: The fields that may stay, None for all.
        removed: Values to remove, by field.
        order: The elements in their order, by field.
    """

    fields: dict[str, Any]
    strategy: str
    retained: frozenset[str] | None
    removed: Mapping[str, list[Any]]
    order: Mapping[str, list[Any]]

    def trim(self, old: dict[str, Any], place: str) -> dict[str, Any]:
        """Return the map without the fields and values to remove; itself if there are none."""
        kept = old
        if self.retained is not None and not old.keys() <= self.retained:
            kept = {key: value for key, value in old.items() if key in self.retained}
        for key, values in self.removed.items():
            listed = kept.get(key)
            if listed is None:
                continue
            if not isinstance(listed, list):
                raise EvaluationError(f"{_REMOVE}{key} at {place}: {key} is not a list")
            gone = {scalar(value) for value in values}
            left = [item for item in listed if scalar(item) not in gone]
            if len(left) < len(listed):
                kept = {**kept, key: left}
        return kept


def read(patch: dict[str, Any], place: str) -> Directives:
    """Return the fields and directives of a map of a patch.

    Raises:
        EvaluationError: A directive is unknown or malformed.
    """
    fields: dict[str, Any] = {}
    removed: dict[str, list[Any]] = {}
    order: dict[str, list[Any]] = {}
    for key, value in patch.items():
        if key.startswith(_REMOVE):
            removed[key.removeprefix(_REMOVE)] = _listed(key, value, place)
        elif key.startswith(_ORDER):
            order[key.removeprefix(_ORDER)] = _listed(key, value, place)
        elif key not in (STRATEGY, _RETAIN):
            fields[key] = value
    return Directives(
        fields=fields,
        strategy=strategy(patch, place) if STRATEGY in patch else "merge",
        retained=_retained(patch, fields, place) if _RETAIN in patch else None,
        removed=removed,
        order=order,
    )


def strategy(patch: Mapping[str, Any], place: str) -> str:
    """Return the value of ``$patch``.

    Raises:
        EvaluationError: The value is not one of `STRATEGIES`.
    """
    found = patch[STRATEGY]
    if found not in STRATEGIES:
        raise EvaluationError(
            f"unknown patch strategy '{found}' at {place}; use one of {', '.join(STRATEGIES)}"
        )
    return str(found)


def arrange(
    merged: list[Any],
    old: list[Any],
    order: list[Any],
    *,
    identify: Identify,
    named: list[Any],
    place: str,
) -> list[Any]:
    """Return elements in the order of a patch, with those it does not name at their old places.

    Each element without a given order comes before the first ordered element that followed it.

    Args:
        merged: The elements.
        old: The list in the object, before the merge.
        order: From ``$setElementOrder``.
        identify: Returns the identity of an element.
        named: The elements of the patch.

    Raises:
        EvaluationError: The patch has an element that the order does not name.
    """
    ranks: dict[Token, int] = {}
    for element in order:
        ranks.setdefault(identify(element), len(ranks))
    for element in named:
        if identify(element) not in ranks:
            raise EvaluationError(
                f"{_ORDER}{place}: it must name every element of the patch, but lacks one"
            )
    before = {identify(element): at for at, element in reversed(list(enumerate(old)))}
    tokens = [(identify(element), element) for element in merged]
    ordered = sorted((item for item in tokens if item[0] in ranks), key=lambda i: ranks[i[0]])
    others = sorted(
        (item for item in tokens if item[0] not in ranks),
        key=lambda item: before.get(item[0], len(old)),
    )
    arranged: list[Any] = []
    waiting = iter(others)
    other = next(waiting, None)
    for token, element in ordered:
        while other is not None and before.get(other[0], len(old)) < before.get(token, -1):
            arranged.append(other[1])
            other = next(waiting, None)
        arranged.append(element)
    if other is not None:
        arranged += [other[1], *(item[1] for item in waiting)]
    return arranged


def scalar(value: Any) -> Token:
    """Return the identity of a value in a list of scalars; true and 1 differ."""
    if isinstance(value, dict | list):
        return (type(value), id(value))
    return (isinstance(value, bool), value)


def _listed(key: str, value: Any, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise EvaluationError(f"{key} at {place} must be a list")
    return value


def _retained(patch: Mapping[str, Any], fields: Mapping[str, Any], place: str) -> frozenset[str]:
    listed = _listed(_RETAIN, patch[_RETAIN], place)
    kept = frozenset(item for item in listed if isinstance(item, str))
    lost = [key for key, value in fields.items() if value is not None and key not in kept]
    if lost:
        raise EvaluationError(
            f"{_RETAIN} at {place} does not name {lost[0]}, which the patch sets: name it too"
        )
    return kept
