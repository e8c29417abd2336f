"""The settings that hold now, for whoever reads them at work."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from reconciler.api.meta import TargetKey
from reconciler.engine.match import Subject
from reconciler.services.catalog.protection import Protection
from reconciler.services.catalog.settings.reading import (
    ClusterSettings,
    Fault,
    default_settings,
    read_settings,
)
from reconciler.services.catalog.settings.webhooks import WebhookSettings

Listener = Callable[["SettingsHolder"], None]


@dataclass(slots=True)
class SettingsHolder:
    """One holder per process; ask it each time, the settings change while the program runs.

    Attributes:
        namespace: The program's own.
        filter_targets: ``resourceFilters`` holds for targets too.
        current: What holds now.
        faults: Values of the ConfigMap that are not used; older ones hold instead.
        unused: Keys of the ConfigMap that have no effect here.
        listeners: Told after every change of these.
    """

    namespace: str
    current: ClusterSettings
    filter_targets: bool = False
    faults: tuple[Fault, ...] = ()
    unused: tuple[str, ...] = ()
    listeners: list[Listener] = field(default_factory=list)

    @classmethod
    def of(cls, namespace: str, *, filter_targets: bool = False) -> Self:
        """Return one that holds the defaults."""
        return cls(namespace, default_settings(namespace), filter_targets)

    def take(self, data: Mapping[str, str]) -> None:
        """Take in the ConfigMap as it is now; without one, data is empty."""
        found = read_settings(data, old=self.current, own_namespace=self.namespace)
        self.current, self.faults, self.unused = found.settings, found.faults, found.unused
        self._tell()

    def leaves_trigger(self, subject: Subject) -> bool:
        """Return whether an object triggers nothing."""
        own = Protection(namespace=self.namespace).of_trigger(subject.kind, subject.namespace)
        return bool(own) or self.current.filters.filter(subject)

    def leaves_target(self, key: TargetKey) -> bool:
        """Return whether an object is not to be changed."""
        return self.filter_targets and self.current.filters.name(key.kind, key.namespace, key.name)

    def refuse_webhooks(self, accepted: WebhookSettings, fault: Fault) -> None:
        """Go on with other webhook settings: the API server refuses the current ones."""
        self.current = replace(self.current, webhooks=accepted)
        self.faults = (*(item for item in self.faults if item.key != fault.key), fault)
        self._tell()

    def _tell(self) -> None:
        for listener in self.listeners:
            listener(self)
