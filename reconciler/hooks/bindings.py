"""What a hook is bound to, with every default in its place."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from reconciler.api.meta import Object
from reconciler.engine.match.selectors import LabelSelector

MAIN_QUEUE: Final = "main"
ADDED: Final = "Added"
MODIFIED: Final = "Modified"
DELETED: Final = "Deleted"
EVENTS: Final = (ADDED, MODIFIED, DELETED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleBinding:
    """A hook that runs when a crontab is due.

    Attributes:
        snapshots: Names of the monitors whose objects a run is given.
    """

    name: str
    crontab: str
    allow_failure: bool
    snapshots: tuple[str, ...]
    queue: str
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldTest:
    """A field of an object that has to have a value, or has not to.

    Attributes:
        operator: As its author wrote it: one of ``=``, ``==``, ``Equals``, ``!=``, ``NotEquals``.
    """

    field: str
    operator: str
    value: str

    def holds(self, obj: Object) -> bool:
        """Return whether it does for an object; a field that is missing is an empty text."""
        value: Any = obj
        for name in self.field.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        return (("" if value is None else str(value)) == self.value) is self._equal

    @property
    def _equal(self) -> bool:
        return self.operator not in {"!=", "NotEquals"}

    @property
    def server(self) -> str:
        """Return it as the API server reads it, with what it would take for syntax escaped."""
        sign = "=" if self._equal else "!="
        escaped = self.value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
        return f"{self.field}{sign}{escaped}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectSelection:
    """Which objects of its kind a monitor follows.

    Attributes:
        names: None where any name will do; none at all is the same.
        labels: None where any labels will do.
        fields: All of them must hold, as the API server says; None where there are none.
        namespaces: None where their names do not matter.
        namespace_labels: None where the labels of the namespace do not matter.
    """

    names: tuple[str, ...] | None = None
    labels: LabelSelector | None = None
    fields: tuple[FieldTest, ...] | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_labels: LabelSelector | None = None

    def accepts(self, obj: Object, namespace_labels: Mapping[str, str]) -> bool:
        """Return whether an object is one of them.

        Args:
            obj: Of the kind.
            namespace_labels: Of its namespace; none for a cluster-wide object.
        """
        meta = obj.get("metadata") or {}
        return (
            (not self.names or meta.get("name") in self.names)
            and (not self.namespaces or meta.get("namespace", "") in self.namespaces)
            and (self.labels is None or self.labels.accepts(meta.get("labels") or {}))
            and all(test.holds(obj) for test in self.fields or ())
            and (self.namespace_labels is None or self.namespace_labels.accepts(namespace_labels))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesBinding:
    """A hook that runs when objects change.

    Attributes:
        api_version: Empty for the preferred version of whatever the kind names.
        kind: A kind, a plural or a short name, in any case.
        events: Of `EVENTS`; none: its objects are for snapshots only.
        jq_filter: Empty for none; else a change counts where the result changed.
        keep_full_objects: Off where contexts and snapshots have results only.
        snapshots: Names of the monitors whose objects a run is given.
    """

    name: str
    api_version: str
    kind: str
    selection: ObjectSelection
    events: tuple[str, ...]
    on_synchronization: bool
    wait_for_synchronization: bool
    keep_full_objects: bool
    jq_filter: str
    allow_failure: bool
    snapshots: tuple[str, ...]
    queue: str
    group: str

    @property
    def watched(self) -> str:
        """Return a text of what it follows and shows, the same wherever it was compiled."""
        chosen = self.selection
        labels = [
            "" if selector is None else selector.server
            for selector in (chosen.labels, chosen.namespace_labels)
        ]
        fields = [test.server for test in chosen.fields or ()]
        names = (self.api_version, self.kind, chosen.names, chosen.namespaces)
        return repr((names, labels, fields, self.jq_filter, self.keep_full_objects))


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionBinding:
    """A hook that is asked before an object is stored.

    Attributes:
        rules: As a webhook configuration of the API has them.
        conditions: The same, its ``matchConditions``.
        timeout: Seconds.
    """

    name: str
    rules: tuple[Mapping[str, Any], ...]
    conditions: tuple[Mapping[str, Any], ...]
    object_labels: LabelSelector | None
    namespace_labels: LabelSelector | None
    failure_policy: str
    side_effects: str
    timeout: int
    snapshots: tuple[str, ...]
    group: str

    @property
    def key(self) -> str:
        """Return what no other binding of its hook is called."""
        return f"admission {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionBinding:
    """A hook that converts objects of a CustomResourceDefinition from version to version."""

    name: str
    crd: str
    conversions: tuple[tuple[str, str], ...]
    snapshots: tuple[str, ...]
    group: str

    @property
    def key(self) -> str:
        """Return what no other binding of its hook is called."""
        return f"conversion {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often a hook may run: so many seconds for each run, and a few at once."""

    interval: float
    burst: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HookConfig:
    """All bindings of a hook.

    Attributes:
        startup: Its place among the hooks that run at the start, None where it does not.
        pace: None where it may run as often as it likes.
    """

    startup: int | None = None
    pace: Pace | None = None
    schedules: tuple[ScheduleBinding, ...] = ()
    kubernetes: tuple[KubernetesBinding, ...] = ()
    validating: tuple[AdmissionBinding, ...] = ()
    mutating: tuple[AdmissionBinding, ...] = ()
    conversions: tuple[ConversionBinding, ...] = ()

    @property
    def recorded(self) -> tuple[KubernetesBinding | ScheduleBinding, ...]:
        """Return the bindings whose runs wait in queues."""
        return (*self.kubernetes, *self.schedules)

    @property
    def programs(self) -> tuple[tuple[str, str], ...]:
        """Return the jq programs of bindings, each after its place."""
        return tuple(
            (f"kubernetes[{index}].jqFilter", binding.jq_filter)
            for index, binding in enumerate(self.kubernetes)
            if binding.jq_filter
        )

    @property
    def answered(self) -> tuple[AdmissionBinding | ConversionBinding, ...]:
        """Return the bindings that the API server waits for."""
        return (*self.validating, *self.mutating, *self.conversions)
