"""What context entries read out of Secrets, so that nothing of it is shown."""

from dataclasses import dataclass
from typing import Any

from reconciler.api.account import ServiceAccount
from reconciler.cli.output.masking import Mask, mask_of
from reconciler.engine.loads import Load
from reconciler.services.ports.objects import Loader, RuleLoader


class WatchedLoader:
    """A `RuleLoader` that remembers the content of the Secrets that it gave.

    Attributes:
        mask: Hides that content.
    """

    def __init__(self, loader: RuleLoader) -> None:
        """Take the loader that reads."""
        self.mask = Mask()
        self._loader = loader

    def acting_as(self, account: ServiceAccount | None) -> Loader:
        """Return one that asks the API server in an account's name; what it gives is kept here."""
        if account is None:
            return self
        return _InThatName(watched=self, loader=self._loader.acting_as(account))

    async def load(self, load: Load) -> Any:
        """Return what an entry asks for, decoded."""
        return self.seen(await self._loader.load(load))

    def seen(self, answer: Any) -> Any:
        """Take in what was read, and return it."""
        kind = answer.get("kind") if isinstance(answer, dict) else None
        if kind in ("Secret", "SecretList"):
            items = (answer.get("items") or ()) if kind == "SecretList" else (answer,)
            named = [item | {"apiVersion": "v1", "kind": "Secret"} for item in items]
            self.mask = joined(self.mask, mask_of(named))
        return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class _InThatName:
    watched: WatchedLoader
    loader: Loader

    async def load(self, load: Load) -> Any:
        return self.watched.seen(await self.loader.load(load))


def joined(*masks: Mask) -> Mask:
    """Return a mask that hides what any of these hides."""
    texts = {text for mask in masks for text in mask.texts}
    # The longest first: one text may be a part of another.
    return Mask(texts=tuple(sorted(texts, key=lambda text: (-len(text), text))))
