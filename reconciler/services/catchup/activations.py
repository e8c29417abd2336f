"""Activations: when each policy came into force, and whether the time before was searched.

Between a new generation and its webhook configuration in force, the API server does not call
admission for its triggers, whatever the failure policy. That time has to be searched once.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from reconciler.api.meta import Object, PolicyRef, policy_ref, resource_version, version_number
from reconciler.api.policystatus import observed_generation
from reconciler.api.updaterequest import parse_time
from reconciler.services.catchup.changes import changed

_EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """The activation of a policy's generation.

    Attributes:
        created: When the policy was created.
        since: When the generation was stored, or earlier.
        version: The policy's resourceVersion then, 0 where that is unknown.
        touched: When the policy was last changed, its status aside.
        ready: Monotonic time at which it was first seen in force, None while it is not.
        covered: Whether the time until then was searched.
    """

    uid: str
    generation: int
    created: datetime
    since: datetime
    version: int
    touched: datetime
    ready: float | None = None
    covered: bool = False


@dataclass(slots=True)
class Activations:
    """The activations of all policies."""

    _known: dict[PolicyRef, Activation] = field(default_factory=dict)

    def on_stored(self, policy: Object, now: float) -> None:
        """Record a policy as it is stored; ``now`` is monotonic."""
        key, meta = policy_ref(policy), policy.get("metadata") or {}
        known = self._known.get(key)
        uid, generation = str(meta.get("uid", "")), int(meta.get("generation") or 0)
        touched = changed(policy) or _EPOCH
        version = version_number(resource_version(policy))
        if known is None or known.uid != uid:
            created = parse_time(meta.get("creationTimestamp")) or _EPOCH
            # Only the object's first version shows the resourceVersion of its creation.
            first = generation == 1 and observed_generation(policy) is None
            known = Activation(
                uid=uid,
                generation=generation,
                created=created,
                since=created,
                version=version if first else 0,
                touched=touched,
            )
        elif generation > known.generation:
            if known.covered:
                known = replace(known, since=touched, version=version)
            # Otherwise this generation begins where the one did that was not searched.
            known = replace(
                known, generation=generation, touched=touched, ready=None, covered=False
            )
        known = replace(known, touched=max(touched, known.touched))
        if known.ready is None and known.generation == generation and _in_force(policy):
            known = replace(known, ready=now)
        self._known[key] = known

    def on_begun(self, generations: Collection[tuple[str, int]], now: float) -> None:
        """Record that generations of policies, by uid, are in force even if they are not Ready."""
        for key, start in self._known.items():
            if start.ready is None and (start.uid, start.generation) in generations:
                self._known[key] = replace(start, ready=now)

    def on_deleted(self, key: PolicyRef) -> None:
        """Forget a deleted policy."""
        self._known.pop(key, None)

    def get(self, key: PolicyRef) -> Activation | None:
        """Return the activation of a policy, None where the policy is unknown."""
        return self._known.get(key)

    def created(self, key: PolicyRef) -> tuple[datetime, int] | None:
        """Return when a policy was created and its resourceVersion then, 0 where that is unknown.

        None where the policy is unknown.
        """
        start = self._known.get(key)
        if start is None:
            return None
        return start.created, start.version if start.since == start.created else 0

    def begin(self, before: datetime, *, instead: datetime) -> None:
        """Leave out the time before a moment, which an earlier leader has searched.

        Args:
            before: The moment.
            instead: The new beginning of the activations that began before it.
        """
        for key, start in self._known.items():
            covered = start.covered or (start.ready is not None and start.touched < before)
            since, version = start.since, start.version
            if since < before:
                since, version = instead, 0
            self._known[key] = replace(start, since=since, version=version, covered=covered)

    def open(self, before: float) -> dict[PolicyRef, Activation]:
        """Return the activations to search, of policies in force since before a moment."""
        return {
            key: start
            for key, start in self._known.items()
            if not start.covered and start.ready is not None and start.ready <= before
        }

    def cover(self, activations: Collection[Activation]) -> None:
        """Mark activations as searched, unless there is a newer generation."""
        generations = {(item.uid, item.generation) for item in activations}
        for key, start in self._known.items():
            if (start.uid, start.generation) in generations:
                self._known[key] = replace(start, covered=True)

    def earliest(self, keys: Collection[PolicyRef]) -> datetime | None:
        """Return the earliest beginning of some policies that was not searched, None for none."""
        known = ((key, start) for key, start in self._known.items() if key in keys)
        return min((start.since for _, start in known if not start.covered), default=None)


def _in_force(policy: Object) -> bool:
    status = policy.get("status") or {}
    generation = (policy.get("metadata") or {}).get("generation")
    return bool(status.get("ready")) and observed_generation(policy) == generation
