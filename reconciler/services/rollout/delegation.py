"""Checks of whether the programs may impersonate the accounts that policies name."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from reconciler.api.account import ServiceAccount
from reconciler.api.meta import PolicyRef
from reconciler.clock import Clock
from reconciler.engine.program import CompiledPolicy
from reconciler.errors import ClusterError
from reconciler.services.catalog.policy_store import PolicyStore
from reconciler.services.ports.access import Accesses

_GRANTED_FOR: Final = 30.0
_MISSING_FOR: Final = 4.0
"""Seconds that an answer is cached; requests notice a change by themselves, at once."""
_PARALLEL: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    granted: bool
    until: float


@dataclass(slots=True, kw_only=True)
class Delegation:
    """Checks the accounts of policies and caches the answers for some seconds."""

    index: PolicyStore
    access: Accesses
    clock: Clock
    _answers: dict[ServiceAccount, _Answer] = field(default_factory=dict)

    async def problems(self, policies: Iterable[CompiledPolicy]) -> dict[PolicyRef, str]:
        """Return the reasons why policies cannot work as the accounts that they name."""
        found: dict[PolicyRef, str] = {}
        named: dict[PolicyRef, ServiceAccount] = {}
        for policy in policies:
            stored = self.index.entry(policy.ref)
            if stored is not None and stored.misnamed is not None:
                found[policy.ref] = str(stored.misnamed)
            elif policy.account is not None:
                named[policy.ref] = policy.account
        await self._ask(set(named.values()))
        for ref, account in named.items():
            if not self._answers[account].granted:
                right = account.impersonation
                found[ref] = (
                    f"the controller may not work as ServiceAccount {account}, which the policy"
                    f" names; grant: {right} named {right.name}"
                )
        return found

    async def _ask(self, accounts: set[ServiceAccount]) -> None:
        now = self.clock.monotonic()
        self._answers = {
            account: answer
            for account, answer in self._answers.items()
            if account in accounts and answer.until > now
        }
        gate = asyncio.Semaphore(_PARALLEL)

        async def one(account: ServiceAccount) -> None:
            async with gate:
                granted = await self._may_act_as(account)
            kept = _GRANTED_FOR if granted else _MISSING_FOR
            self._answers[account] = _Answer(granted=granted, until=now + kept)

        await asyncio.gather(*map(one, accounts - self._answers.keys()))

    async def _may_act_as(self, account: ServiceAccount) -> bool:
        try:
            return await self.access.of(account).may(account.impersonation)
        except ClusterError:
            return True  # Unknown; the policy's requests will show.
