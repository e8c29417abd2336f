"""The `Authority` port: the CA that the admission servers share in a Secret."""

from reconciler.clock import Clock
from reconciler.kube.client import Client
from reconciler.kube.secrets import SECRETS, NamedSecrets
from reconciler.kube.watch import Watch

CA_SECRET = "kube-retrofit-ca"  # noqa: S105 - the name of an object
TLS_SECRET = "kube-retrofit-tls"  # noqa: S105 - the name of an object
BUNDLE = "ca.crt"
"""The entry with all certificates that a serving certificate may come from."""


def authority_watch(client: Client, clock: Clock, namespace: str, name: str) -> Watch:
    """Return a watch on one of the two Secrets, which never reads what stands in it."""
    fields = f"metadata.name={name}"
    return Watch(client, SECRETS, clock, namespace=namespace, fields=fields, metadata_only=True)


class KubeAuthority:
    """Reads the CA of one namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._secrets = NamedSecrets(client, namespace)

    async def restore(self) -> None:
        """Make the two Secrets again where somebody deleted them; admission servers fill them."""
        for name in (CA_SECRET, TLS_SECRET):
            await self._secrets.restore(name)

    async def ca_bundle(self) -> bytes | None:
        """Return its certificates in PEM, None where no admission server has made it yet."""
        stored = await self._secrets.get(CA_SECRET)
        return None if stored is None else stored.data.get(BUNDLE)
