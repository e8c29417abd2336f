"""The watch on the settings ConfigMap, for both programs."""

from reconciler.api.meta import CONFIG_MAPS
from reconciler.clock import Clock
from reconciler.config import ProcessSettings
from reconciler.kube.client import Client
from reconciler.kube.watch import Watch


def settings_watch(client: Client, clock: Clock, settings: ProcessSettings) -> Watch:
    """Return a watch on the one ConfigMap of a program with these settings."""
    name = settings.installation.settings
    return Watch(client, CONFIG_MAPS, clock, namespace=settings.namespace, name=name)
