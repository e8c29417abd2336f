"""Whether the programs may work in the names that policies give."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from reconciler.api.account import ServiceAccount
from reconciler.clock import Clock
from reconciler.engine.program import CompiledPolicy
from reconciler.errors import ClusterError
from reconciler.services.policies import PolicyIndex
from reconciler.services.ports import Accesses

_TRUSTED: Final = 30.0
"""Seconds that a right is taken to be there still; who loses it is told by the requests, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """Asks about the accounts of policies, each at most once in a while."""

    index: PolicyIndex
    access: Accesses
    clock: Clock
    _granted: dict[ServiceAccount, float] = field(default_factory=dict)

    async def problems(self, policies: Iterable[CompiledPolicy]) -> dict[str, str]:
        """Return why policies cannot work in the name that they give, by their keys."""
        found: dict[str, str] = {}
        for policy in policies:
            if (misnamed := self.index.misnamed(policy.key)) is not None:
                found[policy.key] = str(misnamed)
            elif policy.account is not None and not await self._may_act_as(policy.account):
                right = policy.account.impersonation
                found[policy.key] = (
                    f"the controller may not work as ServiceAccount {policy.account}, which the"
                    f" policy names; grant: {right} named {right.name}"
                )
        return found

    async def _may_act_as(self, account: ServiceAccount) -> bool:
        now = self.clock.monotonic()
        if self._granted.get(account, 0.0) > now:
            return True
        try:
            granted = await self.access.of(account).may(account.impersonation)
        except ClusterError:
            return True  # Nobody can say; its requests find out.
        for known in [item for item, until in self._granted.items() if until <= now]:
            del self._granted[known]
        if granted:
            self._granted[account] = now + _TRUSTED
        return granted
