"""Reports on the settings ConfigMap: log lines, a metric, an event per fault."""

from dataclasses import dataclass, field

from reconciler.observe.logs import Logger
from reconciler.observe.metrics import Metrics
from reconciler.services.catalog.settings import Fault, SettingsHolder
from reconciler.services.catalog.settings.reading import WITHOUT_EFFECT
from reconciler.services.ports.reporting import Event, Events


@dataclass(slots=True, kw_only=True)
class SettingsReport:
    """A listener of a `SettingsHolder`; ``name`` is that of the ConfigMap."""

    name: str
    log: Logger
    metrics: Metrics
    events: Events | None = None
    _reported: frozenset[Fault] = field(default=frozenset())
    _unused: tuple[str, ...] = ()

    def __call__(self, holder: SettingsHolder) -> None:
        """Report the changes since the last call."""
        faults = frozenset(holder.faults)
        for key in {item.key for item in self._reported - faults}:
            self.metrics.setting_refused.labels(key=key).set(0)
        for fault in sorted(faults, key=lambda item: item.key):
            self.metrics.setting_refused.labels(key=fault.key).set(1)
            if fault not in self._reported:
                self.log.warning("setting refused", key=fault.key, reason=_text(fault))
                self._emit(holder.namespace, fault)
        self._reported = faults
        if holder.unused != self._unused:
            for key in holder.unused:
                known = key in WITHOUT_EFFECT
                why = "it has no effect here" if known else "this key is unknown"
                self.log.warning("setting not used", key=key, reason=why)
            self._unused = holder.unused
        self.log.info("settings in use", refused=sorted(item.key for item in faults))

    def again(self, holder: SettingsHolder) -> None:
        """Emit events for the current faults again, because only the leader's are stored."""
        for fault in holder.faults:
            self._emit(holder.namespace, fault)

    def _emit(self, namespace: str, fault: Fault) -> None:
        if self.events is None:
            return
        self.events.emit(
            Event(
                regarding={
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "namespace": namespace,
                    "name": self.name,
                },
                severity="Warning",
                reason="SettingRefused",
                action="None",
                note=_text(fault),
            )
        )


def _text(fault: Fault) -> str:
    return f"data.{fault.key}: {fault.message}; until then the previous value applies"
