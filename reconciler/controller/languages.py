"""Policy languages that a cluster need not have, watched if their kinds are installed.

A language is active if its policies can be read and no other system acts on them: its original is
detected by the webhook configuration that it creates, and takes precedence.
"""

import asyncio
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

from reconciler.api.meta import Kind
from reconciler.dialects.base import Original
from reconciler.dialects.registry import DIALECTS
from reconciler.kube.watch import Watch
from reconciler.kube.webhooks import WEBHOOK_KINDS
from reconciler.observe.problems import tell_problems
from reconciler.services.catalog.policy_store import PolicyStore
from reconciler.wiring.base import Base
from reconciler.wiring.shared import Warn

_PATROL = 2.0


@dataclass(slots=True, kw_only=True)
class OptionalLanguage:
    """Watches the policies of one language, and whether its original acts on them.

    Attributes:
        original: The original and the watch on its configuration; None if it does not matter
            whether the original is at work.
    """

    name: str
    watches: Mapping[Kind, Watch]
    original: tuple[Original, Watch] | None
    index: PolicyStore
    warn: Warn
    _there: asyncio.Event = field(default_factory=asyncio.Event)
    _known: bool = False

    @classmethod
    def all(cls, base: Base) -> Iterator[Self]:
        """Yield the languages that have watches."""
        optional = base.cluster.policies.optional
        for dialect in DIALECTS:
            original = None if base.settings.take_over else dialect.original
            watches = {kind: it for kind, it in optional.items() if kind in dialect.kinds}
            if watches:
                yield cls(
                    name=dialect.name,
                    watches=watches,
                    original=None if original is None else _followed(base, original),
                    index=base.index,
                    warn=base.warn,
                )

    def __post_init__(self) -> None:
        self._known = self.original is None
        for watch in self.watches.values():
            watch.turned.subscribe(self._settle)

    def loops(self) -> Mapping[str, Awaitable[None]]:
        """Return the endless loops of the language by name."""
        found: dict[str, Awaitable[None]] = {}
        for kind, watch in self.watches.items():
            found[kind.plural] = self._follow(watch)
            found[f"problems of {kind.plural}"] = tell_watch(kind.plural, watch, self.warn)
        if self.original is not None:
            found[f"live {self.original[0].name}"] = self._look_for(*self.original)
        return found

    async def _follow(self, watch: Watch) -> None:
        async for change, policy in watch.events():
            if change == "DELETED":
                self.index.on_deleted(policy)
            else:
                await self.index.take_in(policy)

    async def _look_for(self, original: Original, watch: Watch) -> None:
        # If the language is not installed, its original does not matter.
        await self._there.wait()
        async with asyncio.TaskGroup() as tasks:
            what = f"the configuration of {original.name}"
            tasks.create_task(tell_watch(what, watch, self.warn))
            tasks.create_task(self._stand_by(original, watch))
            await watch.synced.wait()
            self._known = True
            self._settle()

    async def _stand_by(self, original: Original, watch: Watch) -> None:
        async for change, _ in watch.events():
            reason = "" if change == "DELETED" else _reason(original)
            self.warn(reason or f"{original.name} is gone: its policies are acted on")
            self.index.languages.stand_by(self.name, reason)

    def _settle(self) -> None:
        for kind, watch in self.watches.items():
            self.index.languages.take(kind, served=self._known and not watch.absent)
        if not all(watch.absent for watch in self.watches.values()):
            self._there.set()


async def tell_watch(what: str, watch: Watch, warn: Warn) -> None:
    """Warn of each new problem of a watch until cancelled."""
    await tell_problems(
        lambda: watch.problem, lambda text: warn(f"cannot watch {what}: {text}"), every=_PATROL
    )


def _followed(base: Base, original: Original) -> tuple[Original, Watch]:
    (kind,) = (kind for kind in WEBHOOK_KINDS if kind.kind == original.kind)
    name = original.configuration
    return original, Watch(base.client, kind, base.clock, name=name, metadata_only=True)


def _reason(original: Original) -> str:
    configuration = f"{original.kind} {original.configuration}"
    return (
        f"{original.name} is installed in this cluster ({configuration}) and acts"
        " on its policies itself: kube-retrofit stands by until it is removed"
    )
