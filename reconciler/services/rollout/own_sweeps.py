"""Pure functions that find the lone rules of policies and build the match condition for them.

`services/catalog/lone_rules` explains why their writes need no webhook call.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from reconciler.api.meta import EXISTING_MANAGER, Kind, Object
from reconciler.engine.program import CompiledPolicy, Program
from reconciler.services.catalog.lone_rules import ANYWHERE, LoneRule
from reconciler.services.catalog.policy_store import ASKING
from reconciler.services.rollout.narrowing import meant
from reconciler.services.rollout.webhook_rules import Kinds, programs_of

_NAME: Final = "kube-retrofit-own-sweeps"


def lone_rules(policies: Sequence[CompiledPolicy], kinds: Kinds) -> frozenset[LoneRule]:
    """Return the rules on existing objects that are the only rules for some of these objects."""
    swept = {
        (policy.ref, program.rule)
        for policy in policies
        for program in policy.on_existing
        if program.origin.account is None
    }
    if not swept:
        return frozenset()
    alone = _alone(programs_of(policies, *ASKING), kinds)
    return frozenset(item for item in alone if (item.policy, item.rule) in swept)


def conditions(
    programs: Iterable[Program], lone: Iterable[LoneRule], users: Iterable[str], most: int
) -> list[Object]:
    """Return the match condition that excludes the writes of lone rules, if there are any.

    Args:
        users: Full names of the users whose requests are the controller's own.
        most: The number of conditions that may still be added.
    """
    known = {(item.policy, item.rule) for item in lone}
    if most <= 0 or not any((item.origin.policy, item.rule) in known for item in programs):
        return []
    listed = ", ".join(map(json.dumps, users))
    own = f"request.userInfo.username in [{listed}] && has(request.options.fieldManager)"
    swept = f"request.options.fieldManager == {json.dumps(EXISTING_MANAGER)}"
    return [{"name": _NAME, "expression": f"!({own} && {swept})"}]


def _alone(programs: Iterable[Program], kinds: Kinds) -> Iterator[LoneRule]:
    """Yield rules that are alone for a kind and namespace; none if a rule matches all kinds."""
    found: defaultdict[tuple[str, str], defaultdict[str, set[LoneRule]]] = defaultdict(
        lambda: defaultdict(set)
    )
    for program in programs:
        for selector, clause in meant(program):
            if selector.kind == "*":
                return
            for kind in kinds.get(selector, ()):
                rule = LoneRule.of(program.origin, kind, ANYWHERE)
                for namespace in _namespaces(program, clause.namespaces, kind):
                    found[kind.group, kind.plural][namespace].add(rule)
    for by_namespace in found.values():
        everywhere = ANYWHERE in by_namespace
        for namespace in (ANYWHERE,) if everywhere else by_namespace:
            rules = set().union(*by_namespace.values()) if everywhere else by_namespace[namespace]
            if len(rules) == 1:
                yield replace(next(iter(rules)), namespace=namespace)


def _namespaces(program: Program, named: frozenset[str] | None, kind: Kind) -> Iterable[str]:
    if not kind.namespaced:
        return (ANYWHERE,)
    if own := program.origin.namespace:
        return (own,)
    return (ANYWHERE,) if named is None else named
