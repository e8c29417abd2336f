"""Reasons why a stored policy does less than its rules say, for its author and its status.

Such a policy is not refused: it may contain rules for several programs, and the cluster's
settings that exclude its triggers may change again.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from typing_extensions import override

from reconciler.engine.match import KindSelector
from reconciler.engine.program import CompiledPolicy, Program
from reconciler.services.catalog.settings import Filters
from reconciler.services.catalog.settings.filters import NODES

NOT_ACTED_ON, FILTERED = "PolicyNotActedOn", "PolicyFiltered"
_OF_KUBELETS = frozenset({"Node", "Pod"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Caveat:
    """One thing that a policy does not do; ``reason`` is the reason of the event about it."""

    reason: str
    location: str
    text: str

    @override
    def __str__(self) -> str:
        return f"{self.location}: {self.text}"


def caveats(policy: CompiledPolicy, filters: Filters) -> tuple[Caveat, ...]:
    """Return the caveats of a policy in a cluster with these filters."""
    return (*_not_acted_on(policy), *filtered(policy, filters))


def filtered(policy: CompiledPolicy, filters: Filters) -> Iterator[Caveat]:
    """Yield a caveat for each matched kind that never fires a rule because of the filters."""
    for program in policy.in_background:
        location = program.origin.selection
        for text in (*why_silent(program, filters), *_by_kubelets(program, filters)):
            yield Caveat(reason=FILTERED, location=location, text=text)


def _by_kubelets(program: Program, filters: Filters) -> Iterator[str]:
    """Yield a text per matched status that kubelets write, if the filters exclude kubelets."""
    if not (program.filtered and filters.groups.excludes((NODES,))):
        return
    for scope in program.match.kinds():
        kind = scope.selector
        if kind.kind in _OF_KUBELETS and kind.subresource == "status":
            yield (
                f"{_name(kind)} is written by kubelets, whose requests fire nothing: excludeGroups"
                f" leaves out {NODES}"
            )


def acts(policy: CompiledPolicy) -> bool:
    """Return whether a policy has mutating rules, including those that only run at the desk."""
    return bool(policy.programs) or dict(policy.rule_count).get("mutate", 0) > 0


def why_silent(program: Program, filters: Filters) -> tuple[str, ...]:
    """Return texts that name the kinds which never fire a rule and the filters responsible."""
    left, silent = _of_kinds(program, filters)
    if not silent:
        return ()
    if not left:
        shown = _listed(text for texts in silent.values() for text in texts)
        return (f"nothing ever fires it: resourceFilters leave out {', '.join(silent)} ({shown})",)
    return tuple(
        f"{name} never fires it: resourceFilters leave it out ({_listed(texts)})"
        for name, texts in silent.items()
    )


def is_silent(program: Program, filters: Filters) -> bool:
    """Return whether the filters exclude every kind that could fire a rule."""
    left, silent = _of_kinds(program, filters)
    return bool(silent) and not left


def _of_kinds(
    program: Program, filters: Filters
) -> tuple[frozenset[str], dict[str, tuple[str, ...]]]:
    """Return the matched kinds that can fire a rule, and the excluded ones with their filters."""
    left: set[str] = set()
    silent: dict[str, tuple[str, ...]] = {}
    for listing in program.match.listings(requests=True):
        for kind in listing.kinds:
            covering = filters.covering(listing, kind) if program.filtered else ()
            if covering:
                silent[_name(kind)] = covering
            else:
                left.add(_name(kind))
    return frozenset(left), {name: texts for name, texts in silent.items() if name not in left}


def _not_acted_on(policy: CompiledPolicy) -> Iterator[Caveat]:
    for warning in policy.warnings:
        location, _, text = warning.partition(": ")
        yield Caveat(reason=NOT_ACTED_ON, location=location, text=text)


def _listed(texts: Iterable[str]) -> str:
    return " ".join(dict.fromkeys(texts))


def _name(kind: KindSelector) -> str:
    return "/".join(part for part in (kind.kind, kind.subresource) if part)
