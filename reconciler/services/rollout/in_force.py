"""The record of whether the policies are in force, and of the times at which they were not.

A policy is in force while the API server calls the webhook for its triggers: the configuration is
stored as last written, there is a CA, and the kinds of its match are served. The configuration's
resourceVersion shows that no other client changed it, in this process and across processes.
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
from reconciler.services.catalog.policy_store import ASKING
from reconciler.services.ports.leases import Checkpoint
from reconciler.services.rollout.outages import Cause, Outages
from reconciler.services.rollout.webhook_rules import programs_of, selectors

_OF_CONFIGURATION = frozenset({Cause.MISSING, Cause.CHANGED})
"""The causes that concern the configuration by which triggers are recorded."""
_STEADY = 2.0
"""Seconds that a restored configuration must stay unchanged before policies are Ready again."""
_UNSEEN = timedelta(seconds=15)
"""How long a kind may be served before the controller notices."""
_UNNOTICED = timedelta(seconds=45)
"""How long the mutating configuration may be missing before the controller notices."""
_FARTHEST = timedelta(hours=1)
"""How far a leader that finds policies of an earlier installation looks back."""
_NOTED = timedelta(minutes=1)
"""How much earlier than a policy's status reports it an outage may have begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Why a policy is not in force, for its status."""

    cause: Cause
    message: str


@dataclass(slots=True, kw_only=True)
class InForce:
    """Tracks whether policies are in force; maintained by the leader.

    Attributes:
        clock: The API server's clock.
        obstacle: Why triggers are not recorded now, None if they are.
        not_changing: Why objects are not changed before they are stored, None if they are.
        unserved: Why single policies are not in force, for kinds that are not served.
        begun: The uids and generations of the policies that came into force, also of those that
            are not Ready for another reason.
        version: resourceVersion of the configuration when it was last in force.
        confirmed: When the configuration was last known to be in force.
        recalled: The state of the previous leader has been loaded.
    """

    clock: Clock
    outages: Outages = field(default_factory=Outages)
    obstacle: Obstacle | None = None
    not_changing: Obstacle | None = None
    unserved: dict[PolicyRef, Obstacle] = field(default_factory=dict)
    begun: frozenset[tuple[str, int]] = frozenset()
    version: str = ""
    confirmed: datetime | None = None
    recalled: bool = False
    _registered: bool = False
    _steady_at: float | None = None
    _kinds: dict[KindSelector, frozenset[Kind]] = field(default_factory=dict)

    def recall(self, checkpoint: Checkpoint, policies: Iterable[Object]) -> None:
        """Load the state that the previous leader stored.

        Args:
            checkpoint: That state; empty if it was deleted with the programs' namespace.
            policies: The stored policies; their status shows whether they were in force before.
        """
        self.recalled = True
        self.outages.load(checkpoint.outages)
        self.version, self.confirmed = checkpoint.version, checkpoint.confirmed or checkpoint.done
        if self.confirmed is None:
            self.confirmed = _last_in_force(policies, self.clock.now() - _FARTHEST)
        if self.confirmed is not None and not self.version:
            # It is unknown what happened to the configuration since.
            self.outages.begin(Cause.UNWATCHED, self.confirmed)

    def is_untouched(self, version: str, asked_at: datetime) -> bool:
        """Return whether the stored configuration is the one that was last in force.

        Args:
            version: Its resourceVersion, empty if it does not exist.
            asked_at: When the read of it began.
        """
        if self.version and version != self.version:
            return False
        if self.version and self.obstacle is None and self._registered:
            self.confirmed = asked_at
        return True

    def doubt(self) -> None:
        """Record that another client wrote the configuration, with unknown content in between."""
        self._begin(Cause.CHANGED)

    def lose(self, cause: Cause, message: str) -> None:
        """Record that policies are not in force, until `settle` confirms that they are again."""
        self._begin(cause)
        self.obstacle = Obstacle(cause=cause, message=message)

    def stop_changing(self, cause: Cause, message: str) -> None:
        """Record that rules without targets are not in force; catch-up searches their objects."""
        self.not_changing = Obstacle(cause=cause, message=message)
        since = (self.confirmed or self.clock.now()) - _UNNOTICED
        self.outages.begin(cause, since, changing=True)

    def doubt_changing(self) -> None:
        """Record that this leader found another mutating configuration than it needs.

        It may have been changed, or policies may have been, while there was no leader.
        """
        if self.confirmed is not None:
            self.outages.begin(Cause.UNWATCHED, self.confirmed, changing=True)

    def obstacle_of(self, policy: CompiledPolicy) -> Obstacle | None:
        """Return why a policy is not in force now, None if it is."""
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
        """Return whether recording or changing objects is interrupted for all policies."""
        return self.obstacle is not None or self.not_changing is not None

    def restored(self, margin: float) -> None:
        """Record that a lost configuration is stored again."""
        self._steady_at = self.clock.monotonic() + max(margin, _STEADY)

    def written(self, version: str) -> None:
        """Record the version in which the wanted configuration is stored."""
        if not self._registered and self.version and version != self.version:
            # Policies that changed since the previous leader were not registered until now.
            self._begin(Cause.UNWATCHED)
        self.version = version

    def withdrawn(self) -> None:
        """Record that the configuration was removed on purpose."""
        self.version, self._steady_at = "", None

    def stand_by(self) -> None:
        """Record that no policy is meant to be in force, so that this time is no outage."""
        self.version, self._steady_at = "", None
        self.obstacle, self.not_changing = None, None
        self.confirmed = self.clock.now()
        self.outages.end(self.confirmed)

    def settle(self, asked_at: datetime, policies: Iterable[CompiledPolicy]) -> None:
        """Record that the configurations are stored and that the API servers use them by now.

        Args:
            asked_at: A time before the configurations were read.
            policies: The policies that they were made for.
        """
        if self.settling > 0:
            return
        self._steady_at, self.obstacle, self.not_changing = None, None, None
        self._registered, self.confirmed = True, asked_at
        now = self.clock.now()
        self.outages.end(now)
        served = [policy for policy in policies if policy.ref not in self.unserved]
        for policy in served:
            self.outages.end(now, policy=policy.uid)
        self.begun = frozenset((policy.uid, policy.generation) for policy in served)

    @property
    def settling(self) -> float:
        """Return the seconds until a restored configuration counts as in force."""
        if self._steady_at is None:
            return 0.0
        return max(0.0, self._steady_at - self.clock.monotonic())

    def resolve(
        self,
        policies: Sequence[CompiledPolicy],
        found: Mapping[KindSelector, Sequence[Kind]],
    ) -> dict[KindSelector, tuple[Kind, ...]]:
        """Return the kinds to register: those that are served, and those that were served before.

        If the CRD of a kind is deleted and created again, its first objects are thus recorded.

        Args:
            policies: All policies that can act.
            found: The kinds that are served now.
        """
        before, self._kinds = self._kinds, {}
        for selector, kinds in found.items():
            self._kinds[selector] = before.get(selector, frozenset()) | frozenset(kinds)
        self.unserved = {}
        self.outages.forget([policy.uid for policy in policies])
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
                " matches: the policy takes effect as soon as the cluster does",
            )
        grown = any(
            item in before and self._kinds[item] != before[item] for item in selectors([policy])
        )
        if (missing or grown) and policy.in_background:
            self.outages.begin(Cause.KIND, self.clock.now() - _UNSEEN, policy=policy.uid)

    def _begin(self, cause: Cause) -> None:
        self.outages.begin(cause, self.confirmed or self.clock.now())


def _last_in_force(policies: Iterable[Object], farthest: datetime) -> datetime | None:
    """Return when policies were last in force by their status, None if none ever was."""
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
    """Yield kinds that are no longer served, and unserved ones of rules without served kinds."""
    for program in programs_of([policy], *ASKING):
        selected = {scope.selector for scope in program.match.kinds()}
        literal = (item for item in selected if not has_wildcard(item.kind))
        away = {item for item in literal if not found.get(item)}
        alone = len(away) == len(selected)
        for item in away:
            if alone or known.get(item):
                parts = (item.group, item.version, item.kind, item.subresource)
                yield "/".join(part for part in parts if part not in ("", "*"))
