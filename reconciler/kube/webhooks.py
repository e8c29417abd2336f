"""Webhook configurations by kind and name; their contents are decided elsewhere."""

import contextlib
from collections.abc import Mapping
from typing import Any

from reconciler.api.meta import Kind, Object
from reconciler.errors import Forbidden, NotFound
from reconciler.kube.client import Client
from reconciler.kube.dynamic import ApiResource
from reconciler.services.ports.webhooks import MUTATING, VALIDATING, ConfigurationRef, ref_of

WEBHOOK_KINDS = tuple(
    Kind(
        group="admissionregistration.k8s.io",
        version="v1",
        kind=kind,
        plural=f"{kind.lower()}s",
        namespaced=False,
    )
    for kind in (VALIDATING, MUTATING)
)

CLUSTER_ROLES = Kind(
    group="rbac.authorization.k8s.io",
    version="v1",
    kind="ClusterRole",
    plural="clusterroles",
    namespaced=False,
)
_CHECK = "kube-retrofit-check"


class WebhookConfigurations:
    """Reads and writes both kinds of webhook configurations, as stored."""

    def __init__(self, client: Client, owner: str) -> None:
        """Initialize with the ClusterRole that is deleted when the programs are removed."""
        self._owner = owner
        self._webhooks = {kind.kind: client.resource(kind) for kind in WEBHOOK_KINDS}
        self._roles = client.resource(CLUSTER_ROLES)

    async def get(self, ref: ConfigurationRef) -> Object | None:
        """Return the configuration, or None if it does not exist."""
        return await self._webhooks[ref.kind].find(ref.name)

    async def create(self, configuration: Object) -> Object:
        """Store a new configuration.

        Raises:
            AlreadyExists: Another client has created it.
        """
        return await self._of(configuration).create(configuration, field_validation="Strict")

    async def replace(self, configuration: Object) -> Object:
        """Replace a configuration; if it has a resourceVersion, exactly that version.

        Raises:
            Conflict: Another version is stored.
        """
        return await self._of(configuration).replace(configuration, field_validation="Strict")

    async def delete(self, ref: ConfigurationRef) -> None:
        """Delete a configuration; it is no error if it does not exist."""
        with contextlib.suppress(NotFound):
            await self._webhooks[ref.kind].delete(ref.name)

    async def check(self, configuration: Object) -> None:
        """Validate a configuration by a dry run at the API server.

        Raises:
            Invalid: The API server would reject it.
        """
        trial = {**configuration, "metadata": {**configuration["metadata"], "name": _CHECK}}
        await self._of(configuration).create(trial, dry_run="All", field_validation="Strict")

    async def owner(self) -> Mapping[str, Any] | None:
        """Return the owner reference for configurations.

        None if there is no such object or no right to read it: that right is granted and removed
        together with it.
        """
        try:
            role = await self._roles.get(self._owner)
        except (NotFound, Forbidden):
            return None
        if role["metadata"].get("deletionTimestamp"):
            return None
        return {**CLUSTER_ROLES.head, "name": self._owner, "uid": role["metadata"]["uid"]}

    def _of(self, configuration: Object) -> ApiResource:
        return self._webhooks[ref_of(configuration).kind]
