"""Typed edits: ``overriders.template``.

The original compiles them to a CUE program that it stores in the policy; here they are applied
directly.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from reconciler.dialects.kinitiras.affinity import joined, read_affinity
from reconciler.dialects.kinitiras.resources import CPU, read_factor, read_resources, share
from reconciler.dialects.kinitiras.texts import ABSENT, Path, read_text
from reconciler.dialects.kinitiras.tolerations import (
    merged_tolerations,
    read_tolerations,
    replaced_tolerations,
)
from reconciler.dialects.kinitiras.values import Constant, Source, as_text, is_given, read_source
from reconciler.dialects.kinitiras.workloads import container_path, pod_path
from reconciler.engine import reading
from reconciler.engine.allowance import STEPS_OF_ELEMENT
from reconciler.engine.context import Context
from reconciler.engine.patch.rfc6902 import Operation
from reconciler.errors import EvaluationError, InvalidPolicy

_FIELDS: Final = (
    "type", "operation", "path", "value", "valueRef", "resources", "resourcesOversell",
    "tolerations", "affinity",
)  # fmt: skip
_OPERATIONS: Final = ("add", "replace", "remove")
_TYPES: Final = (
    "annotations", "labels", "resources", "resourcesOversell", "affinity", "tolerations",
)  # fmt: skip
_ENTRIES: Final = frozenset({"annotations", "labels"})
_FACTORS: Final[Mapping[str, str]] = MappingProxyType(
    {"cpuFactor": CPU, "memoryFactor": "memory", "diskFactor": "ephemeral-storage"}
)
_OVERSELL: Final = "resourcesOversell"


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateEdit:
    """One typed edit.

    Attributes:
        type: As ``labels``.
        key: Of the annotation or label; empty where a map gives several.
        source: Of the value of the annotation or label, or of the map.
        given: The resources, factors, tolerations or affinity.
    """

    type: str
    operation: str
    key: str = ""
    source: Source | None = None
    given: Any = None

    def operations(self, obj: Mapping[str, Any], context: Context) -> Iterator[Operation]:
        """Yield the operations for an object.

        Raises:
            EvaluationError: The object has no such part, or the value cannot be used.
        """
        return _EDITS[self.type](self, obj, context)


def _put(path: tuple[str, ...], value: Any) -> Operation:
    return Operation(name="replace", path=path, value=value)


def _drop(path: tuple[str, ...]) -> Operation:
    return Operation(name="remove", path=path)


def _entries(edit: TemplateEdit, obj: Mapping[str, Any], context: Context) -> Iterator[Operation]:
    place = ("metadata", edit.type)
    current = Path(place).look_up(obj)
    if edit.operation == "remove":
        if isinstance(current, Mapping) and edit.key in current:
            yield _drop((*place, edit.key))
        return
    value = edit.source.of(context) if edit.source else ABSENT
    if not is_given(value):
        return
    entries = value if isinstance(value, Mapping) and not edit.key else {edit.key: value}
    if not isinstance(current, Mapping):
        yield _put(place, {})
    for key, item in entries.items():
        text = as_text(item)
        if text is None:
            raise EvaluationError(f"the value of {edit.type} is not a single value")
        yield _put((*place, key), text)


def _parts(obj: Mapping[str, Any], place: tuple[str, ...], *names: str) -> Iterator[Operation]:
    """Yield the operations that create missing maps."""
    for name in ("", *names):
        path = (*place, name) if name else place
        if not isinstance(Path(path).look_up(obj), Mapping):
            yield _put(path, {})


def _resources(
    edit: TemplateEdit, obj: Mapping[str, Any], _context: Context
) -> Iterator[Operation]:
    place = (*container_path(obj, 0), "resources")
    if edit.operation != "remove":
        yield from _parts(obj, place, *edit.given)
    for part, amounts in edit.given.items():
        for name, amount in amounts.items():
            path = (*place, part, name)
            if edit.operation != "remove":
                yield _put(path, amount)
            elif Path(path).look_up(obj) is not ABSENT:
                yield _drop(path)


def _oversell(
    edit: TemplateEdit, obj: Mapping[str, Any], _context: Context
) -> Iterator[Operation]:
    place = (*container_path(obj, 0), "resources")
    shares: dict[str, str] = {}
    for name, factor in edit.given.items():
        limit = Path((*place, "limits", name)).look_up(obj)
        request = Path((*place, "requests", name)).look_up(obj)
        if edit.operation == "remove":
            if request is not ABSENT:
                yield _drop((*place, "requests", name))
        elif is_given(limit) and not (name == CPU and request == "0"):
            # A request of no CPU is taken as deliberate.
            shares[name] = share(name, limit, factor)
    if shares:
        yield from _parts(obj, place, "requests")
        for name, amount in shares.items():
            yield _put((*place, "requests", name), amount)


def _tolerations(
    edit: TemplateEdit, obj: Mapping[str, Any], context: Context
) -> Iterator[Operation]:
    path = (*pod_path(obj), "tolerations")
    current = Path(path).look_up(obj)
    items = current if isinstance(current, list) else []
    context.allowance.spend((len(items) + len(edit.given)) * STEPS_OF_ELEMENT)
    if edit.operation == "add" or not (items or edit.operation == "remove"):
        yield _put(path, merged_tolerations(items, edit.given, removes=False))
    elif items:
        yield _put(
            path, replaced_tolerations(items, edit.given, removes=edit.operation == "remove")
        )


def _affinity(edit: TemplateEdit, obj: Mapping[str, Any], context: Context) -> Iterator[Operation]:
    place = (*pod_path(obj), "affinity")
    if edit.operation != "remove":
        yield from _parts(obj, place, *edit.given)
    for kind, parts in edit.given.items():
        for name, wanted in parts.items():
            path = (*place, kind, name)
            current = Path(path).look_up(obj)
            if edit.operation == "add":
                yield _put(path, joined(current, wanted, context.allowance))
            elif edit.operation == "replace":
                yield _put(path, wanted)
            elif current is not ABSENT:
                yield _drop(path)


_EDITS: Final[
    Mapping[str, Callable[[TemplateEdit, Mapping[str, Any], Context], Iterator[Operation]]]
] = MappingProxyType(
    {
        **dict.fromkeys(_ENTRIES, _entries),
        "resources": _resources,
        "resourcesOversell": _oversell,
        "tolerations": _tolerations,
        "affinity": _affinity,
    }
)


def read_template(raw: Any, location: str, home: str) -> TemplateEdit:
    """Read a typed edit.

    Args:
        home: The namespace to which the policy is confined; empty where it is not.

    Raises:
        InvalidPolicy: The edit is invalid.
    """
    fields = reading.mapping(raw, location, allowed=_FIELDS)
    type_, operation = fields.get("type"), fields.get("operation")
    if type_ not in _TYPES:
        raise InvalidPolicy(f"{location}.type", f"expected one of {', '.join(_TYPES)}")
    if operation not in _OPERATIONS:
        raise InvalidPolicy(f"{location}.operation", f"expected one of {', '.join(_OPERATIONS)}")
    if type_ in _ENTRIES:
        return _read_entries(fields, type_, operation, location, home)
    raw, place = fields.get(type_), f"{location}.{type_}"
    if type_ == _OVERSELL:
        given = _read_oversell(raw, place, removes=operation == "remove")
    else:
        given = _READ[type_](raw, place)
    if not given:
        raise InvalidPolicy(place, "it is missing or empty")
    return TemplateEdit(type=type_, operation=operation, given=given)


def _read_entries(
    fields: Mapping[str, Any], type_: str, operation: str, location: str, home: str
) -> TemplateEdit:
    prefix = f"/metadata/{type_}/"
    key = read_text(fields, "path", location)
    key = key.removeprefix(prefix).removeprefix("/").replace("~1", "/").replace("~0", "~")
    source = read_source(fields, location, home)
    if isinstance(source, Constant) and isinstance(source.value, float):
        # The value keeps its text: 0.50 stays 0.50.
        source = Constant(str(fields["value"]["float"]))
    several = isinstance(source, Constant) and isinstance(source.value, dict)
    if isinstance(source, Constant) and isinstance(source.value, list):
        raise InvalidPolicy(f"{location}.value", "expected a single value, or stringMap")
    if not key and (operation == "remove" or not several):
        raise InvalidPolicy(f"{location}.path", "expected a key, as example.com/owner")
    if source is None and operation != "remove":
        raise InvalidPolicy(f"{location}.value", "expected a value or a valueRef")
    if several and operation != "remove":
        key = ""
    return TemplateEdit(type=type_, operation=operation, key=key, source=source)


def _read_oversell(raw: Any, location: str, *, removes: bool) -> dict[str, float]:
    fields = reading.mapping(raw, location, allowed=tuple(_FACTORS))
    return {
        _FACTORS[name]: 0.0 if removes else read_factor(value, f"{location}.{name}")
        for name, value in fields.items()
        if value not in (None, "")
    }


_READ: Final[Mapping[str, Callable[[Any, str], Any]]] = MappingProxyType(
    {
        "resources": read_resources,
        "tolerations": read_tolerations,
        "affinity": read_affinity,
    }
)
