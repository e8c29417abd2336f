"""Access reviews: rights as the API server's authorizer evaluates them, without a cache."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from reconciler.api.account import ServiceAccount
from reconciler.api.meta import Kind
from reconciler.api.rights import Right
from reconciler.errors import Forbidden
from reconciler.kube.client import Client
from reconciler.services.ports.access import Access

_REVIEWS = Kind(
    group="authorization.k8s.io",
    version="v1",
    kind="SubjectAccessReview",
    plural="subjectaccessreviews",
    namespaced=False,
)
_SELF_REVIEWS = replace(
    _REVIEWS, kind="SelfSubjectAccessReview", plural="selfsubjectaccessreviews"
)
_OF_USER = ("uid", "groups", "extra")


class UserAccess:
    """The `Access` port for any user; needs create of subjectaccessreviews."""

    def __init__(self, client: Client, user: Mapping[str, Any]) -> None:
        """Initialize with the ``userInfo`` of an AdmissionReview."""
        self._client = client
        described = {"user": user.get("username"), **{key: user.get(key) for key in _OF_USER}}
        self._subject = {key: value for key, value in described.items() if value}

    @classmethod
    def of_account(cls, client: Client, account: ServiceAccount) -> Self:
        """Return the access of a ServiceAccount."""
        shared = "system:serviceaccounts"
        groups = [shared, f"{shared}:{account.namespace}", "system:authenticated"]
        return cls(client, {"username": account.user, "groups": groups})

    async def may(self, right: Right) -> bool:
        """Return whether the user has the right."""
        return await _review(self._client, _REVIEWS, right, self._subject)

    async def may_get(self, path: str) -> bool:
        """Return whether the user may get a non-resource path."""
        spec = {**self._subject, "nonResourceAttributes": {"path": path, "verb": "get"}}
        return await _answer(self._client, _REVIEWS, spec)


class PolicyAccess:
    """The `Accesses` port for a program that reviews other accounts with SubjectAccessReviews."""

    def __init__(
        self, client: Client, *, shared: ServiceAccount, controller: ServiceAccount
    ) -> None:
        """Initialize with the account that policies share and the account that impersonates."""
        self._client = client
        self._shared = UserAccess.of_account(client, shared)
        self._controller = UserAccess.of_account(client, controller)

    async def may(self, right: Right) -> bool:
        """Return whether the account that policies share has the right."""
        return await self._shared.may(right)

    def of(self, account: ServiceAccount | None) -> Access:
        """Return the access of the account that a policy names, or of the shared one for None."""
        if account is None:
            return self
        own = UserAccess.of_account(self._client, account)
        return AccountAccess(programs=self._controller, account=account, own=own)


class OwnAccess:
    """The `Access` port for the user that the program itself authenticates as."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def may(self, right: Right) -> bool:
        """Return whether the program has the right."""
        return await _review(self._client, _SELF_REVIEWS, right, {})


class ProgramAccess:
    """The `Access` port for a program: its own account in its namespace, else that of policies.

    Policies never act in the programs' namespace, so a right missing there is the program's.
    """

    def __init__(self, client: Client, *, namespace: str, worker: str) -> None:
        """Initialize with the program's client, its namespace and the user to impersonate."""
        self._client = client
        self._namespace = namespace
        self._own = OwnAccess(client)
        self._worker = OwnAccess(client.speaking_for(worker))

    async def may(self, right: Right) -> bool:
        """Return whether the account responsible for the right's namespace has the right."""
        asked = self._own if right.namespace == self._namespace else self._worker
        return await asked.may(right)

    def of(self, account: ServiceAccount | None) -> Access:
        """Return the access of the account that a policy names; for None, this one."""
        if account is None:
            return self
        own = OwnAccess(self._client.speaking_for(account.user))
        return AccountAccess(programs=self._own, account=account, own=own)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountAccess:
    """The `Access` port for an account that a policy names.

    Attributes:
        programs: Access of the account that impersonates it.
        own: Access of the account itself.
    """

    programs: Access
    account: ServiceAccount
    own: Access

    async def may(self, right: Right) -> bool:
        """Return whether the account has the right; for "impersonate", its impersonator."""
        if right.verb == "impersonate":
            # A `MissingRight` for impersonation names only the namespace, not the account.
            return await self.programs.may(replace(right, name=self.account.name))
        try:
            return await self.own.may(right)
        except Forbidden:
            # The program may not impersonate the account, which is a missing right of its own.
            return False


async def _review(client: Client, kind: Kind, right: Right, subject: dict[str, Any]) -> bool:
    given = {key: value for key, value in asdict(right).items() if value}
    return await _answer(client, kind, {**subject, "resourceAttributes": given})


async def _answer(client: Client, kind: Kind, spec: dict[str, Any]) -> bool:
    answer = await client.resource(kind).create({**kind.head, "spec": spec})
    return bool((answer.get("status") or {}).get("allowed"))
