"""Rules that run on existing objects which no other rule matches.

The controller's writes trigger rules like all other writes. A rule that writes an existing object
has been shown to leave its result unchanged (`reconciler.engine.itself`). If no other rule matches
the object, a webhook call for that write changes nothing and costs as much as the write. Such
writes use a field manager of their own, which the webhooks exclude (`rollout/own_sweeps`).
"""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Self

from reconciler.api.meta import EXISTING_MANAGER, FIELD_MANAGER, Kind, PolicyRef, TargetKey
from reconciler.engine.program import Origin, Phase, Program

ANYWHERE = ""
"""Stands for all namespaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoneRule:
    """A rule of one policy generation, and the objects that no other rule matches.

    Attributes:
        namespace: The namespace of the objects, or `ANYWHERE`.
    """

    policy: PolicyRef
    uid: str
    generation: int
    rule: str
    group: str
    plural: str
    namespace: str

    @classmethod
    def of(cls, origin: Origin, kind: Kind, namespace: str) -> Self:
        """Return the rule of an origin, for the objects of one kind in a namespace."""
        return cls(
            policy=origin.policy,
            uid=origin.uid,
            generation=origin.generation,
            rule=origin.rule,
            group=kind.group,
            plural=kind.plural,
            namespace=namespace,
        )


@dataclass(slots=True)
class LoneRules:
    """The lone rules of the policies in force; empty except in the leader.

    Before other policies are put in force, the rules are cleared. Then no write is in flight that
    was sent before the new policies were known.
    """

    _known: frozenset[LoneRule] = frozenset()
    _under_way: int = 0
    _idle: asyncio.Event = field(default_factory=asyncio.Event)

    @contextlib.contextmanager
    def writing(self, programs: Iterable[Program], key: TargetKey) -> Iterator[str]:
        """Yield the field manager for a write of an object, which must end within the context."""
        if not all(self._has(program, key) for program in programs):
            yield FIELD_MANAGER
            return
        self._under_way += 1
        try:
            yield EXISTING_MANAGER
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

    async def clear(self, following: Iterable[LoneRule]) -> None:
        """Forget the rules and wait for writes in flight, unless the rules stay the same."""
        if self._known == frozenset(following):
            return
        self._known = frozenset()
        if self._under_way:
            self._idle.clear()
            await self._idle.wait()

    def learn(self, rules: Iterable[LoneRule]) -> None:
        """Replace the rules by those of the policies that are in force now."""
        self._known = frozenset(rules)

    def _has(self, program: Program, key: TargetKey) -> bool:
        origin = program.origin
        if not self._known or Phase.EXISTING not in program.phases or origin.account is not None:
            return False
        places = (key.namespace, ANYWHERE)
        return any(LoneRule.of(origin, key.kind, place) in self._known for place in places)
