"""The requests that are not final, for components that decide by what waits."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

from reconciler.api.updaterequest import Outcome, UpdateRequest
from reconciler.requests.overload import holders_of
from reconciler.signals import Signal


@dataclass(slots=True)
class KnownRequests:
    """The requests that are not final, as the dispatcher keeps them.

    Attributes:
        by_name: The requests by name, as they were last stored.
        held_by: The number of requests that each policy or namespace holds, by `overload.holders`.
        listed: Whether all waiting requests were listed once.
        arrived: Emitted with each request that was unknown.
    """

    by_name: dict[str, UpdateRequest] = field(default_factory=dict)
    held_by: Counter[str] = field(default_factory=Counter)
    listed: bool = False
    arrived: Signal[[UpdateRequest]] = field(default_factory=Signal)

    def keep(self, request: UpdateRequest) -> bool:
        """Store a request, and return whether it was unknown."""
        unknown = request.name not in self.by_name
        if unknown:
            self.held_by.update(holders_of(request.spec))
            self.arrived.emit(request)
        self.by_name[request.name] = request
        return unknown

    def drop(self, name: str) -> None:
        """Forget a request, which is final or deleted."""
        known = self.by_name.pop(name, None)
        for holder in () if known is None else holders_of(known.spec):
            self.held_by[holder] -= 1
            if not self.held_by[holder]:
                del self.held_by[holder]

    def is_news(self, request: UpdateRequest) -> bool:
        """Return whether a request is unknown, or newer than the known version."""
        known = self.by_name.get(request.name)
        return known is None or _newer(request, known)

    def oldest_age(self, now: datetime) -> float:
        """Return the age of the oldest request, in seconds."""
        ages = ((now - item.created).total_seconds() for item in self.by_name.values())
        return max(ages, default=0.0)

    def note_list(self) -> None:
        """Note that all waiting requests were listed."""
        self.listed = True

    def unended(self) -> tuple[UpdateRequest, ...]:
        """Return all requests that are not final."""
        return tuple(self.by_name.values())

    def unfinished(self, name: str) -> bool:
        """Return whether a request, or the sweep that it is part of, may lack its final status."""
        return not self.listed or name.partition("/")[0] in self.by_name


def out_of_reach(request: UpdateRequest) -> set[str]:
    """Return the names of the targets, else of the trigger, that may not be read or changed."""
    targets = request.status.targets
    found = {item.ref.name for item in targets if item.outcome is Outcome.FORBIDDEN}
    return found or {request.spec.resource.name}


def _newer(request: UpdateRequest, known: UpdateRequest) -> bool:
    """Return whether a version is newer; the versions of one resource are increasing numbers."""
    new, old = request.resource_version, known.resource_version
    if new.isdecimal() and old.isdecimal():
        return int(new) > int(old)
    return new != old
