"""PolicyExceptions at the controller, kept in sync with the cluster by every replica.

They are not watched by kopf: work must not begin before the first list, nor continue while a watch
has missed events, and kopf reports neither.
"""

from collections.abc import Callable
from dataclasses import dataclass

from reconciler.api.kinds import policy_named
from reconciler.api.meta import PolicyRef
from reconciler.installation import Installation
from reconciler.kube.watch import Watch
from reconciler.observe.logs import Logger
from reconciler.services.catalog.exceptions import ExceptionIndex, exception_key


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceptionInformer:
    """Keeps the exception index in sync.

    Attributes:
        wake: Called with each policy whose parked requests may be decided differently now.
    """

    installation: Installation
    index: ExceptionIndex
    watch: Watch
    wake: Callable[[PolicyRef], None]
    log: Logger

    async def run(self) -> None:
        """Watch the exceptions until cancelled."""
        async for change, obj in self.watch.events():
            if change != "DELETED":
                await self.index.prepare(obj)
            taken = self.index.on_event(change, obj)
            if taken.problem:
                key = exception_key(obj)
                self.log.warning("exception not honoured", key=key, reason=taken.problem)
            for policy in taken.policies:
                self.wake(policy_named(policy, self.installation))

    def unready(self) -> str | None:
        """Return why the exceptions are not known, or None if they are."""
        return None if self.watch.synced.is_set() else self.watch.problem or "not listed yet"
