"""The ServiceAccount in whose name the work of a policy is done."""

from dataclasses import dataclass
from typing import Final

from typing_extensions import override

from reconciler.api.rights import Right


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccount:
    """One that a policy names; its rights are all that the policy works with."""

    namespace: str
    name: str

    @property
    def user(self) -> str:
        """Return the name by which the API server knows it."""
        return f"system:serviceaccount:{self.namespace}:{self.name}"

    @property
    def impersonation(self) -> Right:
        """Return the right to work in its name."""
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
"""Of a policy whose account cannot be understood: no rights at all, never those of another."""


@dataclass(frozen=True, slots=True)
class MissingRight:
    """A right as a status names it, and the account that lacks it; None: the shared one."""

    permission: str
    account: ServiceAccount | None = None
