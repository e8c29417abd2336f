"""The `HookRegistry` port."""

import contextlib

from reconciler.api.meta import Object
from reconciler.clock import Clock
from reconciler.errors import NotFound
from reconciler.hooks.declared import HOOKS
from reconciler.kube.client import Client
from reconciler.kube.reader import KubeReader
from reconciler.kube.writer import write_status
from reconciler.services.hooks.accounts import refused_status


class KubeHookRegistry:
    """The Hooks of one namespace, written as the program's own account."""

    def __init__(self, client: Client, clock: Clock, namespace: str) -> None:
        self._hooks = client.resource(HOOKS)
        self._reader = KubeReader(client)
        self._client = client
        self._clock = clock
        self._namespace = namespace

    async def stored(self) -> list[Object]:
        """Return all stored Hooks of the namespace."""
        return [item async for item in self._reader.items(HOOKS, namespace=self._namespace)]

    async def create(self, hook: Object) -> Object:
        """Store a new Hook; return the stored object."""
        return await self._hooks.create(hook, self._namespace)

    async def replace(self, hook: Object) -> Object:
        """Replace the version of a Hook that it names; return the stored object."""
        return await self._hooks.replace(hook, hook["metadata"]["name"], self._namespace)

    async def delete(self, name: str) -> None:
        """Delete a Hook; it is no error if it does not exist."""
        with contextlib.suppress(NotFound):
            await self._hooks.delete(name, self._namespace)

    async def refuse(self, hook: Object, reason: str) -> None:
        """Write the reason why a Hook cannot be used into its status."""
        wanted = refused_status(hook, reason, self._clock.now())
        status = hook.get("status") or {}
        if any(status.get(name) != value for name, value in wanted.items()):
            await write_status(self._client, HOOKS, hook, wanted)
