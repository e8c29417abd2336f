"""The settings of both programs that a ConfigMap holds and that take effect while they run."""

from reconciler.services.catalog.settings.filters import Filters, default_filters
from reconciler.services.catalog.settings.holder import SettingsHolder
from reconciler.services.catalog.settings.reading import (
    KNOWN_KEYS,
    ClusterSettings,
    Fault,
    default_settings,
    read_settings,
)
from reconciler.services.catalog.settings.webhooks import WebhookSettings

__all__ = [
    "KNOWN_KEYS",
    "ClusterSettings",
    "Fault",
    "Filters",
    "SettingsHolder",
    "WebhookSettings",
    "default_filters",
    "default_settings",
    "read_settings",
]
