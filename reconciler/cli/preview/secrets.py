"""Collects the content of Secrets that context entries read, so that output can mask it."""

from dataclasses import dataclass
from typing import Any

from reconciler.api.account import ServiceAccount
from reconciler.cli.output.masking import Mask
from reconciler.engine.loads import Load
from reconciler.services.ports.objects import Loader, RuleLoader


class WatchedLoader:
    """A `RuleLoader` that records the content of the Secrets that it returns."""

    def __init__(self, loader: RuleLoader) -> None:
        self.mask = Mask()
        self._loader = loader

    def acting_as(self, account: ServiceAccount | None) -> Loader:
        """Return a loader that impersonates an account and records Secrets in this mask."""
        if account is None:
            return self
        return _InThatName(watched=self, loader=self._loader.acting_as(account))

    async def load(self, load: Load) -> Any:
        """Return the data that a context entry reads, decoded."""
        return self.seen(await self._loader.load(load))

    def seen(self, answer: Any) -> Any:
        """Record the Secrets in a response, and return it."""
        kind = answer.get("kind") if isinstance(answer, dict) else None
        if kind in ("Secret", "SecretList"):
            items = (answer.get("items") or ()) if kind == "SecretList" else (answer,)
            named = [item | {"apiVersion": "v1", "kind": "Secret"} for item in items]
            self.mask = self.mask.of(named)
        return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class _InThatName:
    watched: WatchedLoader
    loader: Loader

    async def load(self, load: Load) -> Any:
        return self.watched.seen(await self.loader.load(load))
