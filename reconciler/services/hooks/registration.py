"""Keeps a `Hook` object for every executable, so that it is visible in the cluster."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from reconciler.api.meta import Object, PolicyRef
from reconciler.errors import AlreadyExists, ClusterError, Conflict, NotFound
from reconciler.hooks.declared import HOOKS
from reconciler.services.hooks.webhook_config import MANAGER
from reconciler.services.jobs import WarnsOnce, repeat
from reconciler.services.ports.watching import HookRegistry
from reconciler.services.ports.webhooks import MANAGED_BY

_EVERY: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredHook:
    """The `Hook` object that an executable should have.

    Attributes:
        spec: The path of the executable, and the configuration that it printed.
        refused: Why it cannot be used; empty if it can.
    """

    ref: PolicyRef
    spec: Mapping[str, Any]
    refused: str = ""

    def render(self) -> Object:
        """Return the `Hook` object to store."""
        return {
            "apiVersion": HOOKS.api_version,
            "kind": HOOKS.kind,
            "metadata": {
                "name": self.ref.name,
                "namespace": self.ref.namespace,
                "labels": {MANAGED_BY: MANAGER},
            },
            "spec": dict(self.spec),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRegistrar:
    """Reconciles the Hook objects of a program; only the leader does.

    An edited object is restored to what the executable printed: the image decides what runs, not
    the right to write Hooks.

    Attributes:
        tried: Set once it was tried to register each hook.
    """

    registry: HookRegistry
    hooks: tuple[RegisteredHook, ...]
    warn: Callable[[str], None]
    tried: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Reconcile periodically until cancelled."""
        await repeat(
            self.settle,
            every=_EVERY,
            pauses=(0.5, _EVERY),
            tell=WarnsOnce(warn=self.warn).tell,
            failing="hooks cannot be registered: ",
        )

    async def settle(self) -> None:
        """Create, restore and remove Hook objects as needed.

        A failure at one does not stop the others.

        Raises:
            ClusterError: The first failure.
        """
        stored = {obj["metadata"]["name"]: obj for obj in await self.registry.stored()}
        errors: list[ClusterError] = []
        for hook in self.hooks:
            try:
                await self._settle(hook, stored.pop(hook.ref.name, None))
            except ClusterError as error:
                errors.append(error)
        self.tried.set()
        for name, obj in stored.items():
            if _is_marked(obj):
                await self.registry.delete(name)
        if errors:
            raise errors[0]

    async def _settle(self, hook: RegisteredHook, stored: Object | None) -> None:
        wanted = hook.render()
        try:
            if stored is None:
                stored = await self.registry.create(wanted)
            elif stored.get("spec") != wanted["spec"] or not _is_marked(stored):
                meta = stored["metadata"]
                labels = {**(meta.get("labels") or {}), **wanted["metadata"]["labels"]}
                restored = {
                    **stored,
                    "spec": wanted["spec"],
                    "metadata": {**meta, "labels": labels},
                }
                stored = await self.registry.replace(restored)
            if hook.refused:
                await self.registry.refuse(stored, hook.refused)
        except (AlreadyExists, Conflict, NotFound):
            # The object changed concurrently; the next pass reads it again.
            return


def _is_marked(obj: Object) -> bool:
    return (obj["metadata"].get("labels") or {}).get(MANAGED_BY) == MANAGER
