"""What a ServiceAccount may do."""

from dataclasses import dataclass

from reconciler.api.meta import Kind
from reconciler.kube.client import Client, encode

_PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """The authorizer's answer.

    Attributes:
        reason: Why, where it says so.
    """

    allowed: bool
    reason: str = ""


class AccessReviews:
    """Asks the API server about the rights of one ServiceAccount; nothing is remembered."""

    def __init__(self, client: Client, *, namespace: str, service_account: str) -> None:
        self._client = client
        self._user = f"system:serviceaccount:{namespace}:{service_account}"
        self._groups = [
            "system:serviceaccounts",
            f"system:serviceaccounts:{namespace}",
            "system:authenticated",
        ]

    async def may(self, verb: str, kind: Kind, *, namespace: str = "", name: str = "") -> Review:
        """Ask for one right; an empty namespace means all, an empty name any object."""
        attributes = {
            "verb": verb,
            "group": kind.group,
            "version": kind.version,
            "resource": kind.plural,
            "subresource": kind.subresource,
            "namespace": namespace,
            "name": name,
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": self._user,
                "groups": self._groups,
                "resourceAttributes": {key: value for key, value in attributes.items() if value},
            },
        }
        answer = await self._client.json("POST", _PATH, body=encode(body))
        status = answer.get("status") or {}
        return Review(allowed=bool(status.get("allowed")), reason=status.get("reason") or "")
