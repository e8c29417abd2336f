"""What somebody may do: reviews by the API server's authorizer. Nothing is remembered."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

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


class AccessReviews:
    """The `Access` port about one ServiceAccount; needs create of subjectaccessreviews."""

    def __init__(self, client: Client, *, namespace: str, service_account: str) -> None:
        self._client = client
        self._subject = {
            "user": f"system:serviceaccount:{namespace}:{service_account}",
            "groups": [
                "system:serviceaccounts",
                f"system:serviceaccounts:{namespace}",
                "system:authenticated",
            ],
        }

    async def may(self, right: Right) -> bool:
        """Ask for one right."""
        return await _review(self._client, _REVIEWS, right, self._subject)


class PolicyAccess:
    """The `Accesses` port of who asks about other accounts, as `AccessReviews` does."""

    def __init__(
        self, client: Client, *, shared: ServiceAccount, controller: ServiceAccount
    ) -> None:
        """Take the account that policies share, and the one that works in others' names."""
        self._client = client
        self._shared = self._about(shared)
        self._controller = self._about(controller)

    async def may(self, right: Right) -> bool:
        """Ask for one right of the account that policies share."""
        return await self._shared.may(right)

    def of(self, account: ServiceAccount | None) -> Access:
        """Return what tells about an account that a policy names; None: what this one tells."""
        if account is None:
            return self
        own = self._about(account)
        return AccountAccess(programs=self._controller, account=account, own=own)

    def _about(self, account: ServiceAccount) -> AccessReviews:
        return AccessReviews(
            self._client, namespace=account.namespace, service_account=account.name
        )


class UserAccess:
    """The `Access` port about whoever sent a request; needs create of subjectaccessreviews."""

    def __init__(self, client: Client, user: Mapping[str, Any]) -> None:
        """Take the user as an AdmissionReview describes one."""
        self._client = client
        described = {"user": user.get("username"), **{key: user.get(key) for key in _OF_USER}}
        self._subject = {key: value for key, value in described.items() if value}

    async def may(self, right: Right) -> bool:
        """Ask for one right."""
        return await _review(self._client, _REVIEWS, right, self._subject)

    async def may_get(self, path: str) -> bool:
        """Ask whether they may get a path that is no object's."""
        spec = {**self._subject, "nonResourceAttributes": {"path": path, "verb": "get"}}
        return await _answer(self._client, _REVIEWS, spec)


class OwnAccess:
    """The `Access` port about the program itself, whoever it runs as."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def may(self, right: Right) -> bool:
        """Ask for one right."""
        return await _review(self._client, _SELF_REVIEWS, right, {})


class ProgramAccess:
    """The `Access` port about a program: its own account where it lives, else that of policies.

    No policy reaches the programs' namespace, so what is missing there the program itself lacks.
    """

    def __init__(self, client: Client, *, namespace: str, worker: str) -> None:
        """Take the program's client, its namespace and the user it speaks for."""
        self._client = client
        self._namespace = namespace
        self._own = OwnAccess(client)
        self._worker = OwnAccess(client.speaking_for(worker))

    async def may(self, right: Right) -> bool:
        """Ask for one right."""
        asked = self._own if right.namespace == self._namespace else self._worker
        return await asked.may(right)

    def of(self, account: ServiceAccount | None) -> Access:
        """Return what tells about an account that a policy names; None: what this one tells."""
        if account is None:
            return self
        own = OwnAccess(self._client.speaking_for(account.user))
        return AccountAccess(programs=self._own, account=account, own=own)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountAccess:
    """The `Access` port about an account that a policy names.

    Attributes:
        programs: About whoever works in its name.
        own: About the account itself.
    """

    programs: Access
    account: ServiceAccount
    own: Access

    async def may(self, right: Right) -> bool:
        """Ask for one right."""
        if right.verb == "impersonate":
            # What lacks it names no account, only the namespace.
            return await self.programs.may(replace(right, name=self.account.name))
        try:
            return await self.own.may(right)
        except Forbidden:
            # Nobody may ask in its name: that is a right of its own to wait for.
            return False


async def _review(client: Client, kind: Kind, right: Right, subject: dict[str, Any]) -> bool:
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "resource": right.resource,
        "subresource": right.subresource,
        "namespace": right.namespace,
        "name": right.name,
    }
    given = {key: value for key, value in attributes.items() if value}
    return await _answer(client, kind, {**subject, "resourceAttributes": given})


async def _answer(client: Client, kind: Kind, spec: dict[str, Any]) -> bool:
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "spec": spec}
    answer = await client.resource(kind).create(body)
    return bool((answer.get("status") or {}).get("allowed"))
