"""State that is kept in Leases and so survives a restart."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from reconciler.api.meta import Object


class Leases(Protocol):
    """Leases in the programs' own namespace."""

    async def lease(self, name: str) -> Object | None:
        """Return a Lease, None if it does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionHeartbeat:
    """The heartbeat that the admission servers write.

    Attributes:
        renewed: Changes each time that one of them renews it.
        missed: Changes each time that none was available, or that one could not record.
    """

    renewed: str = ""
    missed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """State of the catch-up that survives a restart.

    Attributes:
        done: The time up to which the catch-up is complete, None if it never ran.
        version: That of the webhook configuration for triggers when it was last in force.
        confirmed: When that was last seen.
        outages: Times at which policies were not in force, as `Outages.dump` renders them.
    """

    done: datetime | None = None
    version: str = ""
    confirmed: datetime | None = None
    outages: str = ""


class CatchUpCheckpoint(Protocol):
    """Store of the checkpoint, and reader of the admission servers' heartbeat."""

    async def load(self) -> Checkpoint:
        """Return the checkpoint that was stored last."""

    async def store(self, checkpoint: Checkpoint) -> None:
        """Replace the stored checkpoint."""

    async def heartbeat(self) -> AdmissionHeartbeat:
        """Return the last heartbeat of the admission servers."""
