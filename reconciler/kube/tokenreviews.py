"""Who a bearer token is, by the API server; nothing is remembered, and no token is kept."""

from collections.abc import Mapping
from typing import Any

from reconciler.api.meta import Kind
from reconciler.kube.access import UserAccess
from reconciler.kube.client import Client

_REVIEWS = Kind(
    group="authentication.k8s.io",
    version="v1",
    kind="TokenReview",
    plural="tokenreviews",
    namespaced=False,
)


class TokenReviews:
    """Callers by their tokens; needs create of tokenreviews and subjectaccessreviews."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def user(self, token: str) -> Mapping[str, Any] | None:
        """Return the user of a token as an AdmissionReview describes one, None if it is not one.

        Raises:
            ClusterError: The API server does not say.
        """
        body = {
            "apiVersion": _REVIEWS.api_version,
            "kind": _REVIEWS.kind,
            "spec": {"token": token},
        }
        status = (await self._client.resource(_REVIEWS).create(body)).get("status") or {}
        return status.get("user") if status.get("authenticated") else None

    async def may_get(self, user: Mapping[str, Any], path: str) -> bool:
        """Return whether a user may get a path that is no object's.

        Raises:
            ClusterError: The API server does not say.
        """
        return await UserAccess(self._client, user).may_get(path)
