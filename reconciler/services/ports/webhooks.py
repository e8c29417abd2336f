"""Ports for webhook configurations, their certificates, and conversion webhooks."""

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from typing_extensions import override

from reconciler.api.meta import Object

VALIDATING: Final = "ValidatingWebhookConfiguration"
MUTATING: Final = "MutatingWebhookConfiguration"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
_SERVICE_PORT: Final = 443


class ConfigurationRef(NamedTuple):
    """Reference to a webhook configuration by kind and name."""

    kind: str
    name: str

    @override
    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def ref_of(configuration: Object) -> ConfigurationRef:
    """Return the reference of a webhook configuration."""
    name = (configuration.get("metadata") or {}).get("name") or ""
    return ConfigurationRef(str(configuration.get("kind") or ""), str(name))


def render_configuration(
    ref: ConfigurationRef,
    webhooks: Iterable[Object],
    *,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    owner: Mapping[str, Any] | None,
) -> Object:
    """Return a webhook configuration as the API server stores it.

    Args:
        webhooks: In their order.
        annotations: The configuration's; may be empty.
        owner: Owner reference for garbage collection.
    """
    meta: Object = {"name": ref.name, "labels": dict(labels)}
    if annotations:
        meta["annotations"] = dict(annotations)
    if owner is not None:
        meta["ownerReferences"] = [dict(owner)]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": ref.kind,
        "metadata": meta,
        "webhooks": list(webhooks),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where the API server finds a webhook server.

    Attributes:
        url: Base URL outside a cluster; empty if the Service is used.
        service: Name of the Service, in the program's own namespace.
        ca_bundle: Certificates in PEM that verify the serving certificate.
    """

    url: str = ""
    service: str = ""
    ca_bundle: bytes

    def client(self, namespace: str, path: str) -> Object:
        """Return the ``clientConfig`` for a path, with every default set."""
        bundle = base64.b64encode(self.ca_bundle).decode()
        if self.url:
            return {"url": self.url.rstrip("/") + path, "caBundle": bundle}
        service = {
            "name": self.service,
            "namespace": namespace,
            "path": path,
            "port": _SERVICE_PORT,
        }
        return {"service": service, "caBundle": bundle}


class Webhooks(Protocol):
    """Stored webhook configurations."""

    async def get(self, ref: ConfigurationRef) -> Object | None:
        """Return a configuration, None if it does not exist."""

    async def create(self, configuration: Object) -> Object:
        """Create a configuration; raises `AlreadyExists`."""

    async def replace(self, configuration: Object) -> Object:
        """Replace exactly the given version; raises `Conflict`."""

    async def delete(self, ref: ConfigurationRef) -> None:
        """Remove a configuration; succeed if it does not exist."""

    async def check(self, configuration: Object) -> None:
        """Have the API server validate a configuration in a dry run; raises `Invalid`."""

    async def owner(self) -> Mapping[str, Any] | None:
        """Return the owner reference for configurations, None if the owner does not exist."""


class Authority(Protocol):
    """The certificate authority of the webhook's serving certificate."""

    async def restore(self) -> None:
        """Recreate the Secrets for it and the certificate, empty, if they are gone."""

    async def ca_bundle(self) -> bytes | None:
        """Return its certificates in PEM, None until an admission server has created it."""


class Definitions(Protocol):
    """Conversion settings of CustomResourceDefinitions."""

    async def conversion(self, name: str) -> Mapping[str, Any]:
        """Return the ``spec.conversion`` of a definition.

        Raises:
            NotFound: There is no such definition.
        """

    async def convert_by(self, name: str, conversion: Mapping[str, Any]) -> None:
        """Write the ``spec.conversion`` of a definition."""
