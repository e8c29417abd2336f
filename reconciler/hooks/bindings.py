"""The bindings of a hook, with every default set."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from reconciler.api.meta import Object
from reconciler.engine.match.selectors import LabelSelector
from reconciler.requests.pace import Pace

MAIN_QUEUE: Final = "main"
ADDED: Final = "Added"
MODIFIED: Final = "Modified"
DELETED: Final = "Deleted"
EVENTS: Final = (ADDED, MODIFIED, DELETED)
SECRETS: Final = frozenset({"secret", "secrets"})
"""Names of the kind Secret, in lower case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleBinding:
    """A binding whose hook runs when a crontab is due.

    Attributes:
        snapshots: Names of the Kubernetes bindings whose objects a run receives.
    """

    name: str
    crontab: str
    allow_failure: bool
    snapshots: tuple[str, ...]
    queue: str
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldTest:
    """A field of an object that must have a value, or must not have it.

    Attributes:
        operator: As its author wrote it: one of ``=``, ``==``, ``Equals``, ``!=``, ``NotEquals``.
    """

    field: str
    operator: str
    value: str

    def holds(self, obj: Object) -> bool:
        """Return whether the test holds for an object; a missing field counts as an empty text."""
        value: Any = obj
        for name in self.field.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        return (("" if value is None else str(value)) == self.value) is self._equal

    @property
    def _equal(self) -> bool:
        return self.operator not in {"!=", "NotEquals"}

    @property
    def server(self) -> str:
        """Return the test as a field selector of the API, with syntax characters escaped."""
        sign = "=" if self._equal else "!="
        escaped = self.value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
        return f"{self.field}{sign}{escaped}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectSelection:
    """The objects of its kind that a binding selects.

    Attributes:
        names: None or empty for any name.
        labels: None for any labels.
        fields: Tests that must all hold, as in the API server; None without tests.
        namespaces: None for any namespace.
        namespace_labels: Selects by the labels of the namespace; None for any.
    """

    names: tuple[str, ...] | None = None
    labels: LabelSelector | None = None
    fields: tuple[FieldTest, ...] | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_labels: LabelSelector | None = None

    def accepts(self, obj: Object, namespace_labels: Mapping[str, str]) -> bool:
        """Return whether the selection includes an object.

        Args:
            obj: An object of the binding's kind.
            namespace_labels: Labels of its namespace; empty for a cluster-scoped object.
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
    """A binding whose hook runs when objects change.

    Attributes:
        api_version: Empty for the preferred version of the kind.
        kind: A kind, a plural or a short name, in any case.
        events: A subset of `EVENTS`; empty if the objects are for snapshots only.
        jq_filter: Empty for none; otherwise only a change of its result counts as a change.
        keep_full_objects: False if contexts and snapshots only have results of the filter.
        snapshots: Names of the Kubernetes bindings whose objects a run receives.
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
        """Return a text of what it watches and shows, which is stable across processes."""
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
    """A binding whose hook is called before an object is stored.

    Attributes:
        rules: As in a webhook configuration of the API.
        conditions: The ``matchConditions`` of a webhook configuration.
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
        """Return a key that is unique among the bindings of its hook."""
        return f"admission {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionBinding:
    """A binding whose hook converts objects of a CustomResourceDefinition between versions."""

    name: str
    crd: str
    conversions: tuple[tuple[str, str], ...]
    snapshots: tuple[str, ...]
    group: str

    @property
    def key(self) -> str:
        """Return a key that is unique among the bindings of its hook."""
        return f"conversion {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookConfig:
    """All bindings of a hook.

    Attributes:
        startup: Position among the hooks that run at the start; None if it does not.
        pace: None for no rate limit.
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
        """Return the bindings whose events are recorded as requests in queues."""
        return (*self.kubernetes, *self.schedules)

    @property
    def shows_secrets(self) -> bool:
        """Return whether a run may read Secrets as the objects of a binding."""
        return any(binding.kind.lower() in SECRETS for binding in self.kubernetes)

    @property
    def programs(self) -> tuple[tuple[str, str], ...]:
        """Return the jq programs of bindings, each after its location."""
        return tuple(
            (f"kubernetes[{index}].jqFilter", binding.jq_filter)
            for index, binding in enumerate(self.kubernetes)
            if binding.jq_filter
        )

    @property
    def answered(self) -> tuple[AdmissionBinding | ConversionBinding, ...]:
        """Return the bindings that answer calls of the API server."""
        return (*self.validating, *self.mutating, *self.conversions)
