"""Ports for stored policies and GlobalContextEntries, and for checking CEL conditions."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Literal, Protocol

from reconciler.api.meta import Kind, Object, PolicyRef

Change = Literal["ADDED", "MODIFIED", "DELETED"]


class MatchConditions(Protocol):
    """CEL match conditions of webhooks."""

    async def check(self, conditions: Sequence[Mapping[str, Any]]) -> None:
        """Have the API server compile conditions.

        Raises:
            Invalid: They do not compile; the error names them and the reason.
        """


class Policies(Protocol):
    """Stored policy objects."""

    async def get(self, ref: PolicyRef) -> Object:
        """Return a policy, from a live read."""

    async def stored(self) -> tuple[Object, ...]:
        """Return all policies of all kinds, from live reads."""

    async def write_status(self, policy: Object, status: Mapping[str, Any]) -> None:
        """Merge fields into the status of a policy."""


class Feed(Protocol):
    """The objects of one kind and their changes, for one consumer.

    Attributes:
        synced: Set once all existing objects are delivered.
        progress: Monotonic time of the server's last message.
        problem: Why it makes no progress; empty while it does.
    """

    synced: asyncio.Event
    progress: float
    problem: str

    def events(self) -> AsyncGenerator[tuple[Change, Object]]:
        """Yield changes forever; objects carry apiVersion and kind."""


class Entries(Protocol):
    """Stored GlobalContextEntries, and the objects that they select."""

    def follow(self) -> Feed:
        """Return a feed of all entries."""

    def follow_objects(self, kind: Kind, namespace: str) -> Feed:
        """Return a feed of all objects of a kind; an empty namespace means all namespaces."""

    async def write_status(self, entry: Object, status: Mapping[str, Any]) -> Object:
        """Merge fields into the status of exactly this version of an entry; return the stored one.

        Raises:
            Conflict: The entry changed since.
            NotFound: It was deleted.
        """
