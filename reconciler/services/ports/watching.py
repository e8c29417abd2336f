"""Watches that begin at a moment of the past, and the hooks themselves."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from reconciler.api.meta import Kind, Object


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchScope:
    """Which objects a watch is of.

    Attributes:
        namespace: Empty for all.
        labels: A selector in the API's text form, as ``fields``.
        brief: It ends within seconds, with a bookmark before its end.
    """

    kind: Kind
    namespace: str = ""
    labels: str = ""
    fields: str = ""
    brief: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """What a watch said.

    Attributes:
        type: ADDED, MODIFIED, DELETED, or BOOKMARK, which has no object.
        version: The resourceVersion that the watch has come to with it.
    """

    type: str
    version: str
    object: Object


class Watching(Protocol):
    """Watches, as the API server gives them."""

    def follow(self, scope: WatchScope, since: str) -> AsyncGenerator[WatchEvent]:
        """Yield what has happened since a resourceVersion, until the server ends the connection.

        Raises:
            Gone: That is too long ago.
        """
        ...

    def stored_at(self, scope: WatchScope, version: str) -> AsyncIterator[Object]:
        """Yield the objects as they were stored at a resourceVersion.

        The store knows more of the past than a watch does: an API server that has just started
        has seen nothing.

        Raises:
            Gone: That is too long ago for the store as well.
        """
        ...


class HookObjects(Protocol):
    """The `Hook` and `ClusterHook` objects of a program."""

    def events(self) -> AsyncIterator[tuple[str, Object]]:
        """Yield ADDED, MODIFIED and DELETED with the object, for ever; none where not served."""
        ...

    def look(self) -> None:
        """Look now whether the kinds are served by now: a definition has come."""
        ...

    async def stored(self) -> list[Object]:
        """Return all that are stored; none where the kinds are not served."""
        ...

    async def write_status(self, hook: Object, status: Mapping[str, Any]) -> Object:
        """Merge into the status of this very version of a hook; return the new one.

        Raises:
            Conflict: It changed since.
            NotFound: It was deleted.
        """
        ...
