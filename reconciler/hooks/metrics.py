"""Metrics that hooks report: their operations, the stored series, and the exposition.

A hook writes operations, one JSON object after the other. A series for each name and set of labels
is kept in memory until the program ends or its group is replaced.
"""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final

from reconciler.engine.reading import kind_of
from reconciler.errors import ErrorList, InvalidPolicy
from reconciler.hooks.values import json_values

_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL: Final = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_HOOK: Final = "hook"
_FIELDS: Final = ("name", "action", "value", "add", "set", "labels", "buckets", "group")
_MOST: Final = 1000
"""Maximum number of series of one hook."""
_LONGEST: Final = 1024
"""Maximum number of characters in the value of a label."""
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The default of Prometheus for an empty list of buckets."""
_ESCAPED: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Labels = tuple[tuple[str, str], ...]


class Action(StrEnum):
    """The action of an operation."""

    ADD = "add"
    SET = "set"
    OBSERVE = "observe"
    EXPIRE = "expire"


_TYPES: Final = {Action.ADD: "counter", Action.SET: "gauge", Action.OBSERVE: "histogram"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricOperation:
    """One operation on metrics.

    Attributes:
        name: Empty if a whole group expires.
        buckets: Rising upper bounds; for `Action.OBSERVE` only.
        group: Empty for none. A run that names a group replaces all series in it.
    """

    action: Action
    name: str = ""
    value: float = 0.0
    labels: Labels = ()
    buckets: tuple[float, ...] = ()
    group: str = ""


def parse_metrics(text: str) -> tuple[MetricOperation, ...]:
    """Parse all operations; none if the text is empty.

    Raises:
        InvalidPolicy: Some are invalid, so all are rejected; lists all locations.
    """
    found: list[MetricOperation] = []
    with ErrorList() as errors:
        for index, raw in enumerate(_documents(text)):
            operation = errors.attempt(_operation, raw, f"metrics[{index}]")
            if operation is not None:
                found.append(operation)
    return tuple(found)


def _documents(text: str) -> Iterator[Any]:
    count = 0
    try:
        for value in json_values(text, _FIELDS):
            yield value
            count += 1
    except (ValueError, RecursionError) as error:
        reason = "is not a complete JSON object: write one object for each operation"
        raise InvalidPolicy(f"metrics[{count}]", reason) from error


def _operation(raw: Any, location: str) -> MetricOperation:
    if not isinstance(raw, Mapping):
        raise InvalidPolicy(location, f"expected an object, got {kind_of(raw)}")
    action, value = _action(raw, location)
    name, group = _text(raw, "name", location), _text(raw, "group", location)
    with ErrorList() as errors:
        if group and action is Action.OBSERVE:
            errors.add(InvalidPolicy(f"{location}.group", "a histogram cannot be in a group"))
        if action is Action.EXPIRE:
            if not group:
                errors.add(InvalidPolicy(f"{location}.group", "is required: name what to expire"))
            return MetricOperation(action=action, group=group)
        if not _NAME.fullmatch(name):
            reason = f"{name!r:.80} is not a metric name: use letters, digits, _ and :"
            errors.add(InvalidPolicy(f"{location}.name", reason))
        number = errors.attempt(_number, value, f"{location}.value") or 0.0
        if action is Action.ADD and number < 0:
            reason = "a counter cannot decrease: use set, which makes a gauge"
            errors.add(InvalidPolicy(f"{location}.value", reason))
        labels = errors.attempt(_labels, raw.get("labels"), f"{location}.labels") or ()
        buckets: tuple[float, ...] = ()
        if action is Action.OBSERVE:
            place = f"{location}.buckets"
            buckets = errors.attempt(_buckets, raw.get("buckets"), place) or ()
    return MetricOperation(
        action=action, name=name, value=number, labels=labels, buckets=buckets, group=group
    )


def _action(raw: Mapping[str, Any], location: str) -> tuple[Action, Any]:
    """Return the action and its value; the short forms add and set hold both."""
    short = [action for action in (Action.ADD, Action.SET) if raw.get(action) is not None]
    if len(short) > 1:
        raise InvalidPolicy(f"{location}.set", "cannot be combined with add: write two operations")
    if short:
        return short[0], raw[short[0]]
    if raw.get("action") not in list(Action):
        known = ", ".join(Action)
        reason = f"{raw.get('action')!r:.80} is not known, use one of {known}"
        raise InvalidPolicy(f"{location}.action", reason)
    return Action(raw["action"]), raw.get("value")


def _text(raw: Mapping[str, Any], name: str, location: str) -> str:
    value = raw.get(name)
    if not isinstance(value, str | None):
        raise InvalidPolicy(f"{location}.{name}", f"expected a string, got {kind_of(value)}")
    return value or ""


def _number(value: Any, location: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidPolicy(location, f"expected a number, got {kind_of(value)}")
    if abs(value) > sys.float_info.max:
        raise InvalidPolicy(location, "is too large")
    return float(value)


def _labels(raw: Any, location: str) -> Labels:
    if raw is None:
        return ()
    if not isinstance(raw, Mapping):
        raise InvalidPolicy(location, f"expected an object, got {kind_of(raw)}")
    for name, value in raw.items():
        if not _LABEL.fullmatch(name):
            raise InvalidPolicy(location, f"{name!r:.80} is not a label name")
        if not isinstance(value, str | None):
            place = f"{location}.{name}"
            raise InvalidPolicy(place, f"expected a string, got {kind_of(value)}: use quotes")
        if len(value or "") > _LONGEST:
            raise InvalidPolicy(f"{location}.{name}", f"is longer than {_LONGEST} characters")
        try:
            (value or "").encode()
        except UnicodeEncodeError as error:
            raise InvalidPolicy(f"{location}.{name}", f"is not text: {error.reason}") from error
    return tuple(sorted((name, value or "") for name, value in raw.items()))


def _buckets(raw: Any, location: str) -> tuple[float, ...]:
    if not isinstance(raw, list):
        raise InvalidPolicy(location, "is required: list the upper bounds")
    if not raw:
        return _BUCKETS
    found = tuple(_number(item, f"{location}[{index}]") for index, item in enumerate(raw))
    if any(low >= high for low, high in pairwise(found)):
        raise InvalidPolicy(location, "must be in ascending order, without duplicates")
    return found


@dataclass(slots=True)
class _Series:
    hook: str
    group: str
    value: float = 0.0
    counts: list[int] = field(default_factory=list)

    def observe(self, value: float, bounds: tuple[float, ...]) -> None:
        self.counts = self.counts or [0] * (len(bounds) + 1)
        self.value += value
        for index, bound in enumerate((*bounds, float("inf"))):
            self.counts[index] += value <= bound


@dataclass(slots=True)
class _Family:
    """All series of a name, which have the same type."""

    type: str
    bounds: tuple[float, ...]
    series: dict[Labels, _Series] = field(default_factory=dict)


class HookMetrics:
    """The metrics that all hooks have reported."""

    def __init__(self, *, most: int = _MOST) -> None:
        self._most = most
        self._families: dict[str, _Family] = {}

    def take(self, hook: str, operations: Sequence[MetricOperation]) -> list[str]:
        """Apply the operations of a run; return messages on those that are rejected."""
        said: list[str] = []
        left_out = 0
        count = sum(item.hook == hook for item in self._all())
        touched: set[tuple[str, Labels]] = set()
        for operation in operations:
            if operation.action is Action.EXPIRE:
                continue
            family = self._family(operation)
            if family.type != _TYPES[operation.action]:
                name, kind = operation.name, _TYPES[operation.action]
                said.append(f"{name} is already a {family.type} and cannot also be a {kind}")
                continue
            labels = _with_hook(operation.labels, hook)
            known = labels in family.series
            if not known and count >= self._most:
                left_out += 1
                continue
            count += not known
            _apply(family, labels, hook, operation)
            touched.add((operation.name, labels))
        self._expire({operation.group for operation in operations if operation.group}, touched)
        if left_out:
            said.append(
                f"{left_out} values are dropped: a hook may have {self._most} series;"
                " use fewer label values, or a group"
            )
        return said

    def exposition(self) -> str:
        """Return all metrics in the text format of Prometheus."""
        lines: list[str] = []
        for name, family in sorted(self._families.items()):
            lines += (f"# HELP {name} {name}", f"# TYPE {name} {family.type}")
            for labels, series in sorted(family.series.items()):
                lines += _samples(name, family, labels, series)
        return "".join(f"{line}\n" for line in lines)

    def _all(self) -> Iterator[_Series]:
        for family in self._families.values():
            yield from family.series.values()

    def _family(self, operation: MetricOperation) -> _Family:
        made = _Family(_TYPES[operation.action], operation.buckets)
        return self._families.setdefault(operation.name, made)

    def _expire(self, groups: set[str], touched: set[tuple[str, Labels]]) -> None:
        for name, family in list(self._families.items()):
            family.series = {
                labels: series
                for labels, series in family.series.items()
                if series.group not in groups or (name, labels) in touched
            }
            if not family.series:
                del self._families[name]


def _with_hook(labels: Labels, hook: str) -> Labels:
    return tuple(sorted({**dict(labels), _HOOK: hook}.items()))


def _apply(family: _Family, labels: Labels, hook: str, operation: MetricOperation) -> None:
    series = family.series.setdefault(labels, _Series(hook, operation.group))
    series.group = operation.group
    match operation.action:
        case Action.ADD:
            series.value += operation.value
        case Action.SET:
            series.value = operation.value
        case _:
            series.observe(operation.value, family.bounds)


def _samples(name: str, family: _Family, labels: Labels, series: _Series) -> Iterator[str]:
    if family.type != _TYPES[Action.OBSERVE]:
        yield f"{name}{_rendered(labels)} {series.value!r}"
        return
    for bound, count in zip((*family.bounds, "+Inf"), series.counts, strict=True):
        yield f"{name}_bucket{_rendered((*labels, ('le', str(bound))))} {count}"
    yield f"{name}_sum{_rendered(labels)} {series.value!r}"
    yield f"{name}_count{_rendered(labels)} {series.counts[-1]}"


def _rendered(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in labels) + "}"
