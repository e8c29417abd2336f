"""The `HookRegistry` port."""

from typing import Any

from reconciler.api.meta import Object
from reconciler.clock import Clock
from reconciler.errors import NotFound
from reconciler.hooks.declared import HOOKS
from reconciler.kube.client import Client
from reconciler.kube.hooks import write_hook_status
from reconciler.kube.reader import KubeReader
from reconciler.services.hooks.accounts import refused_status


class KubeHookRegistry:
    """The Hooks of one namespace, written in the program's own name."""

    def __init__(self, client: Client, clock: Clock, namespace: str) -> None:
        self._hooks = client.resource(HOOKS)
        self._reader = KubeReader(client)
        self._client = client
        self._clock = clock
        self._namespace = namespace

    async def stored(self) -> list[Object]:
        """Return all of them."""
        return [item async for item in self._reader.items(HOOKS, namespace=self._namespace)]

    async def create(self, hook: Object) -> Object:
        """Store a new one; return it."""
        answer: Object = await self._hooks.create(hook, self._namespace)
        return answer

    async def replace(self, hook: Object) -> Object:
        """Store one in the place of the version that it names; return it."""
        name: Any = hook["metadata"]["name"]
        answer: Object = await self._hooks.replace(hook, name, self._namespace)
        return answer

    async def delete(self, name: str) -> None:
        """Delete one; absent is success."""
        try:
            await self._hooks.delete(name, self._namespace)
        except NotFound:
            return

    async def refuse(self, hook: Object, reason: str) -> None:
        """Have the status of one say why it cannot be used."""
        wanted = refused_status(hook, reason, self._clock.now())
        status = hook.get("status") or {}
        if any(status.get(name) != value for name, value in wanted.items()):
            await write_hook_status(self._client, hook, wanted)
