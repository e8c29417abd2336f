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

OPERATIONS: Final = ("add", "replace", "remove")
_COMMON: Final = ("type", "operation", "replace", "containerCount")
_TYPES: Final = (
    "annotations", "labels", "nodeSelector", "hostNetwork", "schedulerName",
    "resourceRequirements", "resourceOversell", "affinity", "tolerations",
    "topologySpreadConstraints",
)  # fmt: skip
_MAPS: Final = frozenset({"annotations", "labels", "nodeSelector"})
_RESOURCES: Final = frozenset({"resourceRequirements", "resourceOversell"})
_FIELDS: Final = tuple(
    "resourcesOversell" if name == "resourceOversell" else name for name in _TYPES
)
"""The fields that hold the values, named as their types except for ``resourcesOversell``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginEdit:
    """The edit of one field.

    Attributes:
        type: The type of the edit, as ``labels``.
        operation: ``add``, ``replace`` or ``remove``.
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
        value = _VALUES[self.type](self, None if current is ABSENT else current)
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


_VALUES: Final[Mapping[str, Callable[[OriginEdit, Any], Any]]] = MappingProxyType(
    {
        **dict.fromkeys(_MAPS, _map),
        "tolerations": _tolerations,
        "resourceOversell": _oversold,
        **dict.fromkeys(
            (
                "hostNetwork",
                "schedulerName",
                "resourceRequirements",
                "affinity",
                "topologySpreadConstraints",
            ),
            _exactly,
        ),
    }
)


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
    fields = reading.mapping(raw, location, allowed=(*_COMMON, *_FIELDS))
    type_ = fields.get("type")
    if type_ not in _TYPES:
        raise InvalidPolicy(f"{location}.type", f"expected one of {', '.join(_TYPES)}")
    field = _FIELDS[_TYPES.index(type_)]
    operation = fields.get("operation", "add" if type_ in _MAPS else "replace")
    if operation not in OPERATIONS:
        raise InvalidPolicy(f"{location}.operation", f"expected one of {', '.join(OPERATIONS)}")
    if operation != "replace" and type_ not in _MAPS | {"tolerations"}:
        raise InvalidPolicy(f"{location}.operation", f"{type_} can only be replaced")
    container = fields.get("containerCount", 0)
    if not isinstance(container, int) or isinstance(container, bool) or container < 0:
        raise InvalidPolicy(f"{location}.containerCount", "expected the index of a container")
    return OriginEdit(
        type=str(type_),
        operation=str(operation),
        whole=_true(fields.get("replace"), f"{location}.replace"),
        container=container,
        value=_value(fields.get(field), str(type_), f"{location}.{field}"),
    )


def _value(raw: Any, type_: str, location: str) -> Any:
    if type_ in _MAPS:
        return None if raw is None else read_texts(raw, location)
    if type_ == "tolerations":
        return None if raw is None else list(read_tolerations(raw, location))
    if type_ == "hostNetwork":
        return _true(raw, location)
    if type_ == "schedulerName":
        return "" if raw is None else _checked(raw, str, location, "a string")
    if type_ == "affinity":
        return None if raw is None else read_affinity(raw, location)
    if type_ == "topologySpreadConstraints":
        return read_spread(raw, location)
    if type_ == "resourceOversell":
        return _factors(raw, location)
    return read_resources(raw, location)


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
