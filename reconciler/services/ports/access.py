"""Port for access reviews: what an account may do."""

from typing import Protocol

from reconciler.api.account import ServiceAccount
from reconciler.api.rights import Right


class Access(Protocol):
    """Access reviews of one account; no answer is cached."""

    async def may(self, right: Right) -> bool:
        """Return whether a right is granted now."""


class Accesses(Access, Protocol):
    """Access reviews of the account that policies share, and of any that a policy names."""

    def of(self, account: ServiceAccount | None) -> Access:
        """Return the access reviews of an account; None is the shared one.

        For `ServiceAccount.impersonation` they answer whether the programs may impersonate it.
        """
