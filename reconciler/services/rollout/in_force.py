"""Whether the policies are in force, since when, and at which times they were not.

In force is a policy while the API server asks about its triggers: the webhook configuration is
stored as it was written last, there is a CA, and the kinds of its match are served. That nobody
touched the configuration is known by its resourceVersion, in this process and across processes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from reconciler.api.meta import Kind, Object, PolicyRef
from reconciler.api.policystatus import observed_generation
from reconciler.api.updaterequest import parse_time
from reconciler.clock import Clock
from reconciler.engine.match import KindSelector
from reconciler.engine.program import CompiledPolicy, Phase
from reconciler.engine.values.wildcard import has_wildcard
from reconciler.services.ports.leases import Checkpoint
from reconciler.services.rollout.outages import Cause, Outages
from reconciler.services.rollout.webhook_rules import ASKING, programs_of, selectors

_OF_CONFIGURATION = frozenset({Cause.MISSING, Cause.CHANGED})
"""What happened to the configuration by which triggers are recorded."""
_STEADY = 2.0
"""Seconds that a restored configuration has to last until policies are Ready again."""
_UNSEEN = timedelta(seconds=15)
"""For so long a kind may be served before anybody here knows."""
_UNNOTICED = timedelta(seconds=45)
"""For so long the configuration of rules without targets may be away before that is noticed."""
_FARTHEST = timedelta(hours=1)
"""How far a leader looks back that finds policies of an earlier installation."""
_NOTED = timedelta(minutes=1)
"""So long before a policy said that it is not in force it may have begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Why a policy is not in force, for people."""

    cause: Cause
    message: str


@dataclass(slots=True, kw_only=True)
class InForce:
    """Kept by the leader.

    Attributes:
        clock: The API server's.
        outages: When policies were not in force.
        obstacle: Why no trigger is recorded now, None where they are.
        not_changing: Why nothing is changed before it is stored, None where it is.
        unserved: The same by policy, for kinds that are not served.
        version: resourceVersion of the configuration when it was in force last.
        confirmed: When that was known last.
    """

    clock: Clock
    outages: Outages = field(default_factory=Outages)
    obstacle: Obstacle | None = None
    not_changing: Obstacle | None = None
    unserved: dict[PolicyRef, Obstacle] = field(default_factory=dict)
    version: str = ""
    confirmed: datetime | None = None
    _recalled: bool = False
    _registered: bool = False
    _steady_at: float | None = None
    _kinds: dict[KindSelector, frozenset[Kind]] = field(default_factory=dict)
    _on_existing: tuple[str, ...] = ()

    @property
    def recalled(self) -> bool:
        """Return whether it is known what the process before this one knew."""
        return self._recalled

    def recall(self, checkpoint: Checkpoint, policies: Iterable[Object]) -> None:
        """Take in what the leader before this one stored.

        Args:
            checkpoint: The same; empty where it went with the namespace of the programs.
            policies: As stored: their status tells whether they were in force before.
        """
        self._recalled = True
        self.outages.load(checkpoint.outages)
        self.version, self.confirmed = checkpoint.version, checkpoint.confirmed or checkpoint.done
        if self.confirmed is None:
            self.confirmed = _last_in_force(policies, self.clock.now() - _FARTHEST)
        if self.confirmed is not None and not self.version:
            # Nobody can say what became of the configuration since.
            self.outages.begin(Cause.UNWATCHED, self.confirmed)

    def is_untouched(self, version: str, asked_at: datetime) -> bool:
        """Return whether the stored configuration is the one that was in force last.

        Args:
            version: Its resourceVersion, empty where there is none.
            asked_at: When it was asked for.
        """
        if self.version and version != self.version:
            return False
        if self.version and self.obstacle is None and self._registered:
            self.confirmed = asked_at
        return True

    def doubt(self) -> None:
        """Somebody wrote the configuration: nobody can say what it was in between."""
        self._begin(Cause.CHANGED)

    def lose(self, cause: Cause, message: str) -> None:
        """Policies are not in force; those of a lost configuration have to prove themselves."""
        self._begin(cause)
        self.obstacle = Obstacle(cause=cause, message=message)

    def stop_changing(self, cause: Cause, message: str) -> None:
        """Rules without targets are not in force; it is looked for what they run on as it is.

        Not so where a policy has rules with targets as well, whose triggers are recorded
        nevertheless: nothing of them is lost.
        """
        self.not_changing = Obstacle(cause=cause, message=message)
        since = (self.confirmed or self.clock.now()) - _UNNOTICED
        for uid in self._on_existing:
            self.outages.begin(cause, since, policy=uid)

    def obstacle_of(self, policy: CompiledPolicy) -> Obstacle | None:
        """Return why a policy is not in force now, None where it is."""
        if self.obstacle is not None and (
            self.obstacle.cause not in _OF_CONFIGURATION
            or policy.in_phase(Phase.TRIGGERED)
            or policy.in_phase(Phase.VERDICT)
        ):
            return self.obstacle
        if self.not_changing is not None and policy.in_phase(Phase.ADMISSION):
            return self.not_changing
        return self.unserved.get(policy.ref)

    @property
    def broken(self) -> bool:
        """Return whether something keeps all rules of a kind from being in force."""
        return self.obstacle is not None or self.not_changing is not None

    def restored(self, margin: float) -> None:
        """What was lost is stored again."""
        self._steady_at = self.clock.monotonic() + max(margin, _STEADY)

    def written(self, version: str) -> None:
        """The configuration is stored as it was wanted."""
        if not self._registered and self.version and version != self.version:
            # What the policies needed since the leader before this one, nobody asked about.
            self._begin(Cause.UNWATCHED)
        self.version = version

    def withdrawn(self) -> None:
        """The configuration is removed on purpose."""
        self.version, self._steady_at = "", None

    def stand_by(self) -> None:
        """Nothing is to be in force; what happens meanwhile is nobody's loss."""
        self.version, self._steady_at = "", None
        self.obstacle, self.not_changing = None, None
        self.confirmed = self.clock.now()
        self.outages.end(self.confirmed)

    def settle(self, asked_at: datetime, policies: Iterable[CompiledPolicy]) -> None:
        """All is stored as it was wanted, and the API servers had their time to learn of it.

        Args:
            asked_at: A moment before which the configuration was looked at.
            policies: What it is for.
        """
        if self.settling > 0:
            return
        self._steady_at, self.obstacle, self.not_changing = None, None, None
        self._registered, self.confirmed = True, asked_at
        now = self.clock.now()
        self.outages.end(now)
        for policy in policies:
            if policy.ref not in self.unserved:
                self.outages.end(now, policy=policy.uid)

    @property
    def settling(self) -> float:
        """Seconds until a restored configuration has lasted long enough."""
        if self._steady_at is None:
            return 0.0
        return max(0.0, self._steady_at - self.clock.monotonic())

    def resolve(
        self,
        policies: Sequence[CompiledPolicy],
        found: Mapping[KindSelector, Sequence[Kind]],
    ) -> dict[KindSelector, tuple[Kind, ...]]:
        """Return the kinds to ask about: those that are served, and those that once were.

        Of a kind whose definition is deleted and made again the first objects are recorded then.

        Args:
            policies: All that can act.
            found: The kinds that are served now.
        """
        before, self._kinds = self._kinds, {}
        for selector, kinds in found.items():
            self._kinds[selector] = before.get(selector, frozenset()) | frozenset(kinds)
        self.unserved = {}
        self.outages.forget([policy.uid for policy in policies])
        self._on_existing = tuple(
            policy.uid
            for policy in policies
            if policy.on_existing and not policy.in_phase(Phase.TRIGGERED)
        )
        for policy in policies:
            self._resolve(policy, found, before)
        return {selector: tuple(kinds) for selector, kinds in self._kinds.items()}

    def _resolve(
        self,
        policy: CompiledPolicy,
        found: Mapping[KindSelector, Sequence[Kind]],
        before: Mapping[KindSelector, frozenset[Kind]],
    ) -> None:
        missing = sorted(set(_missing(policy, found, self._kinds)))
        if missing:
            self.unserved[policy.ref] = Obstacle(
                cause=Cause.KIND,
                message=f"the cluster does not serve {', '.join(missing)}, which the policy"
                " matches: it is in force as soon as it does",
            )
        grown = any(
            item in before and self._kinds[item] != before[item] for item in selectors([policy])
        )
        if (missing or grown) and policy.in_background:
            self.outages.begin(Cause.KIND, self.clock.now() - _UNSEEN, policy=policy.uid)

    def _begin(self, cause: Cause) -> None:
        self.outages.begin(cause, self.confirmed or self.clock.now())


def _last_in_force(policies: Iterable[Object], farthest: datetime) -> datetime | None:
    """Return when policies were in force last by what they say, None where none ever was."""
    moments = []
    for policy in policies:
        if observed_generation(policy) is None:
            continue
        moments.append(farthest)
        for item in (policy.get("status") or {}).get("conditions") or ():
            since = parse_time(item.get("lastTransitionTime"))
            if item.get("reason") in frozenset(Cause) and since is not None:
                moments[-1] = max(farthest, since - _NOTED)
    return min(moments, default=None)


def _missing(
    policy: CompiledPolicy,
    found: Mapping[KindSelector, Sequence[Kind]],
    known: Mapping[KindSelector, frozenset[Kind]],
) -> Iterable[str]:
    """Yield the kinds that are not served and have been, and those of rules that have no other."""
    for program in programs_of([policy], *ASKING):
        literal = {
            scope.selector
            for scope in program.match.kinds()
            if not has_wildcard(scope.selector.kind)
        }
        away = {item for item in literal if not found.get(item)}
        alone = len(away) == len({scope.selector for scope in program.match.kinds()})
        for item in away:
            if alone or known.get(item):
                parts = (item.group, item.version, item.kind, item.subresource)
                yield "/".join(part for part in parts if part not in ("", "*"))
