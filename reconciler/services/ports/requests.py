"""UpdateRequests, and how many of them wait."""

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from reconciler.api.updaterequest import RequestSpec, RequestStatus, UpdateRequest
from reconciler.requests.overload import Backlog


class Requests(Protocol):
    """The durable requests."""

    async def create(self, name: str, labels: Mapping[str, str], spec: RequestSpec) -> str:
        """Store a request; return its resourceVersion, empty where one of that name is stored.

        That is success too: our own CREATE came twice.
        """
        ...

    async def raise_sequence(self, request: UpdateRequest) -> UpdateRequest:
        """Raise ``spec.sequence`` of this very version of a request by one.

        Raises:
            Conflict: The request changed since.
            NotFound: It was deleted.
        """
        ...

    async def get(self, name: str) -> UpdateRequest:
        """Return a request as it is stored now."""
        ...

    async def write_status(self, request: UpdateRequest, status: RequestStatus) -> UpdateRequest:
        """Write a status that was decided on this very version of the request.

        Raises:
            Conflict: The request changed since; a final state is never reopened.
            NotFound: It was deleted.
        """
        ...

    async def annotate(self, name: str, annotations: Mapping[str, str]) -> None:
        """Set annotations of a request.

        Raises:
            NotFound: It was deleted.
        """
        ...

    def waiting(self) -> AsyncIterator[UpdateRequest]:
        """Yield all requests that are not final, in pages."""
        ...

    def finished(self) -> AsyncIterator[UpdateRequest]:
        """Yield all final requests, in pages."""
        ...

    async def remove(self, *, remove_after: str, policy: str = "") -> None:
        """Delete the finished requests of one minute of ``status.removeAfter`` in one call."""
        ...

    async def create_recorded(self, request: str, labels: Mapping[str, str], data: bytes) -> None:
        """Store recorded fields that must not stand in the request of a name, as a Secret.

        What is stored already stays as it is.
        """
        ...

    async def read_recorded(self, request: str, *, former: bool = False) -> bytes:
        """Return what `create_recorded` stored.

        Args:
            request: The name of the request.
            former: Look also where older versions stored it.

        Raises:
            NotFound: Nothing is stored.
            Forbidden: It may be where older versions stored it, which may not be read.
        """
        ...

    async def delete_recorded(self, request: str, *, former: bool = False) -> None:
        """Remove it, with ``former`` also where older versions stored it; absent is success."""
        ...


class BacklogStore(Protocol):
    """Where the leader tells the replicas that record how many requests wait."""

    async def read(self) -> Backlog:
        """Return what was published last; before anything was, nothing waits."""
        ...

    async def write(self, backlog: Backlog) -> None:
        """Tell it; only a leader does."""
        ...
