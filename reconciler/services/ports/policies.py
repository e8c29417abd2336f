"""Policies and GlobalContextEntries as stored, and what their conditions mean."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Literal, Protocol

from reconciler.api.meta import Kind, Object, PolicyRef

Change = Literal["ADDED", "MODIFIED", "DELETED"]


class MatchConditions(Protocol):
    """CEL conditions, as webhooks have them."""

    async def check(self, conditions: Sequence[Mapping[str, Any]]) -> None:
        """Have conditions compiled.

        Raises:
            Invalid: They do not compile; says which and why.
        """
        ...


class Policies(Protocol):
    """Policy objects, as stored."""

    async def get(self, ref: PolicyRef) -> Object:
        """Return a policy, live."""
        ...

    async def stored(self) -> tuple[Object, ...]:
        """Return all policies of all kinds, live."""
        ...

    async def write_status(self, policy: Object, status: Mapping[str, Any]) -> None:
        """Merge into the status of a policy."""
        ...


class Feed(Protocol):
    """The objects of one kind as they come, change and go; for one consumer.

    Attributes:
        synced: Set once all that there is was handed over.
        progress: Monotonic time at which the server last said anything.
        problem: Why it makes no progress; empty while it does.
    """

    synced: asyncio.Event
    progress: float
    problem: str

    def events(self) -> AsyncGenerator[tuple[Change, Object]]:
        """Yield changes for ever; objects carry apiVersion and kind."""
        ...


class Entries(Protocol):
    """GlobalContextEntries, as stored, and the objects that they are about."""

    def follow(self) -> Feed:
        """Return all entries."""
        ...

    def follow_objects(self, kind: Kind, namespace: str) -> Feed:
        """Return all objects of a kind; an empty namespace means everywhere."""
        ...

    async def write_status(self, entry: Object, status: Mapping[str, Any]) -> Object:
        """Merge into the status of this very version of an entry; return the stored one.

        Raises:
            Conflict: The entry changed since.
            NotFound: It was deleted.
        """
        ...
