"""The recent requests, including finished and removed ones.

The API server notes whole seconds, for requests and for changes. A request from the very second of
a change may have been for an earlier one, which the digest of its recorded object decides.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from reconciler.api.updaterequest import Reason, UpdateRequest
from reconciler.requests.lifecycle import FINAL

_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class _Made:
    created: datetime
    digest: str


@dataclass(frozen=True, slots=True)
class _Aggregate:
    key: tuple[str, str]
    sequence: int
    until: datetime


_Key = tuple[str, str, str]
"""The uid of the policy, the rule, and the uid of the trigger."""


@dataclass(slots=True, kw_only=True)
class RecentRequests:
    """Times of requests by rule and trigger, for as long as a pass may need them.

    Attributes:
        most: The most requests to keep; the oldest go, and their triggers may be recorded again.
        complete: The time since which no request is missing, None where it is unknown.
    """

    most: int = 50_000
    complete: datetime | None = None
    _times: dict[_Key, dict[str, _Made]] = field(default_factory=dict)
    _aggregates: dict[str, _Aggregate] = field(default_factory=dict)
    _number: int = 0

    def begin(self, now: datetime) -> None:
        """Note that from now on no request is missing."""
        self.complete = now

    def record(self, request: UpdateRequest, now: datetime) -> None:
        """Record a stored request; forget one whose trigger was never stored: it did no work."""
        spec = request.spec
        if spec.sweep or not spec.resource.uid:
            if spec.sequence:
                self._record_aggregate(request, now)
            return
        key = spec.policy_uid, spec.rule, spec.resource.uid
        if request.status.reason == Reason.NOT_STORED:
            self._remove(key, request.name)
        else:
            self._note(key, request.name, _Made(request.created, spec.trigger.digest))

    def drop(self, request: UpdateRequest) -> None:
        """Forget a request that was deleted before it was worked on."""
        spec = request.spec
        self._remove((spec.policy_uid, spec.rule, spec.resource.uid), request.name)
        self._aggregates.pop(request.name, None)

    def _record_aggregate(self, request: UpdateRequest, now: datetime) -> None:
        """Record an aggregate request, which lists the objects later than each raise."""
        spec, known = request.spec, self._aggregates.get(request.name)
        if known is not None and known.sequence == spec.sequence:
            return
        begun = request.status.sweep is not None or request.status.state in FINAL
        # If it was not followed from its beginning, the time of its last raise is unknown.
        until = request.created if known is None and begun else now
        key = spec.policy_uid, spec.rule
        self._aggregates[request.name] = _Aggregate(key, spec.sequence, until)

    def note(self, policy: str, rule: str, trigger: str, name: str, moment: datetime) -> None:
        """Record a request that catch-up makes for a change."""
        self._note((policy, rule, trigger), name, _Made(moment + _SECOND, ""))

    def _note(self, key: _Key, name: str, made: _Made) -> None:
        names = self._times.setdefault(key, {})
        self._number += name not in names
        names[name] = made
        if self._number > self.most:
            self._halve()

    def after(self, policy: str, rule: str, trigger: str, moment: datetime) -> bool:
        """Return whether a request of a rule and trigger was made after the second of a change."""
        rule_key = policy, rule
        if any(item.key == rule_key and item.until > moment for item in self._aggregates.values()):
            return True
        names = self._times.get((policy, rule, trigger), {})
        return any(made.created > moment for made in names.values())

    def digests(self, policy: str, rule: str, trigger: str, moment: datetime) -> frozenset[str]:
        """Return the digests of the requests that were made within the second of a change."""
        names = self._times.get((policy, rule, trigger), {})
        return frozenset(made.digest for made in names.values() if made.created == moment)

    def forget(self, before: datetime) -> None:
        """Forget the requests that were made before a moment."""
        for key, name, made in list(self._all()):
            if made.created < before:
                self._remove(key, name)
        self._aggregates = {
            name: item for name, item in self._aggregates.items() if item.until >= before
        }

    def __len__(self) -> int:
        return self._number

    def _halve(self) -> None:
        times = sorted(made.created for _, _, made in self._all())
        middle = times[len(times) // 2]
        if self.complete is not None:
            self.complete = max(self.complete, middle + _SECOND)
        for key, name, made in list(self._all()):
            if made.created <= middle:
                self._remove(key, name)

    def _all(self) -> Iterator[tuple[_Key, str, _Made]]:
        for key, names in self._times.items():
            for name, made in names.items():
                yield key, name, made

    def _remove(self, key: _Key, name: str) -> None:
        names = self._times.get(key, {})
        if names.pop(name, None) is not None:
            self._number -= 1
        if not names:
            self._times.pop(key, None)
