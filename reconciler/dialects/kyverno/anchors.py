"""Anchors of a strategic merge patch, and their resolution to a plain patch.

In a patch ``(k)`` is a condition on the sibling fields, ``<(k)`` one on the whole patch, ``X(k)``
requires the absence of a key, ``+(k)`` adds a missing key. Inside the value of a condition all
anchors of the pattern language apply. A condition that fails outside of a list disables the whole
patch; in an element of a list, that element. Elements with anchors are templates: they patch each
matching element of the object, and are never added themselves.

Different from Kyverno: each element is decided by itself, a condition at the root leaves no
literal key, maps written empty stay, and keys that result from a variable are never anchors.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from reconciler.dialects.kyverno import pattern
from reconciler.dialects.kyverno.pattern import Anchor, AnchorKind
from reconciler.engine.allowance import STEPS_OF_ELEMENT, UNLIMITED, Allowance
from reconciler.engine.outcome import Unmet
from reconciler.engine.patch.keys import SHIPPED, KeyTable, Schema
from reconciler.engine.values import scalars
from reconciler.errors import EvaluationError, InvalidPolicy
from reconciler.values import value_class

_MISSING: Final = object()
_NOTHING: Final = object()

_CONDITIONS: Final = frozenset({AnchorKind.GLOBAL, AnchorKind.CONDITION, AnchorKind.NEGATION})
_CONTENT: Final = frozenset({AnchorKind.GLOBAL, AnchorKind.CONDITION})
_CURES: Final = {
    AnchorKind.EQUALITY: "use (key) for a condition, or +(key) to add a missing key",
    AnchorKind.EXISTENCE: "put it into the value of a condition, as in (list): [...]",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A key with an anchor, or a plain key with anchors below it.

    Attributes:
        index: Position of the key in its map; variables may change its text, not its position.
        anchor: None for a plain key.
        child: The anchors in the value, None without any.
        variable: The key holds a variable, so that its text is only known at evaluation.
    """

    index: int
    anchor: Anchor | None
    child: "_Map | _List | None"
    variable: bool

    @property
    def is_global(self) -> bool:
        """Whether the anchor is a condition on the whole patch."""
        return self.anchor is not None and self.anchor.kind is AnchorKind.GLOBAL

    def read(self, written: str) -> Anchor | None:
        """Return the anchor with the key after substitution."""
        if self.anchor is None or not self.variable:
            return self.anchor
        return pattern.parse_anchor(written)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Map:
    """The anchors in one map of a patch.

    Attributes:
        size: Number of keys of the map, with and without anchors.
        conditions: The conditions to check, global ones first; empty within another condition,
            which compares its whole value.
        adds: The map has a key to add if absent.
        has_global: There is a global condition in the map or below it.
    """

    size: int
    entries: Mapping[int, _Entry]
    conditions: tuple[_Entry, ...]
    adds: bool
    has_global: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _List:
    """The anchors in the elements of one list; None for a plain element.

    Attributes:
        tested: The list is part of a condition, so its templates patch nothing.
    """

    elements: tuple[_Map | None, ...]
    has_global: bool
    tested: bool


class _UnmetCondition(Exception):
    """A condition does not hold for the current map."""

    def __init__(self, kind: AnchorKind, problem: str) -> None:
        self.is_global = kind is AnchorKind.GLOBAL
        self.scope = f"{'global condition' if self.is_global else 'condition'} failed"
        super().__init__(f"{self.scope}: {problem}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategicPatch:
    """The positions of the anchors in a strategic merge patch, found once.

    Attributes:
        anchors: None for a patch without anchors.
    """

    anchors: _Map | None

    def resolve(
        self,
        patch: Any,
        resource: dict[str, Any],
        keys: KeyTable = SHIPPED,
        *,
        allowance: Allowance = UNLIMITED,
    ) -> dict[str, Any] | Unmet:
        """Return the plain patch for one object, without anchors.

        Args:
            patch: The compiled patch after variable substitution.
            keys: The merge keys that identify the elements which a template matches.
            allowance: What matching may cost.

        Raises:
            EvaluationError: Patch and object differ in the types of their values.
        """
        if not isinstance(patch, dict):
            raise EvaluationError("the strategic merge patch must be a map after substitution")
        if self.anchors is None:
            return patch
        try:
            resolution = _Resolution(keys=keys, allowance=allowance)
            plain = resolution.map(self.anchors, patch, resource, None)
        except _UnmetCondition as unmet:
            return Unmet(reason=str(unmet), bare=unmet.scope)
        except RecursionError as error:
            raise EvaluationError("the patch is nested too deeply") from error
        return {} if plain is _NOTHING else plain


def compile_strategic(patch: Any, *, location: str) -> StrategicPatch:
    """Find the anchors of a patch, whose values and keys may still hold variables.

    Raises:
        InvalidPolicy: An anchor has no meaning where it is used, or the patch is not a map.
    """
    if isinstance(patch, dict):
        try:
            return StrategicPatch(anchors=_compile_map(patch, location, tested=False))
        except RecursionError as error:
            raise InvalidPolicy(location, "is nested too deeply") from error
    if isinstance(patch, str) and "{{" in patch:
        return StrategicPatch(anchors=None)
    raise InvalidPolicy(location, "must be a map, shaped like the object that it patches")


def _compile(value: Any, location: str, *, tested: bool) -> _Map | _List | None:
    """Return the anchors in a value; ``tested`` within a condition, where all kinds are valid."""
    match value:
        case dict():
            return _compile_map(value, location, tested=tested)
        case list():
            return _compile_list(value, location, tested=tested)
        case _:
            return None


def _compile_map(patch: dict[str, Any], location: str, *, tested: bool) -> _Map | None:
    entries = tuple(_compile_entries(patch, location, tested=tested))
    if not entries:
        return None
    conditions = [e for e in entries if e.anchor and e.anchor.kind in _CONDITIONS and not tested]
    conditions.sort(key=lambda entry: not entry.is_global)
    return _Map(
        size=len(patch),
        entries={entry.index: entry for entry in entries},
        conditions=tuple(conditions),
        adds=any(e.anchor and e.anchor.kind is AnchorKind.ADD_IF_ABSENT for e in entries),
        has_global=any(e.is_global or (e.child and e.child.has_global) for e in entries),
    )


def _compile_entries(patch: dict[str, Any], location: str, *, tested: bool) -> Iterator[_Entry]:
    for index, (key, value) in enumerate(patch.items()):
        if not isinstance(key, str):
            raise InvalidPolicy(location, f"the key {key!r} must be a string; put it in quotes")
        anchor = pattern.parse_anchor(key)
        place = f"{location}.{key}"
        if anchor and not tested and anchor.kind in _CURES:
            raise InvalidPolicy(place, f"the anchor has no meaning here; {_CURES[anchor.kind]}")
        inner_tested = tested or (anchor is not None and anchor.kind in _CONDITIONS)
        child = _compile(value, place, tested=inner_tested)
        if anchor or child:
            yield _Entry(index=index, anchor=anchor, child=child, variable="{{" in key)


def _compile_list(patch: list[Any], location: str, *, tested: bool) -> _List | None:
    elements: list[_Map | None] = []
    for index, element in enumerate(patch):
        anchors = _compile(element, f"{location}[{index}]", tested=tested)
        if isinstance(anchors, _List):
            raise InvalidPolicy(
                f"{location}[{index}]", "anchors are not supported in a list of lists"
            )
        elements.append(anchors)
    if not any(elements):
        return None
    return _List(
        elements=tuple(elements),
        has_global=any(anchors and anchors.has_global for anchors in elements),
        tested=tested,
    )


@value_class(frozen=True, slots=True, kw_only=True)
class _Resolution:
    """One resolution of the anchors of a patch for an object."""

    keys: KeyTable
    allowance: Allowance

    def map(
        self, anchors: _Map, patch: dict[str, Any], resource: Any, schema: Schema | None
    ) -> Any:
        """Return the plain map for this part of the object, or _NOTHING when it would be empty."""
        if schema is None and isinstance(resource, dict):
            # The object itself, or one inside of a custom resource.
            schema = self.keys.of(resource)
        self.allowance.spend(STEPS_OF_ELEMENT * (1 + anchors.size))
        if len(patch) != anchors.size:
            raise EvaluationError("two keys of the patch are equal after substitution")
        items = list(patch.items())
        for condition in anchors.conditions:
            self._check(condition, *items[condition.index], resource)
        plain: dict[str, Any] = {}
        for index, (written, value) in enumerate(items):
            entry = anchors.entries.get(index)
            if entry is None:
                # Of a key that is given with and without an anchor, the anchored one counts.
                plain.setdefault(written, value)
            else:
                key, kept = self._entry(entry, written, value, resource, schema)
                if kept is not _NOTHING:
                    plain[key] = kept
        return plain or _NOTHING

    def _entry(
        self, entry: _Entry, written: str, value: Any, resource: Any, schema: Schema | None
    ) -> tuple[str, Any]:
        anchor = entry.read(written)
        key = anchor.key if anchor else written
        inner = _field(resource, key)
        if anchor and anchor.kind is not AnchorKind.ADD_IF_ABSENT:
            return key, self._content(entry, anchor, value, inner)
        if anchor and inner is not _MISSING:
            return key, _NOTHING
        return key, self.value(entry.child, value, inner, schema.field(key) if schema else None)

    def value(
        self, anchors: _Map | _List | None, patch: Any, resource: Any, schema: Schema | None
    ) -> Any:
        match anchors:
            case None:
                return patch
            case _Map():
                return self.map(anchors, patch, resource, schema)
            case _List():
                return self._list(anchors, patch, resource, schema)

    def _list(self, anchors: _List, patch: list[Any], resource: Any, schema: Schema | None) -> Any:
        """Return the plain elements as written, then the patches of templates for elements."""
        pairs = list(zip(anchors.elements, patch, strict=True))
        plain = [element for template, element in pairs if template is None]
        if anchors.tested:
            return plain or _NOTHING
        if resource is not _MISSING and not isinstance(resource, list | None):
            raise EvaluationError(
                "wrong node kind: expected SequenceNode: the patch has a list with anchors where"
                " the object has none"
            )
        made: list[Any] = []
        for template, element in pairs:
            if template is not None:
                made.extend(self._instances(template, element, resource, schema))
        return plain + made or _NOTHING

    def _instances(
        self, template: _Map, element: dict[str, Any], resource: Any, schema: Schema | None
    ) -> Iterator[dict[str, Any]]:
        """Yield the patch of a template for each matching element; a gate yields nothing.

        A template with a global condition is a gate, which fails the whole patch when no element
        passes and one failed on a global condition, or when the list is missing altogether.
        """
        refused: _UnmetCondition | None = None
        passed = False
        for item in [_MISSING] if resource is _MISSING else resource or ():
            try:
                plain = self.map(template, element, item, schema.items if schema else None)
            except _UnmetCondition as unmet:
                refused = unmet if unmet.is_global else refused
                continue
            passed = True
            named = _named(plain, item, schema)
            if named and not template.has_global:
                yield named
        if refused and not passed:
            raise refused

    def _check(self, entry: _Entry, written: str, wanted: Any, resource: Any) -> None:
        """Check one condition.

        Raises:
            _UnmetCondition: The condition does not hold.
        """
        anchor = entry.read(written)
        if anchor is None:
            raise EvaluationError(f"{written} is no longer an anchor after substitution")
        value = _field(resource, anchor.key)
        if anchor.kind is AnchorKind.NEGATION:
            if value is not _MISSING:
                raise _UnmetCondition(anchor.kind, f'the resource has the "{anchor.key}" key')
            return
        if value is _MISSING:
            raise _UnmetCondition(
                anchor.kind, f'could not found "{anchor.key}" key in the resource'
            )
        if isinstance(entry.child, _Map) and entry.child.adds:
            return
        if not self._holds(value, wanted):
            raise _UnmetCondition(anchor.kind, f'"{anchor.key}" does not match the patch')

    def _holds(self, value: Any, wanted: Any) -> bool:
        if isinstance(value, dict | list) or isinstance(wanted, dict | list):
            return pattern.match_pattern(value, wanted, self.allowance)
        # As texts, so that the pattern "true" matches true, and "5" matches 5.
        return pattern.matches(scalars.text(value), scalars.text(wanted), self.allowance)

    def _content(self, entry: _Entry, anchor: Anchor, value: Any, resource: Any) -> Any:
        """Return the patch in the value of a condition: the parts that are no conditions."""
        if anchor.kind not in _CONTENT or not isinstance(value, dict | list) or not value:
            return _NOTHING
        return self.value(entry.child, value, resource, None)


def _named(plain: Any, item: Any, schema: Schema | None) -> dict[str, Any] | None:
    """Return the plain element with the merge keys of the object's element to be patched."""
    if plain is _NOTHING or not isinstance(item, dict):
        return None
    keys = (schema.merge_keys if schema else None) or ("name",)
    identity = {key: item[key] for key in keys if item.get(key) not in (None, "")}
    return {**plain, **identity} if identity else None


def _field(resource: Any, key: str) -> Any:
    return resource.get(key, _MISSING) if isinstance(resource, dict) else _MISSING
