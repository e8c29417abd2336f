"""What an account may do."""

from typing import Protocol

from reconciler.api.account import ServiceAccount
from reconciler.api.rights import Right


class Access(Protocol):
    """What one account may do; every answer is fresh."""

    async def may(self, right: Right) -> bool:
        """Return whether a right is granted now."""
        ...


class Accesses(Access, Protocol):
    """The same about the account that policies share, and about any that a policy names."""

    def of(self, account: ServiceAccount | None) -> Access:
        """Return what tells about an account, None being the shared one.

        To `ServiceAccount.impersonation` it answers whether the programs may work in its name.
        """
        ...
