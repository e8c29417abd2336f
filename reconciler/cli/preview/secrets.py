"""What context entries read out of Secrets, so that nothing of it is shown."""

from typing import Any

from reconciler.cli.output.masking import Mask, mask_of
from reconciler.engine.entries import Load
from reconciler.services.ports import Loader


class WatchedLoader:
    """A `Loader` that remembers the content of the Secrets that it gave.

    Attributes:
        mask: Hides that content.
    """

    def __init__(self, loader: Loader) -> None:
        """Take the loader that reads."""
        self.mask = Mask()
        self._loader = loader

    async def load(self, load: Load) -> Any:
        """Return what an entry asks for, decoded."""
        answer = await self._loader.load(load)
        kind = answer.get("kind") if isinstance(answer, dict) else None
        if kind in ("Secret", "SecretList"):
            items = (answer.get("items") or ()) if kind == "SecretList" else (answer,)
            named = [item | {"apiVersion": "v1", "kind": "Secret"} for item in items]
            self.mask = joined(self.mask, mask_of(named))
        return answer


def joined(*masks: Mask) -> Mask:
    """Return a mask that hides what any of these hides."""
    texts = {text for mask in masks for text in mask.texts}
    # The longest first: one text may be a part of another.
    return Mask(texts=tuple(sorted(texts, key=lambda text: (-len(text), text))))
