"""The watch on the settings ConfigMap, for both programs."""

from collections.abc import Callable

from reconciler.api.meta import CONFIG_MAPS, Object
from reconciler.clock import Clock
from reconciler.kube.client import Client
from reconciler.kube.watch import Watch
from reconciler.services.catalog.settings import SettingsHolder
from reconciler.services.catalog.settings.reading import SETTINGS_NAME
from reconciler.services.ports.policies import Change


def settings_watch(client: Client, clock: Clock, namespace: str) -> Watch:
    """Return a watch on the one ConfigMap."""
    fields = f"metadata.name={SETTINGS_NAME}"
    return Watch(client, CONFIG_MAPS, clock, namespace=namespace, fields=fields)


def settings_taker(holder: SettingsHolder) -> Callable[[Change, Object], None]:
    """Return what hands changes of the ConfigMap to a holder."""

    def take(change: Change, config_map: Object) -> None:
        holder.take({} if change == "DELETED" else config_map.get("data") or {})

    return take
