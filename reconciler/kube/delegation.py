"""The adapters that work in the name of accounts, made when they are first asked for."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from reconciler.api.account import ServiceAccount

T = TypeVar("T")

MOST: Final = 256
"""Accounts of which an adapter is kept; what it has learned goes with the one left out."""


class PerAccount(Generic[T]):
    """One adapter per account over shared connections; what one learns, no other account sees."""

    def __init__(self, make: Callable[[str], T]) -> None:
        """Take what makes an adapter, given the full name of a user."""
        self._make = make
        self._kept: OrderedDict[ServiceAccount, T] = OrderedDict()

    def of(self, account: ServiceAccount) -> T:
        """Return the adapter of an account."""
        found = self._kept.get(account)
        if found is None:
            found = self._kept[account] = self._make(account.user)
            if len(self._kept) > MOST:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(account)
        return found
