"""The adapters that impersonate accounts, made on first use."""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from reconciler.api.account import ServiceAccount
from reconciler.recent import Recent

T = TypeVar("T")

MOST: Final = 256
"""Limit of accounts with a kept adapter; an evicted adapter loses its caches."""


class PerAccount(Generic[T]):
    """One adapter per account over shared connections; adapters share no cached data."""

    def __init__(self, make: Callable[[str], T]) -> None:
        """Initialize with a factory that makes an adapter for the full name of a user."""
        self._make = make
        self._kept: Recent[ServiceAccount, T] = Recent(MOST)

    def of(self, account: ServiceAccount) -> T:
        """Return the adapter of an account, made if necessary."""
        found = self._kept.get(account)
        if found is None:
            found = self._make(account.user)
        self._kept.keep(account, found)
        return found
