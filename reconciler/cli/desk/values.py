"""Values of variables that replace the data of a cluster in offline evaluation."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from reconciler.api.meta import Object, split_api_version
from reconciler.cli.desk.fields import read_fields, read_text
from reconciler.cli.desk.files import checked
from reconciler.cli.desk.operations import OPERATIONS
from reconciler.dialects.kyverno.autogen import MAX_NAME, PREFIXES
from reconciler.engine import reading
from reconciler.engine.given import Given
from reconciler.engine.match import UserInfo
from reconciler.errors import InvalidPolicy, InvalidSetting

API_GROUP: Final = "cli.kyverno.io"

_FIELDS = (
    "globalValues",
    "policies",
    "namespaceSelector",
    "namespaces",
    "subresources",
    # For policies in CEL.
    "variables",
)
_HEAD = ("apiVersion", "kind", "metadata")
_POLICY_FIELDS = ("name", "resources", "targetResources", "rules")
_OBJECT_FIELDS = ("name", "namespace", "kind", "values")
_KIND_FIELDS = (
    *("name", "kind", "group", "version", "namespaced", "singularName", "verbs"),
    *("shortNames", "categories", "storageVersionHash"),
)
_FIXED = ("target", "element", "elementIndex")
_Item = TypeVar("_Item")

RequestKind = tuple[str, str, str, str]
"""Group, version, kind and subresource."""

Values = Mapping[str, Any]
"""Values by dotted path, such as ``request.operation`` or ``settings.data."a.b"``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectValues:
    """Values for one object; an empty namespace or kind matches any."""

    name: str
    namespace: str
    kind: str
    values: Values

    def concerns(self, obj: Mapping[str, Any]) -> bool:
        """Return whether the values apply to an object."""
        meta = obj.get("metadata") or {}
        return (
            self.name == (meta.get("name") or meta.get("generateName"))
            and self.namespace in ("", meta.get("namespace"))
            and self.kind in ("", obj.get("kind"))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyValues:
    """Values for one policy, by triggers, targets and rules.

    Attributes:
        elements: Values for the elements of a foreach, by rule.
    """

    triggers: tuple[ObjectValues, ...] = ()
    targets: tuple[ObjectValues, ...] = ()
    rules: Mapping[str, Values] = field(default_factory=dict)
    elements: Mapping[str, Mapping[str, tuple[Any, ...]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskValues:
    """All values, in rising precedence: global, per object, of the command line, per rule.

    Attributes:
        fixed: Values of the command line.
        namespace_labels: Labels by the name of the namespace.
        subresources: What requests with an object of a kind are for, where it is a subresource.
    """

    general: Values = field(default_factory=dict)
    fixed: Values = field(default_factory=dict)
    policies: Mapping[str, PolicyValues] = field(default_factory=dict)
    namespace_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    namespaces: tuple[Object, ...] = ()
    subresources: Mapping[tuple[str, str, str], RequestKind] = field(default_factory=dict)

    def request_kind(self, obj: Mapping[str, Any]) -> RequestKind:
        """Return what the request with an object is for."""
        own = (*split_api_version(obj["apiVersion"]), obj["kind"])
        return self.subresources.get(own, (*own, ""))

    def of_trigger(self, policy: str, rule: str, obj: Mapping[str, Any]) -> Values:
        """Return the values for a rule and its trigger, without those of `with_fields`."""
        known = self.policies.get(policy, _NONE)
        found = {
            path: value for path, value in self._given(known, obj).items() if not _is_field(path)
        }
        return {**found, **known.rules.get(rule, {})}

    def with_fields(self, policy: str, obj: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a trigger with the values for its fields, as the rules of a policy see it.

        Values of a rule do not count: only its expressions see them.
        """
        given = self._given(self.policies.get(policy, _NONE), obj)
        fields = {path: value for path, value in given.items() if _is_field(path)}
        if not fields:
            return obj
        placed = place_values({"request": {"object": obj}}, fields)
        changed: Mapping[str, Any] = placed["request"]["object"]
        return changed

    def _given(self, known: PolicyValues, obj: Mapping[str, Any]) -> Values:
        if not (known.triggers or self.fixed):
            return self.general
        found: dict[str, Any] = dict(self.general)
        for item in known.triggers:
            if item.concerns(obj):
                found |= item.values
        return {**found, **self.fixed}

    def of_target(self, policy: str, obj: Mapping[str, Any]) -> Values:
        """Return the values for a target, which add to those for its trigger."""
        found: dict[str, Any] = {}
        for item in self.policies.get(policy, _NONE).targets:
            if item.concerns(obj):
                found |= item.values
        return found

    def given(self, policy: str, rules: Iterable[str]) -> Mapping[str, Given]:
        """Return the names and elements that values give in place of context entries, by rule."""
        known = self.policies.get(policy, _NONE)
        common = [self.general, self.fixed]
        common += [item.values for item in (*known.triggers, *known.targets)]
        shared = frozenset(split_path(path)[0] for values in common for path in values)
        return {
            name: Given(
                names=frozenset(
                    shared | {split_path(path)[0] for path in known.rules.get(rule, {})}
                ),
                elements=known.elements.get(rule, {}),
            )
            for rule in rules
            for name in copies_of(rule)
        }


_NONE = PolicyValues()


def split_path(text: str) -> tuple[str, ...]:
    """Return the steps of a dotted path; a step in double quotes may contain dots."""
    steps: list[str] = []
    for index, part in enumerate(text.split('"')):
        steps += [part] if index % 2 else [step for step in part.split(".") if step]
    return tuple(steps) or (text,)


def place_values(data: dict[str, Any], values: Values) -> dict[str, Any]:
    """Return a copy of the data with each value set at its path; maps are merged."""
    for path, value in values.items():
        data = _placed(data, split_path(path), value)
    return data


def read_values(raw: Any, location: str, *, head: bool = True) -> DeskValues:
    """Read a Values document.

    Args:
        location: The place of the document, for messages.
        head: Whether it is a separate file, with apiVersion and kind.

    Raises:
        InvalidSetting: A field is unknown or has the wrong type.
    """
    try:
        if head:
            check_head(raw, location, ("Values", "Value"))
        return _values(raw, location, (*_HEAD, *_FIELDS) if head else _FIELDS)
    except InvalidPolicy as error:
        raise InvalidSetting(str(error)) from error


def read_user(raw: Any, location: str) -> tuple[UserInfo, dict[str, Any]]:
    """Return the sender of the requests, and the ``userInfo`` that expressions see.

    Raises:
        InvalidSetting: The document is not a valid UserInfo.
    """
    try:
        check_head(raw, location, ("UserInfo",))
        fields = read_fields(raw, location, allowed=(*_HEAD, "roles", "clusterRoles", "userInfo"))
        info = read_fields(
            fields.get("userInfo"),
            f"{location}: userInfo",
            allowed=("username", "uid", "groups", "extra"),
        )
        read_text(info, "uid", f"{location}: userInfo")
        user = UserInfo(
            username=read_text(info, "username", f"{location}: userInfo"),
            groups=reading.strings(info.get("groups"), f"{location}: userInfo.groups"),
            roles=reading.strings(fields.get("roles"), f"{location}: roles"),
            cluster_roles=reading.strings(fields.get("clusterRoles"), f"{location}: clusterRoles"),
        )
    except InvalidPolicy as error:
        raise InvalidSetting(str(error)) from error
    return user, dict(info)


def read_settings(pairs: Sequence[str]) -> dict[str, str]:
    """Return the values of ``--set``: pairs ``path=value``, separated by commas.

    Raises:
        InvalidSetting: A pair has no ``=``, or sets the trigger itself.
    """
    found: dict[str, str] = {}
    for pair in (part for text in pairs for part in text.split(",")):
        path, sign, value = pair.partition("=")
        if not sign or not path:
            raise InvalidSetting(f"--set {pair}: write it as path=value")
        if _is_field(path):
            raise InvalidSetting(f"--set {pair}: the trigger is given with --resource")
        _check_operation(path, value, f"--set {path}")
        found[path] = value
    return found


def check_head(raw: Any, location: str, kinds: Sequence[str]) -> None:
    """Reject a document of another kind.

    Raises:
        InvalidSetting: Its apiVersion or kind is not the expected one.
    """
    api_version = raw.get("apiVersion") if isinstance(raw, Mapping) else None
    kind = raw.get("kind") if isinstance(raw, Mapping) else None
    if not str(api_version or "").startswith(f"{API_GROUP}/") or kind not in kinds:
        raise InvalidSetting(
            f"{location}: expected apiVersion {API_GROUP}/v1alpha1 and kind {kinds[0]},"
            f" found {api_version or 'none'} and {kind or 'none'}"
        )


def _values(raw: Any, location: str, allowed: Sequence[str]) -> DeskValues:
    fields = read_fields(raw, location, allowed=allowed)

    def listed(read: Callable[[Any, str], _Item], name: str) -> tuple[_Item, ...]:
        return reading.each(read, fields.get(name), f"{location}: {name}")

    general = _pairs(fields.get("globalValues"), f"{location}: globalValues")
    for path, value in general.items():
        _check_operation(path, value, f"{location}: globalValues.{path}")
    return DeskValues(
        general=general,
        policies=dict(listed(_of_policy, "policies")),
        namespace_labels=dict(listed(_labels, "namespaceSelector")),
        namespaces=listed(checked, "namespaces"),
        subresources=dict(listed(_subresource, "subresources")),
    )


def _of_policy(raw: Any, location: str) -> tuple[str, PolicyValues]:
    fields = read_fields(raw, location, allowed=_POLICY_FIELDS)
    name = reading.string(fields.get("name"), f"{location}.name").rpartition("/")[2]
    triggers, targets = (
        reading.each(_of_object, fields.get(part), f"{location}.{part}")
        for part in ("resources", "targetResources")
    )
    rules = reading.each(_of_rule, fields.get("rules"), f"{location}.rules")
    return name, PolicyValues(
        triggers=triggers,
        targets=targets,
        rules={copy: values for rule, values, _ in rules for copy in copies_of(rule)},
        elements={copy: each for rule, _, each in rules for copy in copies_of(rule)},
    )


def _subresource(raw: Any, location: str) -> tuple[tuple[str, str, str], RequestKind]:
    given = read_fields(raw, location, allowed=("subresource", "parentResource"))
    own, written = _kind(given, "subresource", location)
    subresource = written.rpartition("/")[2]
    if subresource == written:
        raise InvalidSetting(f"{location}.subresource.name: expected RESOURCE/SUBRESOURCE")
    parent, _ = _kind(given, "parentResource", location)
    return own, (*parent, subresource)


def _kind(fields: Values, name: str, location: str) -> tuple[tuple[str, str, str], str]:
    """Return group, version and kind, and the name of the resource."""
    place = f"{location}.{name}"
    given = read_fields(fields.get(name), place, allowed=_KIND_FIELDS)
    version, kind, resource = (
        reading.string(given.get(key), f"{place}.{key}") for key in ("version", "kind", "name")
    )
    return (read_text(given, "group", place), version, kind), resource


def _of_object(raw: Any, location: str) -> ObjectValues:
    fields = read_fields(raw, location, allowed=_OBJECT_FIELDS)
    return ObjectValues(
        name=reading.string(fields.get("name"), f"{location}.name"),
        namespace=read_text(fields, "namespace", location),
        kind=read_text(fields, "kind", location),
        values=_pairs(fields.get("values"), f"{location}.values"),
    )


def _of_rule(raw: Any, location: str) -> tuple[str, Values, Mapping[str, tuple[Any, ...]]]:
    """Return the name of a rule, its values, and those for the elements of its foreach."""
    fields = read_fields(raw, location, allowed=("name", "values", "foreachValues"))
    name = reading.string(fields.get("name"), f"{location}.name")
    values = _pairs(fields.get("values"), f"{location}.values")
    each = _of_elements(fields.get("foreachValues"), f"{location}.foreachValues", values)
    return name, values, each


def _of_elements(raw: Any, location: str, common: Values) -> Mapping[str, tuple[Any, ...]]:
    lists: dict[str, dict[str, list[Any]]] = {}
    for path, values in _pairs(raw, location).items():
        if not isinstance(values, list):
            raise InvalidSetting(f"{location}.{path}: expected a list, a value for each element")
        lists.setdefault(split_path(path)[0], {})[path] = values
    found: dict[str, tuple[Any, ...]] = {}
    for name, given in lists.items():
        counts = {len(values) for values in given.values()}
        if len(counts) > 1:
            raise InvalidSetting(f"{location}.{name}: its lists differ in length")
        shared = {path: value for path, value in common.items() if split_path(path)[0] == name}
        each = (
            shared | {path: values[index] for path, values in given.items()}
            for index in range(counts.pop())
        )
        found[name] = tuple(place_values({}, values)[name] for values in each)
    return found


def copies_of(rule: str) -> list[str]:
    """Return the names of a rule and of the rules that autogen derives from it."""
    return [f"{prefix}{rule}"[:MAX_NAME] for prefix in ("", *PREFIXES)]


def _labels(raw: Any, location: str) -> tuple[str, Mapping[str, str]]:
    fields = read_fields(raw, location, allowed=("name", "labels"))
    name = reading.string(fields.get("name"), f"{location}.name")
    return name, reading.string_map(fields.get("labels"), f"{location}.labels")


def _pairs(raw: Any, location: str) -> dict[str, Any]:
    if raw is None:
        return {}
    if not isinstance(raw, Mapping):
        raise InvalidSetting(f"{location}: expected an object of paths and values")
    for path in raw:
        if split_path(path)[0] in _FIXED:
            raise InvalidSetting(f"{location}.{path}: it comes from the objects, not from values")
    return dict(raw)


def _check_operation(path: str, value: Any, location: str) -> None:
    if split_path(path) == ("request", "operation") and value not in ("", *OPERATIONS):
        known = ", ".join(OPERATIONS)
        raise InvalidSetting(f"{location}: expected one of {known}, found {value!r}")


def _is_field(path: str) -> bool:
    return split_path(path)[:2] == ("request", "object")


def _placed(data: Any, steps: tuple[str, ...], value: Any) -> Any:
    if not steps:
        return _merged(data, value)
    known = dict(data) if isinstance(data, Mapping) else {}
    return {**known, steps[0]: _placed(known.get(steps[0]), steps[1:], value)}


def _merged(data: Any, value: Any) -> Any:
    if not isinstance(data, Mapping) or not isinstance(value, Mapping):
        return value
    return {**data, **{name: _merged(data.get(name), item) for name, item in value.items()}}
