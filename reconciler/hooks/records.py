"""Records of events, schedules and starts, and the requests that hold them.

All contexts of a request have the same queue and source, and agree on whether the run may fail.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from reconciler.api.meta import ObjectRef
from reconciler.api.updaterequest import RequestSpec, Source
from reconciler.hooks.contexts import Context, ContextType
from reconciler.hooks.ports import HookRef
from reconciler.hooks.values import stored_size

_CONTEXTS: Final = "contexts"
_MAY_FAIL: Final = "allowFailure"
_LARGEST: Final = 1024 * 1024
"""Bytes of JSON, somewhat below the API server's limit for one object."""
_LARGEST_STORED: Final = 1408 * 1024
"""Bytes as stored; with the rest of a request, they are within etcd's limit of 1.5 MiB."""
_METADATA: Final = ("name", "namespace", "uid", "resourceVersion", "labels")
_SOURCES: Final = {
    ContextType.STARTUP: Source.STARTUP,
    ContextType.SCHEDULE: Source.SCHEDULE,
    ContextType.SYNCHRONIZATION: Source.WATCH,
    ContextType.EVENT: Source.WATCH,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One reason for a run of a hook, to be stored.

    Attributes:
        queue: The queue of its request.
        scope: The namespace of its watch, empty for all, and if no watch reported it.
        at: Distinguishes it from others of its binding: the resourceVersion of an event or a list,
            the due time of a schedule, or the generation of a hook that starts.
        resource: The object of an event; else the hook.
        watched: A digest of what its watch selects; empty if no watch reported it.
        confidential: It shows data of a Secret.
        partial: Its watch has reached `at` only once other records of the same list are stored.
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
    def identity(self) -> str:
        """Return a text that is unique among the records of its hook."""
        context = self.context
        place = f"{self.scope}/{self.at}/{self.resource.namespace}/{self.resource.name}"
        return f"{context.type}/{context.binding}/{context.event}/{place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """Marker that a watch has reached a resourceVersion, and everything before is recorded.

    Attributes:
        watched: A digest of what it watches; progress of a watch with another digest is void.
        partial: Only part of the objects that existed at that version is recorded.
        left: It has ended, because its namespace no longer belongs to the binding; the hook has
            received its objects as deleted.
    """

    binding: str
    scope: str
    version: str
    watched: str
    partial: bool = False
    left: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """Return the binding and the scope of the watch."""
        return self.binding, self.scope

    def since(self, watched: str, *, leaving: bool) -> str:
        """Return the version from which a watch resumes, empty if it starts anew.

        Args:
            watched: A digest of what it watches.
            leaving: The hook is to receive its known objects as deleted.
        """
        begun = self.watched == watched and not self.left
        return self.version if begun and (leaving or not self.partial) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookIdentity:
    """A hook in one generation."""

    ref: HookRef
    uid: str
    generation: int


def batches(records: Sequence[Record], most: int) -> Iterator[list[Record]]:
    """Yield batches of records, one for each request, in order.

    Args:
        most: Bytes of JSON up to which several records share one request.
    """
    found: list[Record] = []
    size = 0
    for record in records:
        length = stored_size(_text(record)) or most
        if found and (size + length > most or not _belong_together(found[-1], record)):
            yield found
            found, size = [], 0
        found.append(record)
        size += length
    if found:
        yield found


def compacted(records: Sequence[Record]) -> list[Record]:
    """Return the records, keeping only the last of consecutive ones of one group."""
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
    # Recording a schedule or a start again must result in the same name.
    events = {one.context.type, other.context.type} == {ContextType.EVENT}
    return alike and events


def spec_of(hook: HookIdentity, records: Sequence[Record], order: int) -> RequestSpec:
    """Return the spec of the request for records that belong together."""
    first = records[0]
    return RequestSpec(
        policy=hook.ref,
        rule=first.context.binding,
        resource=first.resource,
        source=_SOURCES[first.context.type],
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
    return tuple(map(_parsed, _contexts(recorded)))


def may_fail(recorded: Mapping[str, Any]) -> bool:
    """Return whether the run may fail without blocking its queue."""
    return recorded.get(_MAY_FAIL) is True


def passed(record: Record) -> Passed:
    """Return the progress of a record's watch once the record is stored."""
    return Passed(
        binding=record.context.binding,
        scope=record.scope,
        version=record.at,
        watched=record.watched,
        partial=record.partial,
    )


def passed_of(recorded: Mapping[str, Any]) -> Iterator[Passed]:
    """Yield the progress of watches that the contexts of a request prove."""
    for raw in _contexts(recorded):
        if _type(raw) in {ContextType.EVENT, ContextType.SYNCHRONIZATION}:
            yield Passed(
                binding=str(raw.get("binding", "")),
                scope=str(raw.get("scope", "")),
                version=str(raw.get("at", "")),
                watched=str(raw.get("watched", "")),
                partial=raw.get("partial") is True,
            )


def recordable(record: Record) -> Record:
    """Return a record that fits a request: if it is too large or deep, with the identity only."""
    text = _text(record)
    if text and len(text) <= _LARGEST and stored_size(text) <= _LARGEST_STORED:
        return record
    return replace(record, context=replace(record.context, shown=_identified(record.context)))


def _identified(context: Context) -> dict[str, Any]:
    obj = context.shown.get("object") or {}
    meta = obj.get("metadata") or {}
    kept = {name: meta[name] for name in _METADATA if name in meta}
    head = {name: obj.get(name, "") for name in ("apiVersion", "kind")}
    return {"object": {**head, "metadata": kept}}


def _text(record: Record) -> bytes:
    """Return a record as JSON; empty if it is nested too deeply."""
    try:
        # A request has about as many levels above a record.
        return orjson.dumps([[[[[_rendered(record)]]]]])
    except orjson.JSONEncodeError:
        return b""


def _rendered(record: Record) -> dict[str, Any]:
    context = record.context
    pairs = {
        "type": context.type.value,
        "binding": context.binding,
        "event": context.event,
        "group": context.group,
        "snapshots": list(context.snapshots),
        # A context of a group only shows its snapshots.
        "shown": {} if context.group else context.shown,
        "scope": record.scope,
        "at": record.at,
        "watched": record.watched,
        "partial": record.partial,
    }
    return {name: value for name, value in pairs.items() if value}


def _parsed(raw: Mapping[str, Any]) -> Context:
    shown, snapshots = raw.get("shown"), raw.get("snapshots")
    return Context(
        type=_type(raw) or ContextType.EVENT,
        binding=str(raw.get("binding", "")),
        event=str(raw.get("event", "")),
        shown=dict(shown) if isinstance(shown, Mapping) else {},
        group=str(raw.get("group", "")),
        snapshots=tuple(map(str, snapshots)) if isinstance(snapshots, list) else (),
    )


def _contexts(recorded: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the contexts of a request; what is none was written by a person."""
    found = recorded.get(_CONTEXTS)
    if isinstance(found, list):
        yield from (raw for raw in found if isinstance(raw, Mapping))


def _type(raw: Mapping[str, Any]) -> ContextType | None:
    kind = raw.get("type")
    return next((item for item in ContextType if item == kind), None)
