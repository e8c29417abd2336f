"""Conditions that keep the API server from asking about objects that no policy means; pure.

A policy on one ConfigMap would otherwise put every write of a ConfigMap under its failure policy.
A condition excludes only what is known not to match: what has no name yet, and a collection that
is deleted, is asked about.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from reconciler.api.meta import Kind, Object
from reconciler.engine.match import KindSelector, LabelRequirement
from reconciler.engine.program import Program

_MOST_VALUES: Final = 100
"""Names, namespaces and labels in one condition."""

_MOST_CHARACTERS: Final = 200_000
"""In the conditions of one webhook; a whole configuration has to fit into a stored object."""

_CONDITION: Final = "kube-retrofit-objects-{}"
_LABELS: Final = (
    "(has(one.metadata) && has(one.metadata.labels) && {key} in one.metadata.labels{value})"
)

Resource = tuple[str, str]
"""Group and plural; conditions cannot tell versions of one resource apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clause:
    """Objects of one resource that a rule may match; None: of any name, in any namespace."""

    names: frozenset[str] | None = None
    namespaces: frozenset[str] | None = None
    labels: frozenset[LabelRequirement] = frozenset()

    @property
    def is_open(self) -> bool:
        return self.names is None and self.namespaces is None and not self.labels

    @property
    def size(self) -> int:
        values = sum(1 + len(item.values) for item in self.labels)
        return values + len(self.names or ()) + len(self.namespaces or ())

    def covers(self, selected: frozenset[str] | None) -> bool:
        """Return whether it lets through everything in some namespaces."""
        if selected is None or self.names is not None or self.labels:
            return False
        return self.namespaces is None or selected <= self.namespaces

    def expression(self) -> str:
        parts = []
        if self.namespaces is not None:
            listed = _listed(self.namespaces)
            parts.append(f"has(request.namespace) && request.namespace in {listed}")
        if self.names is not None:
            parts.append(_named(_listed(self.names)))
        if self.labels:
            parts.append(_labelled(self.labels))
        return " && ".join(parts)


_ANY: Final = _Clause()


def conditions(
    programs: Iterable[Program],
    kinds: Mapping[KindSelector, Sequence[Kind]],
    most: int,
    *,
    selected: frozenset[str] | None,
    labels_are_final: bool,
) -> list[Object]:
    """Return what a webhook for some rules need not be asked about, ``most`` conditions.

    The API server makes every object ready for the first condition that it evaluates, which costs
    more than the condition: none is returned that says what the namespace selector says.

    Args:
        programs: The rules.
        kinds: What their selectors resolve to.
        most: How many conditions there may be.
        selected: The only namespaces that the webhook's selector lets through; None: any.
        labels_are_final: The API server does not ask again after another webhook changed the
            object. Where it does, it asks only whom it has asked before: an object that gets its
            label meanwhile would never come to a rule that asks for it.
    """
    narrow = []
    namespaced = {
        (kind.group, kind.plural) for found in kinds.values() for kind in found if kind.namespaced
    }
    for resource, clauses in sorted(_clauses(programs, kinds).items()):
        chosen = _fitting(clauses if labels_are_final else _unlabelled(clauses))
        inside = selected if resource in namespaced else None
        if chosen and not any(clause.covers(inside) for clause in chosen):
            narrow.append(_expression(*resource, chosen))
    return [
        {"name": _CONDITION.format(index + 1), "expression": expression}
        for index, expression in enumerate(_short_enough(narrow[: max(0, most)]))
    ]


def _short_enough(expressions: Sequence[str]) -> Iterator[str]:
    """Yield what fits, and leave out the longest of what does not."""
    left = _MOST_CHARACTERS
    kept = set()
    for expression in sorted(expressions, key=len):
        left -= len(expression)
        if left >= 0:
            kept.add(expression)
    yield from (expression for expression in expressions if expression in kept)


def _clauses(
    programs: Iterable[Program], kinds: Mapping[KindSelector, Sequence[Kind]]
) -> dict[Resource, set[_Clause]]:
    """Return what is matched of each resource, nothing where a rule is for every kind."""
    found: dict[Resource, set[_Clause]] = {}
    for program in programs:
        for selector, clause in meant(program):
            if selector.kind == "*":
                return {}
            for kind in kinds.get(selector, ()):
                clauses = found.setdefault((kind.group, kind.plural), set())
                clauses.add(_of_namespace(clause) if kind.kind == "Namespace" else clause)
    return found


def meant(program: Program) -> Iterator[tuple[KindSelector, _Clause]]:
    """Yield what a rule matches, with all that is known of it."""
    listings = program.match.listings(requests=True)
    for listing in listings:
        clause = _Clause(
            names=None if listing.names is None else frozenset(listing.names),
            namespaces=None if listing.namespaces is None else frozenset(listing.namespaces),
            labels=frozenset(listing.labels),
        )
        for selector in listing.kinds:
            # Of some subresources the object is another one than what it belongs to.
            yield selector, _ANY if selector.subresource else clause
    listed = {selector for listing in listings for selector in listing.kinds}
    for scope in program.match.kinds():
        if scope.selector not in listed:
            yield scope.selector, _ANY


def _of_namespace(clause: _Clause) -> _Clause:
    """Return the same for Namespaces: the one that such an object lies in bears its name."""
    if clause.namespaces is None:
        return clause
    names = clause.namespaces if clause.names is None else clause.names & clause.namespaces
    return replace(clause, names=names, namespaces=None)


def _fitting(clauses: Iterable[_Clause]) -> list[_Clause]:
    """Return clauses that exclude as much as one condition may say, none where that is nothing."""
    whole = set(clauses)
    views = (
        whole,
        _unlabelled(whole),
        {_Clause(names=clause.names) for clause in whole},
        {_Clause(namespaces=clause.namespaces) for clause in whole},
    )
    for view in views:
        if any(clause.is_open for clause in view):
            continue
        merged = _merged(view)
        if sum(clause.size for clause in merged) <= _MOST_VALUES:
            return merged
    return []


def _unlabelled(clauses: Iterable[_Clause]) -> set[_Clause]:
    return {replace(clause, labels=frozenset()) for clause in clauses}


def _merged(clauses: Iterable[_Clause]) -> list[_Clause]:
    """Return the same with one list of names for all that differ in nothing else, in order."""
    names: dict[tuple[frozenset[str] | None, frozenset[LabelRequirement]], set[str] | None] = {}
    for clause in clauses:
        key = clause.namespaces, clause.labels
        known = names.setdefault(key, set())
        names[key] = None if known is None or clause.names is None else known | clause.names
    merged = (
        _Clause(
            names=None if found is None else frozenset(found), namespaces=spaces, labels=labels
        )
        for (spaces, labels), found in names.items()
    )
    return sorted(merged, key=_Clause.expression)


def _expression(group: str, plural: str, clauses: Sequence[_Clause]) -> str:
    parts = [
        f"request.resource.group != {json.dumps(group)}",
        f"request.resource.resource != {json.dumps(plural)}",
        *(f"({clause.expression()})" for clause in clauses),
    ]
    return " || ".join(parts)


def _named(allowed: str) -> str:
    # A request has no name where the API server made it up, or deletes a collection: not even an
    # empty one.
    return (
        f'(has(request.name) && request.name != "" ? request.name in {allowed}'
        f" : object != null ? !has(object.metadata.name) || object.metadata.name in {allowed}"
        f" : oldObject == null || oldObject.metadata.name in {allowed})"
    )


def _labelled(requirements: Iterable[LabelRequirement]) -> str:
    # Rules are asked about the old object only where there is no other, so it is the same here.
    held = " && ".join(_holds(item) for item in sorted(requirements, key=str))
    return f"[object != null ? object : oldObject].all(one, one == null || ({held}))"


def _holds(requirement: LabelRequirement) -> str:
    key = json.dumps(requirement.key)
    value = ""
    if requirement.values:
        value = f" && one.metadata.labels[{key}] in {_listed(requirement.values)}"
    found = _LABELS.format(key=key, value=value)
    return f"!{found}" if requirement.operator in {"NotIn", "DoesNotExist"} else found


def _listed(values: Iterable[str]) -> str:
    return json.dumps(sorted(values), ensure_ascii=False)
