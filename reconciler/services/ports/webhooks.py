"""Webhook configurations, and what they are made from."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

from typing_extensions import override

from reconciler.api.meta import Object

VALIDATING: Final = "ValidatingWebhookConfiguration"
MUTATING: Final = "MutatingWebhookConfiguration"


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
