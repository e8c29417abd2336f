"""Conditions that keep the API server from asking about names that no policy means; pure.

A policy on one ConfigMap would otherwise put every write of a ConfigMap under its failure policy.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from reconciler.api.meta import Kind, Object
from reconciler.engine.match import KindSelector
from reconciler.engine.program import Program

_MOST_NAMES = 100
_NAME = "kube-retrofit-names-{}"

_Resource = tuple[str, str]
"""Group and plural; conditions cannot tell versions of one resource apart."""


def conditions(
    programs: Iterable[Program],
    kinds: Mapping[KindSelector, Sequence[Kind]],
    most: int,
) -> list[Object]:
    """Return what a webhook for some rules need not be asked about, ``most`` conditions."""
    names = _names(programs, kinds)
    narrow = [(key, found) for key, found in sorted(names.items()) if found is not None]
    return [
        {"name": _NAME.format(index + 1), "expression": _expression(*key, sorted(found))}
        for index, (key, found) in enumerate(narrow[: max(0, most)])
    ]


def _names(
    programs: Iterable[Program], kinds: Mapping[KindSelector, Sequence[Kind]]
) -> dict[_Resource, frozenset[str] | None]:
    """Return the only names that are matched of each resource, None where one rule is open."""
    found: dict[_Resource, frozenset[str] | None] = {}
    for program in programs:
        for selector, names in _named(program):
            if selector.kind == "*":
                return {}
            for kind in kinds.get(selector, ()):
                key = kind.group, kind.plural
                known = found.get(key, frozenset())
                both = None if names is None or known is None else known | names
                found[key] = None if both is None or len(both) > _MOST_NAMES else both
    return found


def _named(program: Program) -> Iterator[tuple[KindSelector, frozenset[str] | None]]:
    """Yield what a rule matches, with the only names."""
    listings = program.match.listings(requests=True)
    for listing in listings:
        names = None if listing.names is None else frozenset(listing.names)
        for selector in listing.kinds:
            # Of some subresources the object bears another name than what it belongs to.
            yield selector, None if selector.subresource else names
    told = {selector for listing in listings for selector in listing.kinds}
    for scope in program.match.kinds():
        if scope.selector not in told:
            yield scope.selector, None


def _expression(group: str, plural: str, names: Sequence[str]) -> str:
    # A request has no name where the API server made it up, or deletes a collection: not even an
    # empty one.
    allowed = json.dumps(list(names))
    return (
        f"request.resource.group != {json.dumps(group)}"
        f" || request.resource.resource != {json.dumps(plural)}"
        f' || (has(request.name) && request.name != "" ? request.name in {allowed}'
        f" : object != null ? !has(object.metadata.name) || object.metadata.name in {allowed}"
        f" : oldObject == null || oldObject.metadata.name in {allowed})"
    )
