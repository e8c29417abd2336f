"""Counts the effects of a stream of triggers, from the objects and the audit log."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import orjson

from devcluster.cluster import ControlPlane
from reconciler.api.meta import Object
from tests.faults.rig import CONTROLLER_USER, Rig, rule, target

LISTS = 8


class Effect(StrEnum):
    """The effect by which a trigger shows that it was processed.

    OWN: Sets the trigger's name in a target of its own. The rule converges, so catch-up can find
    lost triggers.
    APPEND: Appends the trigger's name to a text. Lost triggers cannot be found; doubles show.
    """

    OWN = "own"
    APPEND = "append"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the table.

    Attributes:
        name: The name of the scenario.
        failure_policy: The failurePolicy of its policy.
        accepted: Triggers that the API server stored, whatever it answered.
        refused: Triggers that it did not store.
        applied: Accepted triggers that have their effect.
        reported: Lost triggers that the policy's status counts.
        twice: Surplus effects.
        heal: Seconds from the end of the fault until all was applied; None for never.
        left: What had not healed at the deadline.
        problem: The error that ended the scenario early.
    """

    name: str
    failure_policy: str
    accepted: int = 0
    refused: int = 0
    applied: int = 0
    reported: int = 0
    twice: int = 0
    heal: float | None = None
    left: str = ""
    problem: str = ""

    @property
    def lost(self) -> int:
        """Return how many accepted triggers had no effect."""
        return self.accepted - self.applied

    @property
    def good(self) -> bool:
        """Return whether the promise was kept: no loss under Fail, no uncounted loss otherwise."""
        allowed = self.reported if self.failure_policy == "Ignore" else 0
        return bool(
            self.accepted and self.lost == allowed and not self.twice and self.heal is not None
        )


def rules(effect: Effect, place: str, **more: Any) -> list[Object]:
    """Return the rules that give the triggers ``trigger-N`` of a namespace their effect."""
    if effect is Effect.OWN:
        where, patch = "target-{{ request.object.data.n }}", "{{ request.object.metadata.name }}"
        return [rule(place, [target(place, where)], {"data": {"got": patch}}, **more)]
    appended = "{{ target.data.seen }} {{ request.object.metadata.name }}"
    where = "list-{{ request.object.data.list }}"
    return [rule(place, [target(place, where)], {"data": {"seen": appended}}, **more)]


def targets(effect: Effect, count: int) -> list[str]:
    """Return the names of the ConfigMaps that ``count`` triggers change."""
    if effect is Effect.OWN:
        return [f"target-{n}" for n in range(count)]
    return [f"list-{n}" for n in range(LISTS)]


@dataclass(kw_only=True)
class Ledger:
    """The accepted triggers of a scenario and their effects.

    Attributes:
        accepted: The names of the triggers that the API server stored, whatever it answered.
    """

    rig: Rig
    effect: Effect
    accepted: set[str] = field(default_factory=set)

    async def effects(self) -> Counter[str]:
        """Return how often the effect of each trigger occurs in the targets."""
        found: Counter[str] = Counter()
        for item in await self.rig.items("ConfigMap"):
            data = item.get("data") or {}
            found.update(data.get("seen", "").split())
            found.update([data["got"]] if "got" in data else [])
        return found

    async def missing(self) -> set[str]:
        """Return the triggers accepted so far that have no effect yet."""
        return self.accepted - set(await self.effects())

    async def look(self) -> None:
        """Add all stored triggers to the accepted ones, as an answer may have been lost."""
        for item in await self.rig.items("ConfigMap"):
            name = item["metadata"]["name"]
            if name.startswith("trigger-"):
                self.accepted.add(name)

    async def twice(self) -> int:
        """Return the number of surplus effects."""
        if self.effect is Effect.APPEND:
            return sum(number - 1 for number in (await self.effects()).values())
        return await asyncio.to_thread(self._written_twice)

    async def reported(self) -> int:
        """Return how many triggers the policy's status counts as lost."""
        policy = await self.rig.get("ClusterPolicy", self.rig.namespace, "")
        figures = (policy.get("status") or {}).get("mutateExisting") or {}
        return sum(
            item.get("objects", 0) for span in figures.get("lost") or () for item in span["rules"]
        )

    def _written_twice(self) -> int:
        assert isinstance(self.rig.cluster, ControlPlane)
        log = self.rig.cluster.layout.audit_log
        with log.open("rb") as lines:
            writes = Counter(_own_writes(lines, self.rig.namespace))
        return sum(number - 1 for number in writes.values())


def _own_writes(lines: Iterable[bytes], namespace: str) -> Iterable[str]:
    """Yield the target's name for each successful write by the controller in a namespace."""
    for line in lines:
        if namespace.encode() not in line or not line.endswith(b"}\n"):
            continue
        event = orjson.loads(line)
        where = event.get("objectRef") or {}
        if (
            event["verb"] in {"patch", "update"}
            and event["user"]["username"] == CONTROLLER_USER
            and (where.get("resource"), where.get("namespace")) == ("configmaps", namespace)
            and event["responseStatus"]["code"] == 200
        ):
            yield where["name"]
