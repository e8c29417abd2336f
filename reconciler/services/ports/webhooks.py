"""Webhook configurations, and what they are made from."""

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
    """A webhook configuration; one of each kind may have a name."""

    kind: str
    name: str

    @override
    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def ref_of(configuration: Object) -> ConfigurationRef:
    """Return which configuration an object is."""
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
    """Return a configuration as the API server stores it.

    Args:
        ref: Its kind and name.
        webhooks: In their order.
        labels: Of it.
        annotations: Of it; there may be none.
        owner: Reference of an object with which it goes.
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
        url: Base address outside a cluster; empty where the Service is used.
        service: Name of the Service, in the program's own namespace.
        ca_bundle: Certificates in PEM that the serving certificate is checked against.
    """

    url: str = ""
    service: str = ""
    ca_bundle: bytes

    def client(self, namespace: str, path: str) -> Object:
        """Return the ``clientConfig`` for a path, with every default in its place."""
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
    """Webhook configurations, as stored."""

    async def get(self, ref: ConfigurationRef) -> Object | None:
        """Return a configuration, None where there is none."""
        ...

    async def create(self, configuration: Object) -> Object:
        """Store a new one; raises `AlreadyExists`."""
        ...

    async def replace(self, configuration: Object) -> Object:
        """Replace that very version; raises `Conflict`."""
        ...

    async def delete(self, ref: ConfigurationRef) -> None:
        """Remove a configuration; absent is success."""
        ...

    async def check(self, configuration: Object) -> None:
        """Have the API server check one without storing it; raises `Invalid`."""
        ...

    async def owner(self) -> Mapping[str, Any] | None:
        """Return the owner reference for configurations, None where there is no such object."""
        ...


class Authority(Protocol):
    """The certificate authority that the webhook's serving certificate comes from."""

    async def restore(self) -> None:
        """Make the Secrets that hold it and the certificate again, empty, where they are gone."""
        ...

    async def ca_bundle(self) -> bytes | None:
        """Return its certificates in PEM, None where no admission server has made it yet."""
        ...


class Definitions(Protocol):
    """How CustomResourceDefinitions have their objects converted."""

    async def conversion(self, name: str) -> Mapping[str, Any]:
        """Return the ``spec.conversion`` of one.

        Raises:
            NotFound: There is no such definition.
        """
        ...

    async def convert_by(self, name: str, conversion: Mapping[str, Any]) -> None:
        """Have its objects converted in another way."""
        ...
