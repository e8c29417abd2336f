"""Authenticates bearer tokens at the API server; no answer and no token is cached."""

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
    """Reviews callers by token; needs create of tokenreviews and subjectaccessreviews."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def user(self, token: str) -> Mapping[str, Any] | None:
        """Return the user of a token as in an AdmissionReview, or None if it is not valid.

        Raises:
            ClusterError: The API server gives no answer.
        """
        body = {**_REVIEWS.head, "spec": {"token": token}}
        status = (await self._client.resource(_REVIEWS).create(body)).get("status") or {}
        return status.get("user") if status.get("authenticated") else None

    async def may_get(self, user: Mapping[str, Any], path: str) -> bool:
        """Return whether a user may get a non-resource path.

        Raises:
            ClusterError: The API server gives no answer.
        """
        return await UserAccess(self._client, user).may_get(path)
