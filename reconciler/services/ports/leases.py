"""What stands in Leases, so that it outlives a process."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from reconciler.api.meta import Object


class Leases(Protocol):
    """Leases of the programs' own namespace."""

    async def lease(self, name: str) -> Object | None:
        """Return a Lease, None where there is none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionHeartbeat:
    """What the admission servers say of themselves.

    Attributes:
        renewed: Another text each time that one of them says that it is alive.
        missed: Another text each time that none was there, or one could not record.
    """

    renewed: str = ""
    missed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What of the search for lost triggers outlives a process.

    Attributes:
        done: Until when everything was looked at, None where nobody ever looked.
        version: Of the webhook configuration for triggers as it was in force last.
        confirmed: When that was seen last.
        outages: Times at which policies were not in force, as `Outages.dump` gives them.
    """

    done: datetime | None = None
    version: str = ""
    confirmed: datetime | None = None
    outages: str = ""


class CatchUpCheckpoint(Protocol):
    """Where the checkpoint is kept, and what the admission servers say."""

    async def load(self) -> Checkpoint:
        """Return what was stored last."""
        ...

    async def store(self, checkpoint: Checkpoint) -> None:
        """Store it whole."""
        ...

    async def heartbeat(self) -> AdmissionHeartbeat:
        """Return what the admission servers said last."""
        ...
