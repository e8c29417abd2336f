"""Removal of finished requests, with one call for all requests that expire at the same time.

The watch provides these times. A list at the start finds what an earlier process left. The number
of requests kept per policy is limited; those that expire first are removed first.

A call removes what the API server has when it arrives, which may be more than is known here. So
requests are removed only some seconds after the last of them was finished, and those above the
limit once no other one can join them.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Self

from reconciler.api.meta import LABEL_RECORDED
from reconciler.api.updaterequest import UpdateRequest
from reconciler.clock import Clock
from reconciler.config import ControllerSettings
from reconciler.errors import ClusterError
from reconciler.requests.lifecycle import FINAL, Retention, second
from reconciler.requests.naming import plan_name
from reconciler.services.jobs import WarnsOnce, repeat
from reconciler.services.ports.requests import Requests
from reconciler.services.upkeep.retries import Retries

SETTLING: Final = timedelta(seconds=3)
"""How long the status of a finished request may take until it is stored and counted."""
_PAUSE: Final = 1.0
"""Seconds between two rounds."""
_AT_ONCE: Final = Retention(seconds={})
_FORMER = "now"
"""What earlier versions wrote where requests are not kept."""


async def _nothing() -> bool:
    """Do nothing before a removal."""
    return True


@dataclass(slots=True, kw_only=True)
class _Bucket:
    """The requests that expire at the same time: their policies by name, and the last arrival."""

    filled: datetime
    policies: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class FinishedRequestCollector:
    """Removes finished requests, indexed by `RequestStatus.remove_after`; run by the leader only.

    Attributes:
        retries: Notified of every stored request, and settled before one is removed; its warnings
            go where those of the collector go.
        keep: Finished requests kept per policy.
        retention: When the requests that end now are removed.
        before: Awaited before anything is removed, because removed requests cannot be counted.
            If it returns False, nothing is removed in this round.
    """

    requests: Requests
    clock: Clock
    retries: Retries
    keep: int = 1000
    retention: Retention = _AT_ONCE
    before: Callable[[], Awaitable[bool]] = _nothing
    _buckets: dict[str, _Bucket] = field(default_factory=dict)
    _secrets: dict[str, dict[str, bool]] = field(default_factory=dict)
    _orphans: dict[str, bool] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        settings: ControllerSettings,
        requests: Requests,
        clock: Clock,
        warn: Callable[[str], None],
        *,
        before: Callable[[], Awaitable[bool]] = _nothing,
    ) -> Self:
        """Return the collector of a controller with these settings."""
        retries = Retries(requests=requests, warn=warn)
        return cls(
            requests=requests,
            clock=clock,
            retries=retries,
            keep=settings.retain_per_policy,
            retention=Retention.of(settings),
            before=before,
        )

    def on_stored(self, request: UpdateRequest) -> None:
        """Notify `retries` of a stored request, and index it if the controller ended it."""
        self.retries.on_stored(request)
        if request.ended_by:
            return
        if request.status.state in FINAL and request.status.remove_after:
            now = self.clock.now()
            bucket = self._buckets.setdefault(request.status.remove_after, _Bucket(filled=now))
            bucket.policies[request.name] = request.spec.policy.key
            bucket.filled = now
            if secrets := _secrets_of(request):
                self._secrets[request.name] = secrets

    def on_deleted(self, request: UpdateRequest) -> None:
        """Forget a deleted request."""
        self.retries.on_deleted(request)
        if bucket := self._buckets.get(request.status.remove_after):
            bucket.policies.pop(request.name, None)
        self._secrets.pop(request.name, None)
        self._orphans |= _secrets_of(request)

    async def resync(self, on_recovered: Callable[[UpdateRequest], None] | None = None) -> None:
        """Index the finished requests that are already stored, and call back with each."""
        async for request in self.requests.finished():
            self.on_stored(request)
            if on_recovered is not None and not request.ended_by:
                on_recovered(request)

    async def run(self) -> None:
        """Remove requests until cancelled; an error is retried in the next round."""
        await repeat(
            self.collect,
            every=_PAUSE,
            at_once=False,
            tell=WarnsOnce(warn=self.retries.warn).tell,
            failing="finished requests cannot be removed: ",
        )

    async def collect(self) -> None:
        """Remove every request that has expired or exceeds the limit per policy.

        Raises:
            ClusterError: The first removal that failed. It ends the round, so that an outage is
                not met with a call for each bucket; in the next round, it comes last.
        """
        settled = self.clock.now() - SETTLING
        passed = second(settled)
        expired = {key for key in self._buckets if key < passed or key == _FORMER}
        removals = [*((key, "") for key in expired), *self._over_limit(expired, settled)]
        failed = None
        if removals and await self.before():
            failed = await self._remove_all(removals)
        for owner, former in list(self._orphans.items()):
            await self.requests.delete_recorded(owner, former=former)
            self._orphans.pop(owner, None)
        if failed is not None:
            raise failed

    async def _remove_all(self, removals: Iterable[tuple[str, str]]) -> ClusterError | None:
        """Remove requests by bucket and policy; return the error that ended it early."""
        turns = {key: turn for turn, key in enumerate(self._buckets)}
        for key, policy in sorted(removals, key=lambda removal: turns[removal[0]]):
            try:
                await self._remove(key, policy)
            except ClusterError as error:
                if (bucket := self._buckets.pop(key, None)) is not None:
                    self._buckets[key] = bucket
                return error
        return None

    async def _remove(self, key: str, policy: str) -> None:
        await self.retries.settle()
        bucket = self._buckets.get(key)
        policies = {} if bucket is None else bucket.policies
        gone = [name for name, owner in policies.items() if policy in ("", owner)]
        if any(map(self.retries.wants, gone)):
            return  # Without it, the work that a user asked for would be lost.
        # Secrets first: a remaining request leads to its Secret, but not the other way round.
        for name in self._secrets.keys() & set(gone):
            for owner, former in self._secrets[name].items():
                await self.requests.delete_recorded(owner, former=former)
            self._secrets.pop(name, None)
        await self.requests.remove(remove_after=key, policy=policy)
        for name in gone:
            policies.pop(name, None)
        if not policies:
            self._buckets.pop(key, None)

    def _over_limit(
        self, expired: AbstractSet[str], settled: datetime
    ) -> Iterable[tuple[str, str]]:
        """Yield bucket and policy of the requests to remove besides the expired ones."""
        kept: Counter[str] = Counter()
        filling = {
            self.retention.remove_after(state, moment)
            for state in FINAL
            for moment in (settled, self.clock.now())
        }
        for key in sorted(self._buckets.keys() - expired, reverse=True):
            bucket = self._buckets[key]
            for policy, number in Counter(bucket.policies.values()).items():
                over = kept[policy] and kept[policy] + number > self.keep
                if over and bucket.filled <= settled and key not in filling:
                    yield key, policy
                else:
                    kept[policy] += number


def _secrets_of(request: UpdateRequest) -> dict[str, bool]:
    """Return the keys of a request's Secrets, each with whether an older version stored it."""
    found = {}
    if request.spec.recorded_secret:
        found[request.name] = LABEL_RECORDED not in request.labels
    if request.status.plan_secret:
        found[plan_name(request.name)] = False
    return found
