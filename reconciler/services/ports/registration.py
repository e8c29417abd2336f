"""Port for the `Hook` objects that represent executables."""

from typing import Protocol

from reconciler.api.meta import Object


class HookRegistry(Protocol):
    """The Hook objects of one namespace."""

    async def stored(self) -> list[Object]:
        """Return all Hook objects of the namespace."""
        ...

    async def create(self, hook: Object) -> Object:
        """Create a Hook; return it as stored.

        Raises:
            AlreadyExists: A Hook of that name exists.
        """
        ...

    async def replace(self, hook: Object) -> Object:
        """Replace the version of a Hook that its resourceVersion names; return the stored one.

        Raises:
            Conflict: It changed since.
            NotFound: It was deleted.
        """
        ...

    async def delete(self, name: str) -> None:
        """Delete a Hook; succeed if it does not exist."""
        ...

    async def refuse(self, hook: Object, reason: str) -> None:
        """Write to the status of a Hook why it cannot be used."""
        ...
