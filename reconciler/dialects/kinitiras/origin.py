"""Typed edits, each of one field: ``overriders.origin``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from reconciler.dialects.kinitiras.affinity import read_affinity, read_spread
from reconciler.dialects.kinitiras.resources import read_ratio, read_resources, scaled
from reconciler.dialects.kinitiras.texts import ABSENT, Path, read_texts
from reconciler.dialects.kinitiras.tolerations import merged_tolerations, read_tolerations
from reconciler.dialects.kinitiras.workloads import container_path, pod_path
from reconciler.engine import reading
from reconciler.engine.patch.rfc6902 import Operation
from reconciler.errors import InvalidPolicy

_Reader = Callable[[Any, str], Any]

OPERATIONS: Final = ("add", "replace", "remove")
_COMMON: Final = ("type", "operation", "replace", "containerCount")
_MAPS: Final = frozenset({"annotations", "labels", "nodeSelector"})
_RESOURCES: Final = frozenset({"resourceRequirements", "resourceOversell"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginEdit:
    """The edit of one field.

    Attributes:
        type: As ``labels``.
        whole: The current value is replaced, not merged.
        container: The index of the container whose resources are edited.
        value: The value in the policy.
    """

    type: str
    operation: str
    whole: bool
    container: int
    value: Any

    def patch(self, obj: Mapping[str, Any]) -> Operation:
        """Return the operation for an object.

        Raises:
            EvaluationError: The object has no Pod, or no such container.
        """
        path = self._path(obj)
        current = Path(path).look_up(obj)
        _, changed = _TYPES[self.type]
        value = changed(self, None if current is ABSENT else current)
        return Operation(name="replace", path=path, value=value)

    def _path(self, obj: Mapping[str, Any]) -> tuple[str, ...]:
        if self.type in {"annotations", "labels"}:
            return ("metadata", self.type)
        if self.type in _RESOURCES:
            return (*container_path(obj, self.container), "resources")
        return (*pod_path(obj), self.type)


def _map(edit: OriginEdit, current: Any) -> Any:
    if edit.whole:
        return edit.value
    if not isinstance(current, Mapping):
        return None if edit.operation == "remove" else edit.value
    given = edit.value or {}
    if edit.operation == "remove":
        return {key: value for key, value in current.items() if key not in given}
    return {**current, **given}


def _tolerations(edit: OriginEdit, current: Any) -> Any:
    if edit.whole:
        return edit.value
    removes, items = edit.operation == "remove", current if isinstance(current, list) else []
    return merged_tolerations(items, edit.value or [], removes=removes) or None


def _exactly(edit: OriginEdit, _current: Any) -> Any:
    return edit.value


def _oversold(edit: OriginEdit, current: Any) -> Any:
    resources = current if isinstance(current, Mapping) else {}
    return {
        **resources,
        **{
            part: {**amounts, **scaled(amounts, edit.value.get(part) or {})}
            for part in ("requests", "limits")
            if isinstance(amounts := resources.get(part), Mapping)
        },
    }


def read_origin(raw: Any, location: str) -> tuple[OriginEdit, ...]:
    """Read the list of edits.

    Raises:
        InvalidPolicy: Edits are invalid; it holds all errors with their locations.
    """
    edits = reading.each(_read, raw, location)
    claimed: dict[int, str] = {}
    for index, edit in enumerate(edits):
        if edit.type not in _RESOURCES or not edit.value:
            continue
        if claimed.setdefault(edit.container, edit.type) != edit.type:
            reason = f"container {edit.container} has resources and an oversell; choose one"
            raise InvalidPolicy(f"{location}[{index}].containerCount", reason)
    return edits


def _read(raw: Any, location: str) -> OriginEdit:
    fields = reading.mapping(raw, location, allowed=(*_COMMON, *_FIELDS.values()))
    type_ = fields.get("type")
    if not isinstance(type_, str) or type_ not in _TYPES:
        raise InvalidPolicy(f"{location}.type", f"expected one of {', '.join(_TYPES)}")
    field, (read, _) = _FIELDS[type_], _TYPES[type_]
    operation = fields.get("operation", "add" if type_ in _MAPS else "replace")
    if operation not in OPERATIONS:
        raise InvalidPolicy(f"{location}.operation", f"expected one of {', '.join(OPERATIONS)}")
    if operation != "replace" and type_ not in _MAPS | {"tolerations"}:
        raise InvalidPolicy(f"{location}.operation", f"{type_} can only be replaced")
    container = fields.get("containerCount", 0)
    if not isinstance(container, int) or isinstance(container, bool) or container < 0:
        raise InvalidPolicy(f"{location}.containerCount", "expected the index of a container")
    return OriginEdit(
        type=type_,
        operation=str(operation),
        whole=_true(fields.get("replace"), f"{location}.replace"),
        container=container,
        value=read(fields.get(field), f"{location}.{field}"),
    )


def _given(read: _Reader) -> _Reader:
    """Return a reader that keeps null, which stands for no value."""
    return lambda raw, location: None if raw is None else read(raw, location)


def _name(raw: Any, location: str) -> str:
    return "" if raw is None else str(_checked(raw, str, location, "a string"))


def _true(raw: Any, location: str) -> bool:
    # JSON written by Go programs omits false and empty values.
    return raw is not None and _checked(raw, bool, location, "true or false")


def _checked(raw: Any, wanted: type, location: str, name: str) -> Any:
    if not isinstance(raw, wanted):
        raise InvalidPolicy(location, f"expected {name}")
    return raw


def _factors(raw: Any, location: str) -> dict[str, dict[str, float]]:
    parts = reading.mapping(raw, location, allowed=("requests", "limits", "request", "limit"))
    return {
        name if name.endswith("s") else f"{name}s": {
            resource: read_ratio(factor, f"{location}.{name}.{resource}")
            for resource, factor in reading.object_at(amounts, f"{location}.{name}").items()
        }
        for name, amounts in parts.items()
    }


_TYPES: Final[Mapping[str, tuple[_Reader, Callable[[OriginEdit, Any], Any]]]] = MappingProxyType(
    {
        "annotations": (_given(read_texts), _map),
        "labels": (_given(read_texts), _map),
        "nodeSelector": (_given(read_texts), _map),
        "hostNetwork": (_true, _exactly),
        "schedulerName": (_name, _exactly),
        "resourceRequirements": (read_resources, _exactly),
        "resourceOversell": (_factors, _oversold),
        "affinity": (_given(read_affinity), _exactly),
        "tolerations": (_given(read_tolerations), _tolerations),
        "topologySpreadConstraints": (_given(read_spread), _exactly),
    }
)
"""The types of edits: how the value is read, and what it makes of the current one."""
_FIELDS: Final = {name: name for name in _TYPES} | {"resourceOversell": "resourcesOversell"}
"""The fields that hold the values, by type."""
