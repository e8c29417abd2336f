"""Rules that are run on existing objects, where no other rule is for these objects.

Writes of the controller are seen by every rule, as those of anybody else. What a rule writes on an
existing object it was shown to leave as it is (`reconciler.engine.itself`): where it is the only
one, asking about that write changes nothing, and costs as much as the write. So the write goes out
under a name of its own, about which the API server asks nobody (`rollout/own_sweeps`).
"""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Self

from reconciler.api.meta import EXISTING_MANAGER, FIELD_MANAGER, Kind, PolicyRef, TargetKey
from reconciler.engine.program import Origin, Phase, Program

ANYWHERE = ""
"""In the place of a namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoneRule:
    """A rule of one generation, and objects that no other rule is for.

    Attributes:
        namespace: Of the objects, or `ANYWHERE`.
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
        """Return a rule with objects of one kind."""
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
    """Those of the policies in force; only a leader has some.

    Whoever brings other policies into force clears them first: then no write is under way that
    was sent while one of those policies was not known.
    """

    _known: frozenset[LoneRule] = frozenset()
    _under_way: int = 0
    _idle: asyncio.Event = field(default_factory=asyncio.Event)

    @contextlib.contextmanager
    def writing(self, programs: Iterable[Program], key: TargetKey) -> Iterator[str]:
        """Give the field manager in whose name rules write an object, until that is done."""
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
        """Forget all, and return when no write of one is under way; not where nothing changes."""
        if self._known == frozenset(following):
            return
        self._known = frozenset()
        if self._under_way:
            self._idle.clear()
            await self._idle.wait()

    def learn(self, rules: Iterable[LoneRule]) -> None:
        """Take in those of the policies that are in force now."""
        self._known = frozenset(rules)

    def _has(self, program: Program, key: TargetKey) -> bool:
        origin = program.origin
        if not self._known or Phase.EXISTING not in program.phases or origin.account is not None:
            return False
        places = (key.namespace, ANYWHERE)
        return any(LoneRule.of(origin, key.kind, place) in self._known for place in places)
