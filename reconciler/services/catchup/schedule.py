"""When to look for lost triggers: pure, from what was heard and done to what is to be done now.

All times are monotonic seconds. Who makes the passes (`passes`) tells what happened and gets a new
schedule, and asks it what to do next.
"""

import math
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final

from reconciler.services.ports.leases import AdmissionHeartbeat

SETTLE: Final = 5.0
"""What is younger is left to the next pass: its request may be on its way."""
_POLL: Final = 5.0
"""Seconds between two looks at what the admission servers say of themselves."""
_UNSEEN: Final = 10.0
"""A server that ends is last seen alive so long before that at most."""
_ALIVE: Final = 30.0
_REST: Final = 15.0
"""Seconds between two passes, however often triggers are lost."""


class Action(Enum):
    """What is to be done now."""

    REST = auto()
    NOTE = auto()
    """Nothing may be done, so what happened until now is nobody's loss."""
    LOOK_AT_IGNORED = auto()
    """A pass over all rules under Ignore, and over the beginnings of the others."""
    LOOK_AT_BEGINNINGS = auto()
    """A pass over the beginnings of policies, all that are there."""
    LOOK_AT_NEW = auto()
    """The same out of turn, for policies that came into force."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What is known of the past.

    Attributes:
        interval: Seconds between two passes; 0 makes none.
        heartbeat: What the admission servers said last.
        polled: When they were asked last.
        alive: When one of them was heard last by this process.
        alive_last: The same, or when somebody looked before this process.
        alive_before: The one before that.
        missed: When one of them said last that triggers may be missing.
        noted: Up to when that was said before.
        passed: When the last pass was.
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
        """This process begins to lead, and nobody looked for so many seconds."""
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
        """Take in what the admission servers say.

        Returns:
            The schedule from now on, and for how many seconds up to now triggers may be missing.
        """
        new, span = replace(self, heartbeat=heartbeat, polled=now), 0.0
        if heartbeat.renewed != self.heartbeat.renewed:
            new = replace(new, alive=now, alive_last=now, alive_before=self.alive_last)
        if heartbeat.missed != self.heartbeat.missed:
            # A server that begins says that it is alive, and then that there was none before. What
            # came before its note before this one belongs to that.
            span = now - max(new.alive_before - _UNSEEN, self.noted)
            new = replace(new, missed=now, noted=now)
        return new, span

    def ended(self, now: float) -> "Schedule":
        """A pass came to its end that began at a moment."""
        return replace(self, passed=now)

    def asks(self, now: float) -> bool:
        """Return whether the admission servers are to be asked now."""
        return now - self.polled >= _POLL

    def action(self, now: float, *, held: bool, new: bool, guessing: bool) -> Action:
        """Return what to do now.

        Args:
            now: The moment.
            held: Nothing may be done.
            new: Policies came into force whose beginning was not looked at.
            guessing: Nobody knows what the API server asks about, so that a regular pass could
                take for lost what was never to be recorded.
        """
        if now < self.due:
            return Action.LOOK_AT_NEW if new and not held else Action.REST
        if held:
            return Action.NOTE
        if not guessing or self.doubt:
            return Action.LOOK_AT_IGNORED
        # Where no server is alive nobody is asked now. They say when they are back, and then all
        # is looked at.
        return Action.LOOK_AT_BEGINNINGS if now - self.alive <= _ALIVE else Action.REST

    @property
    def doubt(self) -> bool:
        """Return whether triggers may be missing that no pass has looked for."""
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
