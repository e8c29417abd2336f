"""The ServiceAccount as which the controller does the work of a policy."""

from dataclasses import dataclass
from typing import Final

from typing_extensions import override

from reconciler.api.rights import Right


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccount:
    """An account that a policy names; its rights are the only ones that the policy works with."""

    namespace: str
    name: str

    @property
    def user(self) -> str:
        """Return the user name of the account in the API server."""
        return f"system:serviceaccount:{self.namespace}:{self.name}"

    @property
    def impersonation(self) -> Right:
        """Return the right to impersonate the account."""
        return Right(
            verb="impersonate",
            group="",
            resource="serviceaccounts",
            namespace=self.namespace,
            name=self.name,
        )

    @override
    def __str__(self) -> str:
        return f"{self.namespace}:{self.name}"


NOBODY: Final = ServiceAccount(namespace="", name="")
"""The account of a policy with an invalid annotation: no rights, instead of another's rights."""


@dataclass(frozen=True, slots=True)
class MissingRight:
    """A right as a status names it, and the account that lacks it, None for the shared one."""

    permission: str
    account: ServiceAccount | None = None
