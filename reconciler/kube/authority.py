"""The `Authority` port: the CA that the admission servers share in a Secret."""

from reconciler.clock import Clock
from reconciler.kube.client import Client
from reconciler.kube.secrets import SECRETS, NamedSecrets
from reconciler.kube.watch import Watch

CA_SECRET = "kube-retrofit-ca"  # noqa: S105 - the name of an object
TLS_SECRET = "kube-retrofit-tls"  # noqa: S105 - the name of an object
BUNDLE = "ca.crt"
"""The key of the Secret that holds all CA certificates to trust for serving certificates."""


def authority_watch(client: Client, clock: Clock, namespace: str, name: str) -> Watch:
    """Return a metadata-only watch on one of the two Secrets, so that no key is read."""
    return Watch(client, SECRETS, clock, namespace=namespace, name=name, metadata_only=True)


class KubeAuthority:
    """The CA of one namespace, read from its Secret."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._secrets = NamedSecrets(client, namespace)

    async def restore(self) -> None:
        """Recreate the two Secrets if they were deleted; the admission servers fill them."""
        for name in (CA_SECRET, TLS_SECRET):
            await self._secrets.restore(name)

    async def ca_bundle(self) -> bytes | None:
        """Return the CA certificates in PEM, or None if no admission server has stored any yet."""
        stored = await self._secrets.get(CA_SECRET)
        return None if stored is None else stored.data.get(BUNDLE)
