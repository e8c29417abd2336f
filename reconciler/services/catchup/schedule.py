"""The schedule of catch-up passes: finds the next action from past events, without side effects.

All times are monotonic seconds. The module `passes`, which makes the passes, reports each event,
receives a new schedule, and reads the next action from it.
"""

import math
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final

from reconciler.services.ports.leases import AdmissionHeartbeat

SETTLE: Final = 5.0
"""Seconds: a younger change is left to the next pass, as its request may be on the way."""
_POLL: Final = 5.0
"""Seconds between two reads of the admission servers' heartbeat."""
_UNSEEN: Final = 10.0
"""The most seconds between the last heartbeat of a server and its end."""
_ALIVE: Final = 30.0
_REST: Final = 15.0
"""The least seconds between two passes, however often triggers are lost."""


class Action(Enum):
    """What to do now."""

    REST = auto()
    NOTE = auto()
    """No work may be done, so triggers until now do not count as lost."""
    LOOK_AT_IGNORED = auto()
    """A pass over all rules under Ignore, and over the beginnings of the others."""
    LOOK_AT_BEGINNINGS = auto()
    """A regular pass that searches only the beginnings of policies."""
    LOOK_AT_NEW = auto()
    """The same between regular passes, for policies that came into force."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The past events that decide when the next pass is due.

    Attributes:
        interval: Seconds between two passes; 0 makes none.
        heartbeat: The heartbeat of the admission servers when it was last read.
        polled: When it was last read.
        alive: When this process last found it renewed.
        alive_last: The same, or when an earlier leader last searched.
        alive_before: The value of ``alive_last`` before that.
        missed: When a server last reported that triggers may be missing.
        noted: The time up to which earlier reports of that apply.
        passed: When the last pass began.
    """

    interval: float
    heartbeat: AdmissionHeartbeat = field(default_factory=AdmissionHeartbeat)
    polled: float = 0.0
    alive: float = 0.0
    alive_last: float = 0.0
    alive_before: float = 0.0
    missed: float = 0.0
    noted: float = 0.0
    passed: float = -math.inf

    def begun(self, heartbeat: AdmissionHeartbeat, now: float, *, unseen: float) -> "Schedule":
        """Return the schedule of a new leader, before which no process searched for some time."""
        last = now - unseen
        return Schedule(
            interval=self.interval,
            heartbeat=heartbeat,
            polled=now,
            alive=now,
            alive_last=last,
            alive_before=last,
            missed=now,
            noted=last,
        )

    def heard(self, heartbeat: AdmissionHeartbeat, now: float) -> tuple["Schedule", float]:
        """Return the schedule after a read of the heartbeat.

        Returns:
            The new schedule, and for how many seconds up to now triggers may be missing.
        """
        new, span = replace(self, heartbeat=heartbeat, polled=now), 0.0
        if heartbeat.renewed != self.heartbeat.renewed:
            new = replace(new, alive=now, alive_last=now, alive_before=self.alive_last)
        if heartbeat.missed != self.heartbeat.missed:
            # A server that starts reports that it is alive, and then that none was before it. The
            # time before the previous report is covered by that report.
            span = now - max(new.alive_before - _UNSEEN, self.noted)
            new = replace(new, missed=now, noted=now)
        return new, span

    def ended(self, now: float) -> "Schedule":
        """Return the schedule after a pass that began at this time."""
        return replace(self, passed=now)

    def asks(self, now: float) -> bool:
        """Return whether to read the heartbeat now."""
        return now - self.polled >= _POLL

    def action(self, now: float, *, held: bool, new: bool, guessing: bool) -> Action:
        """Return what to do now.

        Args:
            held: No work may be done.
            new: Policies came into force whose beginning was not searched.
            guessing: It is unknown which changes the settings exclude, so that a regular pass
                could take for lost what was never to be recorded.
        """
        if now < self.due:
            return Action.LOOK_AT_NEW if new and not held else Action.REST
        if held:
            return Action.NOTE
        if not guessing or self.doubt:
            return Action.LOOK_AT_IGNORED
        # Without a live server no trigger is recorded now. The servers report when they are back,
        # and then everything is searched.
        return Action.LOOK_AT_BEGINNINGS if now - self.alive <= _ALIVE else Action.REST

    @property
    def doubt(self) -> bool:
        """Return whether triggers may be missing that no pass has searched for."""
        return self.passed < self.missed + SETTLE

    @property
    def due(self) -> float:
        """Return when the next pass is due."""
        regular = self.passed + self.interval
        if not self.doubt:
            return regular
        # While triggers are lost all the time the regular passes find them.
        soon = max(self.missed + SETTLE, self.passed + _REST)
        return soon if math.isinf(self.passed) else min(regular, soon)
