"""The current settings, shared by all components of a process."""

from collections.abc import Mapping, Sequence
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
    """The settings of a process; read them anew for each use, because they change at run time.

    Attributes:
        filter_targets: ``resourceFilters`` apply to targets too.
        faults: Values of the ConfigMap that are not used; the previous ones stay in effect.
        unused: Keys of the ConfigMap that have no effect here.
        changed: Emitted when the settings or the faults may have changed.
    """

    namespace: str
    current: ClusterSettings
    filter_targets: bool = False
    faults: tuple[Fault, ...] = ()
    unused: tuple[str, ...] = ()
    changed: Signal[["SettingsHolder"]] = field(default_factory=Signal)

    @classmethod
    def of(cls, namespace: str, *, filter_targets: bool = False) -> Self:
        """Return a holder with the default settings."""
        return cls(namespace, default_settings(namespace), filter_targets)

    def on_event(self, change: Change, config_map: Object) -> None:
        """Apply a change of the ConfigMap."""
        self.load({} if change == "DELETED" else config_map.get("data") or {})

    def load(self, data: Mapping[str, str]) -> None:
        """Apply the data of the ConfigMap; without a ConfigMap it is empty."""
        found = read_settings(data, old=self.current, own_namespace=self.namespace)
        self.current, self.faults, self.unused = found.settings, found.faults, found.unused
        self.changed.emit(self)

    def leaves_trigger(self, program: Program, subject: Subject) -> bool:
        """Return whether an object is excluded from triggering a rule."""
        own = Protection(namespace=self.namespace).of_trigger(subject.kind, subject.namespace)
        return bool(own) or (program.filtered and self.current.filters.filter(subject))

    def leaves_target(self, key: TargetKey) -> bool:
        """Return whether an object is excluded as a target."""
        return self.filter_targets and self.current.filters.name(key.kind, key.namespace, key.name)

    def refuse_webhooks(self, accepted: WebhookSettings, faults: Sequence[Fault]) -> None:
        """Replace webhook settings of which the API server refuses some."""
        refused = {fault.key for fault in faults}
        self.current = replace(self.current, webhooks=accepted)
        self.faults = (*(item for item in self.faults if item.key not in refused), *faults)
        self.changed.emit(self)
