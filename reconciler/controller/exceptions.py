"""PolicyExceptions at the controller, kept in step with the cluster by every replica.

Not through kopf: work must not begin before the first list, nor go on while a watch has missed
something, and kopf tells neither.
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
    """Follows the exceptions.

    Attributes:
        wake: Called with each policy whose parked requests may be decided otherwise now.
    """

    installation: Installation
    index: ExceptionIndex
    watch: Watch
    wake: Callable[[PolicyRef], None]
    log: Logger

    async def run(self) -> None:
        """Follow for ever."""
        async for change, obj in self.watch.events():
            taken = self.index.on_event(change, obj)
            if taken.problem:
                key = exception_key(obj)
                self.log.warning("exception not honoured", key=key, reason=taken.problem)
            for policy in taken.policies:
                self.wake(policy_named(policy, self.installation))

    def unready(self) -> str | None:
        """Return why the exceptions are not known, None when they are."""
        return None if self.watch.synced.is_set() else self.watch.problem or "not listed yet"
