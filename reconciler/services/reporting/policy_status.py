"""The figures about a policy's work in its status, maintained by the leader.

The figures are stored in the status only. A new leader reads them from there and adds the requests
that finished since and are still stored. The collector removes no request before the figures that
count it are written, so this also works with a retention of 0. If a controller is killed, requests
that finish at that very moment may be missing.

There is at most one write per policy and tick, and none if nothing changed.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from reconciler.api.meta import Object, PolicyRef
from reconciler.api.policystatus import (
    Figures,
    PolicyProgress,
    Running,
    observed_generation,
    parse_progress,
    render_progress,
    stored_alike,
)
from reconciler.api.updaterequest import (
    Counts,
    Reason,
    RequestSpec,
    RequestStatus,
    State,
    UpdateRequest,
)
from reconciler.clock import Clock
from reconciler.config import parse_duration
from reconciler.errors import ClusterError, Conflict, NotFound, Throttled, Unavailable
from reconciler.requests.figures import FIRED_NOTHING, share
from reconciler.requests.lifecycle import FINAL
from reconciler.services.catalog.policy_store import PolicyStore, StoredPolicy
from reconciler.services.catalog.settings import Filters
from reconciler.services.jobs import WarnsOnce, repeat
from reconciler.services.ports.policies import Policies
from reconciler.services.reporting.summary import summarise

TICK = 1.0
"""Seconds between two writes of one policy's figures."""
_PER_TICK = 20
"""Policies written per tick; the others follow in the next ones."""
_HELD = frozenset(
    {
        Reason.PAUSED,
        Reason.OUTSIDE_WINDOW,
        Reason.RATE_LIMITED,
        Reason.SETTLING,
        Reason.CANARY,
        Reason.STANDING_BY,
    }
)
"""The reasons of requests that wait as planned."""
_NO_ERROR = _HELD | {"", Reason.UNCONFIRMED}
_NOTHING_DONE = Counts()


@dataclass(slots=True, kw_only=True)
class _Account:
    """The figures of one generation of a policy.

    Attributes:
        base: The figures that were stored before this process counted, None until they are read.
        own: The figures of requests that finished since.
    """

    uid: str
    generation: int
    base: PolicyProgress | None = None
    own: PolicyProgress = field(default_factory=PolicyProgress)
    written: float = -1.0


@dataclass(slots=True, kw_only=True)
class Progress(WarnsOnce):
    """Counts and writes the figures of all policies; run by the leader only.

    Attributes:
        waiting: Returns all requests that are not final, as stored.
        filters: Returns the current filters.
    """

    index: PolicyStore
    policies: Policies
    clock: Clock
    waiting: Callable[[], Iterable[UpdateRequest]]
    filters: Callable[[], Filters]
    _accounts: dict[PolicyRef, _Account] = field(default_factory=dict)
    _earlier: dict[PolicyRef, dict[str, UpdateRequest]] = field(default_factory=dict)
    _dirty: set[PolicyRef] = field(default_factory=set)
    _running_before: frozenset[PolicyRef] = frozenset()
    _began: datetime | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.index.subscribe(self._on_policy)

    def _on_policy(self, before: StoredPolicy | None, after: StoredPolicy | None) -> None:
        if after is not None:
            self._dirty.add(after.ref)
        elif before is not None:
            self._accounts.pop(before.ref, None)
            self._earlier.pop(before.ref, None)
            self._dirty.discard(before.ref)

    def begin(self) -> None:
        """Record that this process leads from now on."""
        self._began = self.clock.now()

    def on_recovered(self, request: UpdateRequest) -> None:
        """Record a finished request that was already stored when this process began to lead."""
        finished = request.status.finished
        if self._began is None or finished is None or finished >= self._began:
            return
        policy = self.index.entry(request.spec.policy)
        known = _Account(uid=_uid(policy), generation=_generation(policy))
        if policy is None or _later(request, parse_progress(policy.head), known):
            # A list that is made again yields requests again.
            self._earlier.setdefault(request.spec.policy, {})[request.name] = request
            self._dirty.add(request.spec.policy)

    def observe(self, request: UpdateRequest, status: RequestStatus) -> None:
        """Count a request status that has been stored."""
        account = self._account(request.spec)
        if account is None:
            return
        self._dirty.add(request.spec.policy)
        if status.state in FINAL:
            account.own = _counted(account.own, request, status)
        elif status.reason not in _NO_ERROR:
            account.own = replace(account.own, last_error=_about(request, status))

    async def run(self) -> None:
        """Write changed figures at each tick until cancelled."""
        await repeat(self._tick, every=TICK, at_once=False)

    async def _tick(self) -> None:
        async with self._lock:
            await self._write_dirty(self.clock.monotonic() - 0.9 * TICK, _PER_TICK)

    async def flush(self) -> bool:
        """Write all changed figures now; those that fail are retried at the next tick.

        Returns:
            False if one was not written, and soon will be: its policy has changed since it was
            read, which the watch delivers, or the API server did not answer.
        """
        async with self._lock:
            return await self._write_dirty(self.clock.monotonic(), len(self._dirty))

    async def _write_dirty(self, due: float, limit: int) -> bool:
        running = self._running()
        self._dirty |= running.keys() | self._running_before
        self._running_before = frozenset(running)
        problem, current = "", True
        for key in sorted(self._dirty, key=self._last_written):
            if limit <= 0 or self._last_written(key) > due:
                break
            self._dirty.discard(key)
            try:
                limit -= await self._write(key, running.get(key, Running()))
            except NotFound:
                continue
            except Conflict:
                self._dirty.add(key)
                current = False
            except ClusterError as error:
                self._dirty.add(key)
                # What is refused for good must not keep all finished requests.
                current = current and not isinstance(error, Throttled | Unavailable)
                problem = f"cannot write the counts in a policy's status: {error}"
        self.tell(problem)
        return current

    def _last_written(self, key: PolicyRef) -> float:
        account = self._accounts.get(key)
        return -1.0 if account is None else account.written

    def _account(self, spec: RequestSpec) -> _Account | None:
        known = self._accounts.get(spec.policy)
        policy = self.index.entry(spec.policy)
        if policy is not None and spec.policy_uid not in ("", _uid(policy)):
            return None
        generation = max(spec.policy_generation, _generation(policy))
        if known is None and policy is None:
            # It ended because its policy was deleted.
            return None
        if known is None or spec.policy_uid not in ("", known.uid):
            known = None
        elif spec.sweep and spec.policy_generation < known.generation:
            # It ran for rules that have been replaced.
            return None
        if known is None or known.generation < generation:
            uid = spec.policy_uid or _uid(policy)
            known = self._accounts[spec.policy] = _Account(uid=uid, generation=generation)
        return known

    async def _write(self, key: PolicyRef, running: Running) -> bool:
        policy = self.index.entry(key)
        account = None if policy is None else self._in_force(policy)
        if policy is None or account is None:
            return False
        if account.base is None:
            if self._complete(account, policy, running):
                self._earlier.pop(key, None)
                return False
            await self.index.take_in(await self.policies.get(key))
            policy = self.index.entry(key)
            account = None if policy is None else self._in_force(policy)
            if policy is None or account is None:
                return False
            account.base = _ended_part(parse_progress(policy.head))
            for request in self._earlier.pop(key, {}).values():
                if _later(request, account.base, account):
                    account.own = _counted(account.own, request, request.status)
        body = self._rendered(policy, account, account.base, running)
        if stored_alike(policy.head, body):
            return False
        account.written = self.clock.monotonic()
        await self.policies.write_status(policy.head, {"mutateExisting": body})
        return True

    def _in_force(self, policy: StoredPolicy) -> _Account | None:
        """Return the figures of a policy, None unless its stored generation is rolled out."""
        compiled, uid, generation = policy.compiled, policy.uid, policy.generation
        if (
            compiled is None
            or not compiled.in_background
            or observed_generation(policy.head) != generation
            or compiled.generation != generation
        ):
            return None
        account = self._accounts.get(policy.ref)
        if account is not None and account.uid == uid and account.generation > generation:
            return None
        if account is None or (account.uid, account.generation) != (uid, generation):
            account = self._accounts[policy.ref] = _Account(uid=uid, generation=generation)
        return account

    def _complete(self, account: _Account, policy: StoredPolicy, running: Running) -> bool:
        """Return whether the cached status is complete, so that no read or write is needed."""
        if account.own != PolicyProgress():
            return False
        noticed = _ended_part(parse_progress(policy.head))
        earlier = self._earlier.get(policy.ref, {})
        if any(_later(item, noticed, account) for item in earlier.values()):
            return False
        return stored_alike(policy.head, self._rendered(policy, account, noticed, running))

    def _rendered(
        self, policy: StoredPolicy, account: _Account, base: PolicyProgress, running: Running
    ) -> Object:
        own = account.own
        progress = PolicyProgress(
            figures=base.figures + own.figures + running.figures,
            running=running,
            last_run=_later_of(own.last_run, base.last_run),
            last_error=own.last_error or base.last_error,
            last_skip=own.last_skip or base.last_skip,
        )
        if policy.compiled is not None:
            message = summarise(progress, policy.compiled, self.filters())
            progress = replace(progress, message=message)
        return render_progress(progress)

    def _running(self) -> dict[PolicyRef, Running]:
        found: dict[PolicyRef, Running] = {}
        untouched, held = Counter[PolicyRef](), dict[PolicyRef, str]()
        for request in self.waiting():
            spec, status = request.spec, request.status
            policy = self.index.entry(spec.policy)
            if policy is None or spec.policy_uid not in ("", _uid(policy)):
                continue
            if spec.sweep and spec.policy_generation != _generation(policy):
                continue
            if spec.sweep or status.missing_permission or status.counts != _NOTHING_DONE:
                found[spec.policy] = _with(found.get(spec.policy, Running()), spec, status)
            else:
                # If many thousands wait, hardly any of them has made progress.
                untouched[spec.policy] += 1
                if status.reason in _HELD:
                    held[spec.policy] = status.message
        for ref, count in untouched.items():
            running = found.get(ref, Running())
            waits = running.waits if running.sweeping else held.get(ref, "")
            found[ref] = replace(running, pending=running.pending + count, waits=waits)
        return found


def _with(running: Running, spec: RequestSpec, status: RequestStatus) -> Running:
    grant = status.missing_permission
    permissions = running.permissions
    if grant and grant not in permissions:
        permissions = tuple(sorted((*permissions, grant)))
    # Most waiting requests have no results yet, and a sum costs as much as all the rest here.
    part = share(spec, status)
    figures = running.figures if part == Figures() else running.figures + part
    running = replace(
        running, pending=running.pending + 1, figures=figures, permissions=permissions
    )
    if not spec.sweep:
        return running
    total = -1 if status.sweep is None else status.sweep.total
    uncounted = total < 0 or running.total < 0
    return replace(
        running,
        sweeping=True,
        diverted=running.diverted or spec.sequence > 0,
        waits=running.waits or (status.message if status.reason else ""),
        total=-1 if uncounted else running.total + total,
        eta=max(running.eta, "" if status.sweep is None else status.sweep.eta, key=_seconds),
    )


def _seconds(duration: str) -> float:
    return parse_duration(duration) if duration else 0.0


def _counted(own: PolicyProgress, request: UpdateRequest, status: RequestStatus) -> PolicyProgress:
    counted = replace(
        own,
        figures=own.figures + share(request.spec, status),
        last_run=_later_of(own.last_run, status.finished),
    )
    if status.state is State.FAILED:
        return replace(counted, last_error=_about(request, status))
    if status.state is State.SKIP and status.reason in FIRED_NOTHING:
        return replace(counted, last_skip=status.message)
    return counted


def _later_of(one: datetime | None, other: datetime | None) -> datetime | None:
    return max((item for item in (one, other) if item is not None), default=None)


def _about(request: UpdateRequest, status: RequestStatus) -> str:
    spec = request.spec
    trigger = "" if spec.sweep else f", trigger {spec.resource}"
    return f"rule {spec.rule}{trigger}: {status.message}"


def _ended_part(stored: PolicyProgress) -> PolicyProgress:
    return replace(stored, figures=stored.figures - stored.running.figures, running=Running())


def _later(request: UpdateRequest, base: PolicyProgress, account: _Account) -> bool:
    """Return whether a finished request is not counted in the figures yet."""
    spec, finished = request.spec, request.status.finished
    if finished is None or spec.policy_uid not in ("", account.uid):
        return False
    if spec.policy_generation < account.generation and (spec.sweep or base.last_run is None):
        return False
    return base.last_run is None or finished > base.last_run


def _uid(policy: StoredPolicy | None) -> str:
    return "" if policy is None else policy.uid


def _generation(policy: StoredPolicy | None) -> int:
    return 0 if policy is None else policy.generation
