"""What somebody may do: reviews by the API server's authorizer. Nothing is remembered."""

from collections.abc import Mapping
from typing import Any

from reconciler.api.rights import Right
from reconciler.kube.client import Client, encode

_GROUP = "authorization.k8s.io"
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
        return await _review(self._client, "SubjectAccessReview", right, self._subject)


class UserAccess:
    """The `Access` port about whoever sent a request; needs create of subjectaccessreviews."""

    def __init__(self, client: Client, user: Mapping[str, Any]) -> None:
        """Take the user as an AdmissionReview describes one."""
        self._client = client
        told = {"user": user.get("username"), **{key: user.get(key) for key in _OF_USER}}
        self._subject = {key: value for key, value in told.items() if value}

    async def may(self, right: Right) -> bool:
        """Ask for one right."""
        return await _review(self._client, "SubjectAccessReview", right, self._subject)


class OwnAccess:
    """The `Access` port about the program itself, whoever it runs as."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def may(self, right: Right) -> bool:
        """Ask for one right."""
        return await _review(self._client, "SelfSubjectAccessReview", right, {})


class ProgramAccess:
    """The `Access` port about a program: its own account where it lives, else that of policies.

    No policy reaches the programs' namespace, so what is missing there the program itself lacks.
    """

    def __init__(self, client: Client, *, namespace: str, worker: str) -> None:
        """Take the program's client, its namespace and the user it speaks for."""
        self._namespace = namespace
        self._own = OwnAccess(client)
        self._worker = OwnAccess(client.speaking_for(worker))

    async def may(self, right: Right) -> bool:
        """Ask for one right."""
        asked = self._own if right.namespace == self._namespace else self._worker
        return await asked.may(right)


async def _review(client: Client, kind: str, right: Right, subject: dict[str, Any]) -> bool:
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "resource": right.resource,
        "subresource": right.subresource,
        "namespace": right.namespace,
        "name": right.name,
    }
    given = {key: value for key, value in attributes.items() if value}
    body = {
        "apiVersion": f"{_GROUP}/v1",
        "kind": kind,
        "spec": {**subject, "resourceAttributes": given},
    }
    path = f"/apis/{_GROUP}/v1/{kind.lower()}s"
    answer = await client.json("POST", path, body=encode(body))
    return bool((answer.get("status") or {}).get("allowed"))
