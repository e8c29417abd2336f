"""Ports for UpdateRequests and for the published backlog."""

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from reconciler.api.updaterequest import RequestSpec, RequestStatus, UpdateRequest
from reconciler.requests.overload import Backlog


class Requests(Protocol):
    """Stored UpdateRequests."""

    async def create(self, name: str, labels: Mapping[str, str], spec: RequestSpec) -> str:
        """Store a request; return its resourceVersion, empty if one of that name exists.

        The latter is success too: the same CREATE was sent twice.
        """

    async def raise_sequence(self, request: UpdateRequest) -> UpdateRequest:
        """Raise ``spec.sequence`` of exactly this version of a request by one.

        Raises:
            Conflict: The request changed since.
            NotFound: It was deleted.
        """

    async def get(self, name: str) -> UpdateRequest:
        """Return a request as it is stored now."""

    async def write_status(self, request: UpdateRequest, status: RequestStatus) -> UpdateRequest:
        """Write a status that was computed from exactly this version of the request.

        Raises:
            Conflict: The request changed since; a final state is never reopened.
            NotFound: It was deleted.
        """

    async def annotate(self, name: str, annotations: Mapping[str, str]) -> None:
        """Set annotations of a request.

        Raises:
            NotFound: It was deleted.
        """

    def waiting(self) -> AsyncIterator[UpdateRequest]:
        """Yield all requests that are not final, in pages."""

    def finished(self) -> AsyncIterator[UpdateRequest]:
        """Yield all final requests, in pages."""

    async def remove(self, *, remove_after: str, policy: str = "") -> None:
        """Delete the finished requests with this ``status.removeAfter`` in one call."""

    async def create_recorded(self, request: str, labels: Mapping[str, str], data: bytes) -> None:
        """Store recorded fields in a Secret, because the named request must not hold them.

        An existing Secret is not overwritten.
        """

    async def read_recorded(self, request: str, *, former: bool = False) -> bytes:
        """Return the data that `create_recorded` stored.

        Args:
            request: The name of the request.
            former: Also read the place where older versions stored it.

        Raises:
            NotFound: Nothing is stored.
            Forbidden: It may be in the place of older versions, which must not be read.
        """

    async def delete_recorded(self, request: str, *, former: bool = False) -> None:
        """Remove the Secret, with ``former`` also one of older versions; succeed if absent."""


class BacklogStore(Protocol):
    """Store through which the leader publishes the backlog to the admission servers."""

    async def read(self) -> Backlog:
        """Return the last published backlog; an empty one if there is none yet."""

    async def write(self, backlog: Backlog) -> None:
        """Publish the backlog; only the leader does."""
