"""The current activity of policies, computed from their statuses without I/O.

No request is read: the controller keeps the figures in the status of each policy, so a snapshot
costs the same with ten requests as with fifty thousand.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from reconciler.api.meta import Object, policy_ref
from reconciler.api.policystatus import observed, parse_progress
from reconciler.api.updaterequest import SweepProgress, parse_time
from reconciler.cli.work.place import why_not_ready

_SHORTEST: Final = 1.0
"""Seconds; figures are written once per second, so a shorter interval gives no rate."""
_DEFAULT_DURATION: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFigures:
    """The figures of one policy.

    Attributes:
        not_ready: Why the policy is not ready, empty where it is.
        ended: The number of finished triggers, including those for which no rule fired.
        message: The controller's message for people.
        rights: The missing rights for which its requests wait.
        lost: The number of periods in which triggers were lost.
    """

    policy: str
    not_ready: str
    waiting: int
    ended: int
    patched: int
    failed: int
    last_run: datetime | None
    rollout: SweepProgress | None
    message: str
    last_error: str
    held: str
    rights: tuple[str, ...]
    lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The holder of a Lease of the programs; it is fresh if it was renewed in time."""

    name: str
    fresh: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A snapshot of all policies, the busiest first.

    Attributes:
        complete: Whether no policy is missing for lack of a right.
        leader: The leading controller, None where Leases may not be read.
        admission: The admission server, None where Leases may not be read.
    """

    moment: datetime
    policies: tuple[PolicyFigures, ...]
    complete: bool
    leader: Holder | None
    admission: Holder | None

    @property
    def waiting(self) -> int:
        """Return the number of waiting requests."""
        return sum(item.waiting for item in self.policies)


def board(
    policies: Iterable[Object],
    *,
    now: datetime,
    complete: bool = True,
    leader: Holder | None = None,
    admission: Holder | None = None,
) -> Board:
    """Return the board of stored policies."""
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
    """Return the figures in the status of a policy."""
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
    """Return the holder of a Lease; ``now`` is the local time, which decides if it is fresh."""
    spec = (lease or {}).get("spec") or {}
    renewed = parse_time(spec.get("renewTime"))
    lasts = timedelta(seconds=spec.get("leaseDurationSeconds") or _DEFAULT_DURATION)
    return Holder(
        name=str(spec.get("holderIdentity") or ""),
        fresh=renewed is not None and now - renewed <= lasts,
    )


def rates(before: Board | None, after: Board) -> dict[str, float] | None:
    """Return finished triggers per second by policy, None for the first board.

    They are empty where the interval is too short. A policy whose figures were reset, because
    its spec changed, has no rate.
    """
    if before is None:
        return None
    if (seconds := (after.moment - before.moment).total_seconds()) < _SHORTEST:
        return {}
    known = {item.policy: item.ended for item in before.policies}
    return {
        item.policy: (item.ended - known[item.policy]) / seconds
        for item in after.policies
        if item.policy in known and item.ended >= known[item.policy]
    }


def _rollout(running: Any) -> SweepProgress | None:
    """Return the progress of the sweeps of a policy; other work has no total."""
    if not isinstance(running, Mapping) or not isinstance(running.get("total"), int):
        return None
    return SweepProgress(
        done=int(running.get("existing") or 0),
        total=running["total"],
        eta=str(running.get("eta") or ""),
    )
