"""The `Hook` objects by which executables are shown."""

from typing import Protocol

from reconciler.api.meta import Object


class HookRegistry(Protocol):
    """The Hooks of one namespace."""

    async def stored(self) -> list[Object]:
        """Return all of them."""
        ...

    async def create(self, hook: Object) -> Object:
        """Store a new one; return it.

        Raises:
            AlreadyExists: There is one of that name.
        """
        ...

    async def replace(self, hook: Object) -> Object:
        """Store one in the place of the version that it names; return it.

        Raises:
            Conflict: It changed since.
            NotFound: It was deleted.
        """
        ...

    async def delete(self, name: str) -> None:
        """Delete one; absent is success."""
        ...

    async def refuse(self, hook: Object, reason: str) -> None:
        """Have the status of one say why it cannot be used."""
        ...
