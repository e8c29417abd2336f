"""What policies do at this moment, from their statuses alone; pure.

No request is read: the controller keeps the figures in the status of each policy, so a look costs
the same with ten requests as with fifty thousand.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from reconciler.api.meta import Object, policy_ref
from reconciler.api.policystatus import observed, parse_progress
from reconciler.api.updaterequest import parse_time
from reconciler.cli.work.place import why_not_ready

_SHORTEST: Final = 1.0
"""Seconds; figures are written once per second, so a shorter time tells no rate."""
_DEFAULT_DURATION: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """How far the sweeps of a policy are; ``total`` is -1 while it is counted."""

    done: int
    total: int
    eta: str

    @property
    def share(self) -> float:
        """Return the part that is done, from 0 to 1."""
        return min(1.0, self.done / self.total) if self.total > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFigures:
    """One policy.

    Attributes:
        not_ready: Why it is not, empty where it is.
        ended: Triggers that are done, those that fired nothing among them.
        message: The controller's line for a person.
        rights: What its requests wait for.
        lost: Times in which triggers of it were lost.
    """

    policy: str
    not_ready: str
    waiting: int
    ended: int
    patched: int
    failed: int
    last_run: datetime | None
    rollout: Rollout | None
    message: str
    last_error: str
    held: str
    rights: tuple[str, ...]
    lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds a Lease of the programs.

    Attributes:
        fresh: It was renewed in time.
    """

    name: str
    fresh: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """All policies, the busiest first.

    Attributes:
        complete: No policy is missing here for want of a right.
        leader: None where Leases may not be read.
        admission: The same.
    """

    moment: datetime
    policies: tuple[PolicyFigures, ...]
    complete: bool
    leader: Holder | None
    admission: Holder | None

    @property
    def waiting(self) -> int:
        """Return how many requests wait."""
        return sum(item.waiting for item in self.policies)


def board(
    policies: Iterable[Object],
    *,
    now: datetime,
    complete: bool = True,
    leader: Holder | None = None,
    admission: Holder | None = None,
) -> Board:
    """Return what stored policies say of their work."""
    found = [figures_of(item) for item in policies]
    found.sort(key=lambda item: (-item.waiting, -item.failed, item.policy))
    return Board(
        moment=now,
        policies=tuple(found),
        complete=complete,
        leader=leader,
        admission=admission,
    )


def figures_of(policy: Object) -> PolicyFigures:
    """Return what the status of one policy says."""
    progress, raw = parse_progress(policy), observed(policy)
    figures = progress.figures
    return PolicyFigures(
        policy=policy_ref(policy).key,
        not_ready=why_not_ready(policy),
        waiting=progress.running.pending,
        ended=figures.triggers + figures.skipped_triggers,
        patched=figures.patched,
        failed=figures.failed,
        last_run=progress.last_run,
        rollout=_rollout(raw.get("running")),
        message=progress.message,
        last_error=progress.last_error,
        held=str(raw.get("heldBack") or ""),
        rights=tuple(map(str, raw.get("missingPermissions") or ())),
        lost=len(raw.get("lost") or ()),
    )


def holder_of(lease: Mapping[str, Any] | None, now: datetime) -> Holder:
    """Return who holds a Lease, by the clock of whoever looks."""
    spec = (lease or {}).get("spec") or {}
    renewed = parse_time(spec.get("renewTime"))
    lasts = timedelta(seconds=spec.get("leaseDurationSeconds") or _DEFAULT_DURATION)
    return Holder(
        name=str(spec.get("holderIdentity") or ""),
        fresh=renewed is not None and now - renewed <= lasts,
    )


def rates(before: Board | None, after: Board) -> dict[str, float]:
    """Return triggers that ended per second, by policy; empty where no time tells.

    A policy whose figures began anew, because its spec changed, has none.
    """
    if before is None or (seconds := (after.moment - before.moment).total_seconds()) < _SHORTEST:
        return {}
    known = {item.policy: item.ended for item in before.policies}
    return {
        item.policy: (item.ended - known[item.policy]) / seconds
        for item in after.policies
        if item.policy in known and item.ended >= known[item.policy]
    }


def _rollout(running: Any) -> Rollout | None:
    """Return the sweeps of a policy; only they have a total."""
    if not isinstance(running, Mapping) or not isinstance(running.get("total"), int):
        return None
    return Rollout(
        done=int(running.get("existing") or 0),
        total=running["total"],
        eta=str(running.get("eta") or ""),
    )
