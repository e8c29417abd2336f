"""The settings that hold now, for whoever reads them at work."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from reconciler.api.meta import Object, TargetKey
from reconciler.engine.match import Subject
from reconciler.engine.program import Program
from reconciler.services.catalog.protection import Protection
from reconciler.services.catalog.settings.reading import (
    ClusterSettings,
    Fault,
    default_settings,
    read_settings,
)
from reconciler.services.catalog.settings.webhooks import WebhookSettings
from reconciler.services.ports.policies import Change
from reconciler.signals import Signal


@dataclass(slots=True)
class SettingsHolder:
    """One holder per process; ask it each time, the settings change while the program runs.

    Attributes:
        namespace: The program's own.
        filter_targets: ``resourceFilters`` holds for targets too.
        current: What holds now.
        faults: Values of the ConfigMap that are not used; older ones hold instead.
        unused: Keys of the ConfigMap that have no effect here.
        changed: Any of these changed.
    """

    namespace: str
    current: ClusterSettings
    filter_targets: bool = False
    faults: tuple[Fault, ...] = ()
    unused: tuple[str, ...] = ()
    changed: Signal[["SettingsHolder"]] = field(default_factory=Signal)

    @classmethod
    def of(cls, namespace: str, *, filter_targets: bool = False) -> Self:
        """Return one that holds the defaults."""
        return cls(namespace, default_settings(namespace), filter_targets)

    def on_event(self, change: Change, config_map: Object) -> None:
        """Take in a change of the ConfigMap."""
        self.load({} if change == "DELETED" else config_map.get("data") or {})

    def load(self, data: Mapping[str, str]) -> None:
        """Take in the ConfigMap as it is now; without one, data is empty."""
        found = read_settings(data, old=self.current, own_namespace=self.namespace)
        self.current, self.faults, self.unused = found.settings, found.faults, found.unused
        self.changed.emit(self)

    def leaves_trigger(self, program: Program, subject: Subject) -> bool:
        """Return whether an object does not trigger a rule."""
        own = Protection(namespace=self.namespace).of_trigger(subject.kind, subject.namespace)
        return bool(own) or (program.filtered and self.current.filters.filter(subject))

    def leaves_target(self, key: TargetKey) -> bool:
        """Return whether an object is not to be changed."""
        return self.filter_targets and self.current.filters.name(key.kind, key.namespace, key.name)

    def refuse_webhooks(self, accepted: WebhookSettings, fault: Fault) -> None:
        """Go on with other webhook settings: the API server refuses the current ones."""
        self.current = replace(self.current, webhooks=accepted)
        self.faults = (*(item for item in self.faults if item.key != fault.key), fault)
        self.changed.emit(self)
