"""The number of waiting requests, as a replica that records requests estimates it.

To the number that the leader publishes, the replica adds the requests that it stored itself and
the leader had not seen. Without a leader the last number stays and the replica keeps adding. A
number that is too old can only make it divert earlier.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from reconciler.config import ProcessSettings
from reconciler.requests.overload import Backlog, Thresholds
from reconciler.services.catalog.settings import SettingsHolder
from reconciler.signals import Signal


def thresholds_of(settings: ProcessSettings, live: SettingsHolder) -> Callable[[], Thresholds]:
    """Return a function that returns the current limits; the ConfigMap overrides the flag."""
    return lambda: Thresholds(
        limit=live.current.threshold or settings.waiting_limit,
        hard=settings.hard_limit,
        namespace=settings.namespace_share,
        policy=settings.policy_share,
    )


@dataclass(slots=True, kw_only=True)
class BacklogEstimate:
    """The estimate of one replica.

    Attributes:
        thresholds: Returns the current limits.
        diverting: Whether rules that can be rebuilt are diverted.
        turned: Emitted when ``diverting`` has changed.
    """

    thresholds: Callable[[], Thresholds]
    diverting: bool = False
    turned: Signal[["BacklogEstimate"]] = field(default_factory=Signal)
    _reported: Backlog = field(default_factory=Backlog)
    _own: list[tuple[int, Sequence[str]]] = field(default_factory=list)
    _underway: int = 0
    _held: Counter[str] = field(default_factory=Counter)
    _over: set[str] = field(default_factory=set)

    @property
    def waiting(self) -> int:
        """Return the estimated number of waiting requests, rather too high than too low."""
        return self._reported.waiting + len(self._own) + self._underway

    @property
    def full(self) -> bool:
        """Return whether no more triggers may be recorded one by one."""
        return self.thresholds().full(self.waiting)

    def update(self, reported: Backlog) -> None:
        """Record the backlog that the leader published."""
        self._reported = reported
        own, self._own = self._own, []
        for version, holders in own:
            if version > reported.seen:
                self._own.append((version, holders))
            else:
                self._release(holders)
        self.turn()

    def turn(self) -> bool:
        """Update and return whether rules are diverted from now on."""
        diverting = self.thresholds().diverts(self.waiting, before=self.diverting)
        if diverting != self.diverting:
            self.diverting = diverting
            self.turned.emit(self)
        return diverting

    def held(self, holder: str) -> int:
        """Return the estimate of a holder's waiting requests, rather too high than too low."""
        return self._reported.of.get(holder, 0) + self._held[holder]

    def is_over(self, holders: Sequence[str]) -> bool:
        """Return whether rules are diverted from now on for one of the holders of a request."""
        thresholds, over = self.thresholds(), False
        for holder in holders:
            was = holder in self._over
            if thresholds.of(holder).diverts(self.held(holder), before=was):
                self._over.add(holder)
                over = True
            elif was:
                self._over.remove(holder)
        return over

    def full_for(self, holders: Sequence[str]) -> str:
        """Return the first holder that has used up its share of the hard limit, empty if none."""
        thresholds = self.thresholds()
        full = (item for item in holders if thresholds.of(item).full(self.held(item)))
        return next(full, "")

    def begin(self, holders: Sequence[str] = ()) -> None:
        """Count a request that is about to be stored."""
        self._underway += 1
        self._held.update(holders)

    def end(self, version: str, holders: Sequence[str] = ()) -> None:
        """Record the resourceVersion of a stored request; empty where none was stored."""
        self._underway -= 1
        # The leader may have published it before this replica learnt that it is stored.
        if version.isdecimal() and int(version) > self._reported.seen:
            self._own.append((int(version), holders))
        else:
            self._release(holders)

    def _release(self, holders: Sequence[str]) -> None:
        for holder in holders:
            self._held[holder] -= 1
            if not self._held[holder]:
                del self._held[holder]
