"""The watch on the settings ConfigMap, for both programs."""

from reconciler.api.meta import CONFIG_MAPS
from reconciler.clock import Clock
from reconciler.kube.client import Client
from reconciler.kube.watch import Watch
from reconciler.services.catalog.settings.reading import SETTINGS_NAME


def settings_watch(client: Client, clock: Clock, namespace: str) -> Watch:
    """Return a watch on the one ConfigMap."""
    fields = f"metadata.name={SETTINGS_NAME}"
    return Watch(client, CONFIG_MAPS, clock, namespace=namespace, fields=fields)
