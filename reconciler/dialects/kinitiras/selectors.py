"""The selection of objects by kind, namespace, name, labels and fields."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from reconciler.api.meta import split_api_version
from reconciler.dialects.kinitiras.texts import ABSENT, read_kind, read_text
from reconciler.engine import reading
from reconciler.engine.match import KindSelector
from reconciler.engine.match.selectors import LabelRequirement, LabelSelector, compile_selector
from reconciler.engine.values import wildcard
from reconciler.errors import InvalidPolicy

_FIELDS: Final = ("apiVersion", "kind", "namespace", "name", "labelSelector", "fieldSelector")
_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
_WITH_VALUES: Final = frozenset({"In", "NotIn"})
_ANNOTATIONS: Final = ".annotations."
CONNECTED: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "PodExecOptions": ("Pod", "exec"),
        "PodAttachOptions": ("Pod", "attach"),
        "PodPortForwardOptions": ("Pod", "portforward"),
        "PodProxyOptions": ("Pod", "proxy"),
        "ServiceProxyOptions": ("Service", "proxy"),
        "NodeProxyOptions": ("Node", "proxy"),
    }
)
"""By the kind of the object in a CONNECT request: the kind and subresource of the request."""


class _NotText(Exception):
    """A field has a value that is not a string."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement on one field."""

    path: tuple[str, ...]
    operator: str
    values: frozenset[str]

    def holds(self, obj: Mapping[str, Any]) -> bool:
        """Return whether the field meets it; a value that is not a string never does."""
        try:
            value = self._value(obj)
        except _NotText:
            return False
        match self.operator:
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "In":
                return value in self.values
            case _:
                return (value or "") not in self.values

    def _value(self, obj: Any) -> str | None:
        for step in self.path:
            if obj is None:
                return None
            if not isinstance(obj, Mapping):
                raise _NotText
            obj = obj.get(step, ABSENT)
            if obj is ABSENT:
                return None
        if not isinstance(obj, str):
            raise _NotText
        return obj


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """A selector of objects of one kind."""

    api_version: str
    kind: str
    namespace: str
    name: str
    labels: LabelSelector | None
    fields: tuple[Requirement, ...]

    def matches(self, obj: Mapping[str, Any], *, name: str, namespace: str) -> bool:
        """Return whether an object is selected; with a name, labels and fields do not count."""
        if (obj.get("apiVersion"), obj.get("kind")) != (self.api_version, self.kind):
            return False
        if self.namespace and namespace != self.namespace:
            return False
        if self.name:
            return name == self.name
        labels = (obj.get("metadata") or {}).get("labels") or {}
        fits = self.labels is None or self.labels.accepts(labels)
        return fits and all(each.holds(obj) for each in self.fields)

    @property
    def required_labels(self) -> tuple[LabelRequirement, ...]:
        """The labels that the API server can filter by; none for a selector with a name."""
        return () if self.name or self.labels is None else self.labels.requirements

    @property
    def kind_selector(self) -> KindSelector:
        """The kind in the form that webhooks and listings need."""
        group, version = split_api_version(self.api_version)
        kind, subresource = (self.kind, "") if group else CONNECTED.get(self.kind, (self.kind, ""))
        return KindSelector(group=group, version=version, kind=kind, subresource=subresource)


def read_selector(raw: Any, location: str) -> Selector:
    """Read a ResourceSelector.

    Raises:
        InvalidPolicy: The selector is invalid.
    """
    fields = reading.mapping(raw, location, allowed=_FIELDS)
    api_version, kind = read_kind(fields, location)
    return Selector(
        api_version=api_version,
        kind=kind,
        namespace=_text(fields, "namespace", location),
        name=_text(fields, "name", location),
        labels=_labels(fields.get("labelSelector"), f"{location}.labelSelector"),
        fields=_requirements(fields.get("fieldSelector"), f"{location}.fieldSelector"),
    )


def _text(fields: Mapping[str, Any], name: str, location: str) -> str:
    value = read_text(fields, name, location)
    return reading.string(value, f"{location}.{name}") if value else ""


def _labels(raw: Any, location: str) -> LabelSelector | None:
    """Read a label selector, without wildcards in keys and values; None selects everything."""
    labels = reading.mapping(raw, location, allowed=("matchLabels", "matchExpressions"))
    place = f"{location}.matchLabels"
    for key, value in reading.string_map(labels.get("matchLabels"), place).items():
        if wildcard.has_wildcard(key) or wildcard.has_wildcard(value):
            reason = "a label has no wildcards: write the key and value in full"
            raise InvalidPolicy(f"{place}.{key}", reason)
    expressions = labels.get("matchExpressions")
    is_given = labels.get("matchLabels") or reading.sequence(
        expressions, f"{location}.matchExpressions"
    )
    return compile_selector(raw, location=location) if is_given else None


def _requirements(raw: Any, location: str) -> tuple[Requirement, ...]:
    fields = reading.mapping(raw, location, allowed=("matchFields", "matchExpressions"))
    equal = reading.string_map(fields.get("matchFields"), f"{location}.matchFields")
    expressions, place = fields.get("matchExpressions"), f"{location}.matchExpressions"
    return (
        *(Requirement(_path(name), "In", frozenset({value})) for name, value in equal.items()),
        *reading.each(_requirement, expressions, place),
    )


def _requirement(raw: Any, location: str) -> Requirement:
    fields = reading.mapping(raw, location, allowed=("field", "operator", "value"))
    name = reading.string(fields.get("field"), f"{location}.field")
    operator = fields.get("operator")
    values = reading.strings(fields.get("value"), f"{location}.value")
    if operator not in _OPERATORS:
        raise InvalidPolicy(f"{location}.operator", f"expected one of {', '.join(_OPERATORS)}")
    if (operator in _WITH_VALUES) != bool(values):
        needed = "at least one value" if operator in _WITH_VALUES else "no values"
        raise InvalidPolicy(f"{location}.value", f"the operator {operator} takes {needed}")
    return Requirement(_path(name), str(operator), frozenset(values))


def _path(name: str) -> tuple[str, ...]:
    """Split a field name at dots, except in the key of an annotation."""
    before, found, key = name.partition(_ANNOTATIONS)
    return (*before.split("."), "annotations", key) if found else tuple(name.split("."))
