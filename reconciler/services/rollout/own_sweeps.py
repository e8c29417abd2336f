"""A condition that spares the API server a question about what a sweep writes itself; pure.

Writes of the controller are seen by every rule, as those of anybody else. What a rule writes on
existing objects it was shown to leave as it is (`reconciler.engine.itself`): where no other
rule is for the object, asking about that write changes nothing, and costs as much as the write.
Its field manager names the rule and its generation, so a write that was sent under older policies
is asked about.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from reconciler.api.meta import Kind, Object, PolicyRef
from reconciler.engine.match import KindSelector
from reconciler.engine.program import CompiledPolicy, Program
from reconciler.services.rollout.narrowing import Resource, meant
from reconciler.services.rollout.webhook_rules import ASKING, programs_of

_NAME: Final = "kube-retrofit-own-sweeps"
_MOST: Final = 100
"""Places in one condition; about those beyond it the API server asks."""
_ANYWHERE: Final = ""

_Rule = tuple[PolicyRef, str]
_Place = tuple[Resource, str]
"""A resource and a namespace, or `_ANYWHERE`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSweeps:
    """Where rules that are run on existing objects are the only ones.

    Attributes:
        users: Full names of the users whose requests are the controller's own.
        places: By rule.
    """

    users: Sequence[str]
    places: Mapping[_Rule, Sequence[_Place]]

    @classmethod
    def of(
        cls,
        policies: Sequence[CompiledPolicy],
        kinds: Mapping[KindSelector, Sequence[Kind]],
        users: Sequence[str],
    ) -> "OwnSweeps":
        """Return them, given all policies that can act and what their selectors resolve to."""
        swept = {
            (policy.ref, program.rule)
            for policy in policies
            for program in policy.on_existing
            if program.origin.account is None
        }
        places: defaultdict[_Rule, list[_Place]] = defaultdict(list)
        if swept:
            for rule, place in _alone(programs_of(policies, *ASKING), kinds):
                if rule in swept:
                    places[rule].append(place)
        return cls(users=users, places=places)

    def conditions(self, programs: Iterable[Program], most: int) -> list[Object]:
        """Return what a webhook for some rules need not be asked about, ``most`` conditions."""
        clauses = [
            _clause(program, resource, namespace)
            for program in programs
            for resource, namespace in self.places.get(_rule(program), ())
        ]
        if not clauses or most <= 0:
            return []
        listed = ", ".join(map(json.dumps, self.users))
        own = f"request.userInfo.username in [{listed}] && has(request.options.fieldManager)"
        expression = f"!({own} && ({' || '.join(clauses[:_MOST])}))"
        return [{"name": _NAME, "expression": expression}]


def _alone(
    programs: Iterable[Program], kinds: Mapping[KindSelector, Sequence[Kind]]
) -> Iterator[tuple[_Rule, _Place]]:
    """Yield the rules that are the only ones in some place, nothing where one is for all kinds."""
    found: defaultdict[Resource, defaultdict[str, set[_Rule]]] = defaultdict(
        lambda: defaultdict(set)
    )
    for program in programs:
        for selector, clause in meant(program):
            if selector.kind == "*":
                return
            for kind in kinds.get(selector, ()):
                for namespace in _namespaces(program, clause.namespaces, kind):
                    found[kind.group, kind.plural][namespace].add(_rule(program))
    for resource, by_namespace in sorted(found.items()):
        everywhere = _ANYWHERE in by_namespace
        for namespace in (_ANYWHERE,) if everywhere else sorted(by_namespace):
            rules = set().union(*by_namespace.values()) if everywhere else by_namespace[namespace]
            if len(rules) == 1:
                yield next(iter(rules)), (resource, namespace)


def _namespaces(program: Program, named: frozenset[str] | None, kind: Kind) -> Iterable[str]:
    if not kind.namespaced:
        return (_ANYWHERE,)
    if own := program.origin.namespace:
        return (own,)
    return (_ANYWHERE,) if named is None else named


def _rule(program: Program) -> _Rule:
    return program.origin.policy, program.rule


def _clause(program: Program, resource: Resource, namespace: str) -> str:
    group, plural = resource
    parts = [
        f"request.options.fieldManager == {json.dumps(program.origin.field_manager)}",
        f"request.resource.group == {json.dumps(group)}",
        f"request.resource.resource == {json.dumps(plural)}",
    ]
    if namespace:
        parts.append(f"request.namespace == {json.dumps(namespace)}")
    return f"({' && '.join(parts)})"
