"""What is recorded of an event, a schedule or a start, and the requests that hold it.

A request holds the contexts of one queue, one source and one answer to whether the run may fail.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from reconciler.api.meta import ObjectRef
from reconciler.api.updaterequest import RequestSpec, Source
from reconciler.hooks.contexts import Context, ContextType
from reconciler.hooks.ports import HookRef

_CONTEXTS: Final = "contexts"
_MAY_FAIL: Final = "allowFailure"
_LARGEST: Final = 1024 * 1024
"""Bytes of JSON; the API server stores some more than that in one object."""
_METADATA: Final = ("name", "namespace", "uid", "resourceVersion", "labels")
_SOURCES: Final = {
    ContextType.STARTUP: Source.STARTUP,
    ContextType.SCHEDULE: Source.SCHEDULE,
    ContextType.SYNCHRONIZATION: Source.WATCH,
    ContextType.EVENT: Source.WATCH,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Something that a hook has to be run for.

    Attributes:
        queue: Where its request stands.
        scope: The namespace whose watch saw it, empty for all, and for what no watch saw.
        at: What tells it from others of its binding: the resourceVersion of an event or a list,
            the moment of a schedule, the generation of the hook that starts.
        resource: The object of an event; else the hook.
        watched: A digest of what its watch is of; empty for what no watch saw.
        confidential: What is shown is that of a Secret.
        partial: Its watch has come to `at` when others are stored as well: those of the same list.
    """

    context: Context
    queue: str
    allow_failure: bool
    scope: str
    at: str
    resource: ObjectRef
    watched: str = ""
    confidential: bool = False
    partial: bool = False

    @property
    def source(self) -> Source:
        """Return what made it."""
        return _SOURCES[self.context.type]

    @property
    def identity(self) -> str:
        """Return a text that no other record of its hook has."""
        context = self.context
        place = f"{self.scope}/{self.at}/{self.resource.namespace}/{self.resource.name}"
        return f"{context.type}/{context.binding}/{context.event}/{place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """A watch has come to a resourceVersion, and everything before it is recorded.

    Attributes:
        watched: A digest of what it is of: what has come of another one means nothing.
        partial: Only a part of what was there then is recorded.
        left: It has ended there: its namespace is none of the binding's any more.
    """

    binding: str
    scope: str
    version: str
    watched: str
    partial: bool = False
    left: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HookIdentity:
    """Which hook, in which generation."""

    ref: HookRef
    uid: str
    generation: int


def batches(records: Sequence[Record], most: int) -> Iterator[list[Record]]:
    """Yield the records of one request after the other, in order.

    Args:
        records: Of one hook.
        most: Bytes of JSON that one request holds, of several records.
    """
    found: list[Record] = []
    size = 0
    for record in records:
        length = _size(record)
        if found and (size + length > most or not _belong_together(found[-1], record)):
            yield found
            found, size = [], 0
        found.append(record)
        size += length
    if found:
        yield found


def compacted(records: Sequence[Record]) -> list[Record]:
    """Return the records, of those of a group that follow each other the last."""
    return [
        record
        for record, following in zip(records, (*records[1:], None), strict=True)
        if not record.context.group
        or following is None
        or not _belong_together(record, following)
        or following.context.group != record.context.group
    ]


def _belong_together(one: Record, other: Record) -> bool:
    alike = (one.queue, one.allow_failure, one.confidential) == (
        other.queue,
        other.allow_failure,
        other.confidential,
    )
    # A schedule or a start that is recorded once more has to get the same name.
    events = {one.context.type, other.context.type} == {ContextType.EVENT}
    return alike and events


def spec_of(hook: HookIdentity, records: Sequence[Record], order: int) -> RequestSpec:
    """Return the request for records that belong together, with what they hold."""
    first = records[0]
    return RequestSpec(
        policy=hook.ref,
        rule=first.context.binding,
        resource=first.resource,
        source=first.source,
        policy_uid=hook.uid,
        policy_generation=hook.generation,
        recorded={
            _CONTEXTS: [_rendered(record) for record in records],
            _MAY_FAIL: first.allow_failure,
        },
        queue=first.queue,
        order=order,
    )


def contexts_of(recorded: Mapping[str, Any]) -> tuple[Context, ...]:
    """Return the contexts that a request holds."""
    return tuple(_parsed(raw) for raw in recorded.get(_CONTEXTS) or () if isinstance(raw, Mapping))


def may_fail(recorded: Mapping[str, Any]) -> bool:
    """Return whether a failure of the run holds nothing up."""
    return recorded.get(_MAY_FAIL) is True


def passed(record: Record) -> Passed:
    """Return how far the watch of a record has come when it is stored."""
    return Passed(
        binding=record.context.binding,
        scope=record.scope,
        version=record.at,
        watched=record.watched,
        partial=record.partial,
    )


def passed_of(recorded: Mapping[str, Any]) -> Iterator[Passed]:
    """Yield what the contexts of a request say of how far the watches had come."""
    for raw in recorded.get(_CONTEXTS) or ():
        if raw.get("type") in {ContextType.EVENT, ContextType.SYNCHRONIZATION}:
            yield Passed(
                binding=str(raw.get("binding", "")),
                scope=str(raw.get("scope", "")),
                version=str(raw.get("at", "")),
                watched=str(raw.get("watched", "")),
                partial=raw.get("partial") is True,
            )


def recordable(record: Record) -> Record:
    """Return a record that a request can hold: of too large an object it says which one it is."""
    if _size(record) <= _LARGEST:
        return record
    return replace(record, context=replace(record.context, shown=_identified(record.context)))


def _identified(context: Context) -> dict[str, Any]:
    obj = context.shown.get("object") or {}
    meta = obj.get("metadata") or {}
    kept = {name: meta[name] for name in _METADATA if name in meta}
    head = {name: obj.get(name, "") for name in ("apiVersion", "kind")}
    return {"object": {**head, "metadata": kept}}


def _size(record: Record) -> int:
    return len(orjson.dumps(_rendered(record)))


def _rendered(record: Record) -> dict[str, Any]:
    context = record.context
    pairs = {
        "type": context.type.value,
        "binding": context.binding,
        "event": context.event,
        "group": context.group,
        "snapshots": list(context.snapshots),
        # Of a group nothing is shown but its snapshots.
        "shown": {} if context.group else context.shown,
        "scope": record.scope,
        "at": record.at,
        "watched": record.watched,
        "partial": record.partial,
    }
    return {name: value for name, value in pairs.items() if value}


def _parsed(raw: Mapping[str, Any]) -> Context:
    kind = raw.get("type")
    return Context(
        type=ContextType(kind) if kind in set(ContextType) else ContextType.EVENT,
        binding=str(raw.get("binding", "")),
        event=str(raw.get("event", "")),
        shown=dict(raw.get("shown") or {}),
        group=str(raw.get("group", "")),
        snapshots=tuple(raw.get("snapshots") or ()),
    )
