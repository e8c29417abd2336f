"""Ports for watches that start at a past version, and for the objects of hooks."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from reconciler.api.meta import Kind, Object, PolicyRef


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchScope:
    """The objects that a watch selects.

    Attributes:
        namespace: Empty for all.
        labels: A selector in the API's text form, as is ``fields``.
        brief: The watch ends within seconds, with a bookmark before its end.
    """

    kind: Kind
    namespace: str = ""
    labels: str = ""
    fields: str = ""
    brief: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """An event of a watch.

    Attributes:
        type: ADDED, MODIFIED, DELETED, or BOOKMARK, which has no object.
        version: The resourceVersion that the watch has reached with it.
    """

    type: str
    version: str
    object: Object


class Watching(Protocol):
    """Raw watches of the API server."""

    def follow(self, scope: WatchScope, since: str) -> AsyncGenerator[WatchEvent]:
        """Yield the events since a resourceVersion, until the server ends the connection.

        Raises:
            Gone: The API server no longer has events since that version.
        """

    def stored_at(self, scope: WatchScope, version: str) -> AsyncIterator[Object]:
        """Yield the objects as they were stored at a resourceVersion.

        The storage reaches further back than a watch: the watch cache of an API server that has
        just started is empty.

        Raises:
            Gone: The storage has compacted that version too.
        """


class HookObjects(Protocol):
    """The `Hook` and `ClusterHook` objects of a program."""

    def events(self) -> AsyncIterator[tuple[str, Object]]:
        """Yield ADDED, MODIFIED and DELETED with the object, forever; none if not served.

        Hooks that the program may no longer read are reported as deleted, too.
        """

    def look(self) -> None:
        """Check now whether the kinds are served, because a definition has been added."""

    async def stored(self) -> list[Object]:
        """Return all stored hooks; none if the kinds are not served."""

    async def find(self, ref: PolicyRef) -> Object | None:
        """Return a hook as it is stored now; None if it is known not to exist.

        Parts of it that are nested too deeply are left out.

        Raises:
            NoKindMatch: The kind is not served, but its objects may still be stored.
        """

    async def write_status(self, hook: Object, status: Mapping[str, Any]) -> Object:
        """Merge fields into the status of exactly this version of a hook; return the new one.

        Raises:
            Conflict: It changed since.
            NotFound: It was deleted.
        """


class HookRegistry(Protocol):
    """The Hook objects of one namespace, which represent executables."""

    async def stored(self) -> list[Object]:
        """Return all Hook objects of the namespace."""

    async def create(self, hook: Object) -> Object:
        """Create a Hook; return it as stored.

        Raises:
            AlreadyExists: A Hook of that name exists.
        """

    async def replace(self, hook: Object) -> Object:
        """Replace the version of a Hook that its resourceVersion names; return the stored one.

        Raises:
            Conflict: It changed since.
            NotFound: It was deleted.
        """

    async def delete(self, name: str) -> None:
        """Delete a Hook; succeed if it does not exist."""

    async def refuse(self, hook: Object, reason: str) -> None:
        """Write to the status of a Hook why it cannot be used."""
