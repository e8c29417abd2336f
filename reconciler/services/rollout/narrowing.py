"""Match conditions that exclude objects which no policy matches.

A policy on one ConfigMap would otherwise put every write of a ConfigMap under its failure policy.
A condition only excludes requests that certainly do not match. Objects that have no name yet and
deletions of collections are not excluded. The module does no I/O.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from reconciler.api.meta import Object
from reconciler.engine.match import KindSelector, LabelRequirement
from reconciler.engine.program import Program
from reconciler.services.rollout.webhook_rules import Kinds

_MOST_VALUES: Final = 100
"""Names, namespaces and labels in one condition."""

_MOST_CHARACTERS: Final = 200_000
"""The limit for all conditions of one webhook; a configuration must fit into a stored object."""

_CONDITION: Final = "kube-retrofit-objects-{}"
_LABELS: Final = (
    "(has(one.metadata) && has(one.metadata.labels) && {key} in one.metadata.labels{value})"
)

Resource = tuple[str, str]
"""Group and plural; conditions cannot distinguish versions of a resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clause:
    """Objects of one resource that a rule may match; None stands for any name or namespace."""

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
        """Return whether the clause accepts every object in the selected namespaces."""
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
    kinds: Kinds,
    most: int,
    *,
    selected: frozenset[str] | None,
    labels_are_final: bool,
) -> list[Object]:
    """Return at most ``most`` conditions that exclude objects which no rule of a webhook matches.

    Before it evaluates the first condition, the API server prepares the object, which costs more
    than the condition. So no condition repeats what the namespace selector excludes already.

    Args:
        programs: The rules of the webhook.
        kinds: The kinds that their selectors resolve to.
        most: The number of conditions that may still be added.
        selected: The only namespaces that the webhook's selector allows, None for any.
        labels_are_final: The webhook is not reinvoked. The API server only reinvokes webhooks
            that it called before, so a label condition would hide an object that gets the label
            from a later webhook; with reinvocation, labels are not used.
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
    """Yield the expressions that fit into the limit, preferring short ones."""
    left = _MOST_CHARACTERS
    kept = set()
    for expression in sorted(expressions, key=len):
        left -= len(expression)
        if left >= 0:
            kept.add(expression)
    yield from (expression for expression in expressions if expression in kept)


def _clauses(programs: Iterable[Program], kinds: Kinds) -> dict[Resource, set[_Clause]]:
    """Return the clauses that match each resource, empty if a rule matches every kind."""
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
    """Yield the kinds that a rule matches, each with the known restrictions on its objects."""
    listings = program.match.listings(requests=True)
    for listing in listings:
        clause = _Clause(
            names=None if listing.names is None else frozenset(listing.names),
            namespaces=None if listing.namespaces is None else frozenset(listing.namespaces),
            labels=frozenset(listing.labels),
        )
        for selector in listing.kinds:
            # The object of some subresources is of another kind than the parent object.
            yield selector, _ANY if selector.subresource else clause
    listed = {selector for listing in listings for selector in listing.kinds}
    for scope in program.match.kinds():
        if scope.selector not in listed:
            yield scope.selector, _ANY


def _of_namespace(clause: _Clause) -> _Clause:
    """Return the clause for Namespace objects, whose namespace is their own name."""
    if clause.namespaces is None:
        return clause
    names = clause.namespaces if clause.names is None else clause.names & clause.namespaces
    return replace(clause, names=names, namespaces=None)


def _fitting(clauses: Iterable[_Clause]) -> list[_Clause]:
    """Return the most selective clauses that fit into one condition, empty if there are none."""
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
    """Return the clauses sorted, with those that only differ in their names merged."""
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
    # The name is absent, not empty, if the API server generates it or a collection is deleted.
    return (
        f'(has(request.name) && request.name != "" ? request.name in {allowed}'
        f" : object != null ? !has(object.metadata.name) || object.metadata.name in {allowed}"
        f" : oldObject == null || oldObject.metadata.name in {allowed})"
    )


def _labelled(requirements: Iterable[LabelRequirement]) -> str:
    # Like the matcher, use the old object only if there is no new one.
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
