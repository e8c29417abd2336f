"""Binding contexts: the reasons for a run, in the form that the hook reads.

A context is recorded when an event occurs, with the object as of that moment. It is rendered when
the run begins: then snapshots are added, and consecutive contexts of one group are merged.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from reconciler.hooks.bindings import (
    AdmissionBinding,
    ConversionBinding,
    KubernetesBinding,
    ScheduleBinding,
)
from reconciler.hooks.monitor import Change

SnapshotOf = Callable[[str], list[dict[str, Any]]]
"""Returns the current snapshot of the binding with a name."""


class ContextType(StrEnum):
    """The reason for a run."""

    STARTUP = "OnStartup"
    SCHEDULE = "Schedule"
    SYNCHRONIZATION = "Synchronization"
    EVENT = "Event"
    VALIDATING = "Validating"
    MUTATING = "Mutating"
    CONVERSION = "Conversion"


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One reason for a run, with its data.

    Attributes:
        event: One of `EVENTS` for the type `EVENT`, else empty.
        shown: Fields for the object of an event, or for the review of the API server.
        snapshots: Names of the bindings whose snapshots are included.
    """

    type: ContextType
    binding: str
    event: str = ""
    shown: dict[str, Any] = field(default_factory=dict)
    group: str = ""
    snapshots: tuple[str, ...] = ()


STARTUP = Context(type=ContextType.STARTUP, binding="onStartup")


def of_schedule(binding: ScheduleBinding) -> Context:
    """Return the context of a schedule that is due."""
    return _recorded(ContextType.SCHEDULE, binding)


def of_synchronization(binding: KubernetesBinding) -> Context | None:
    """Return the context with all existing objects; None if the binding has it disabled."""
    return _recorded(ContextType.SYNCHRONIZATION, binding) if binding.on_synchronization else None


def of_change(binding: KubernetesBinding, change: Change) -> Context:
    """Return the context of a change of an object."""
    return _recorded(ContextType.EVENT, binding, change.event, change.observed.shown)


def _recorded(
    kind: ContextType,
    binding: KubernetesBinding | ScheduleBinding,
    event: str = "",
    shown: dict[str, Any] | None = None,
) -> Context:
    return Context(
        type=kind,
        binding=binding.name,
        event=event,
        shown=shown or {},
        group=binding.group,
        snapshots=binding.snapshots,
    )


def of_review(binding: AdmissionBinding, review: Mapping[str, Any], *, mutating: bool) -> Context:
    """Return the context of an AdmissionReview."""
    return Context(
        type=ContextType.MUTATING if mutating else ContextType.VALIDATING,
        binding=binding.name,
        shown={"review": dict(review)},
        snapshots=binding.snapshots,
    )


def of_conversion(
    binding: ConversionBinding, step: tuple[str, str], review: Mapping[str, Any]
) -> Context:
    """Return the context of a ConversionReview, for one step between two versions."""
    start, goal = step
    return Context(
        type=ContextType.CONVERSION,
        binding=binding.name,
        shown={"fromVersion": start, "toVersion": goal, "review": dict(review)},
        snapshots=binding.snapshots,
    )


def compact(contexts: Sequence[Context]) -> list[Context]:
    """Return the contexts, keeping only the last of consecutive ones of one group."""
    return [
        context
        for index, context in enumerate(contexts)
        if not context.group
        or index + 1 == len(contexts)
        or contexts[index + 1].group != context.group
    ]


def render(contexts: Sequence[Context], snapshot_of: SnapshotOf) -> list[dict[str, Any]]:
    """Return the binding contexts that the hook reads.

    Each snapshot is taken once, so that all contexts of a run show the same objects.
    """
    taken: dict[str, list[dict[str, Any]]] = {}

    def snapshot(name: str) -> list[dict[str, Any]]:
        if name not in taken:
            taken[name] = snapshot_of(name)
        return taken[name]

    return [_rendered(context, snapshot) for context in compact(contexts)]


def _rendered(context: Context, snapshot: SnapshotOf) -> dict[str, Any]:
    shown: dict[str, Any] = {"binding": context.binding}
    if context.type is ContextType.STARTUP:
        return shown
    if context.snapshots:
        shown["snapshots"] = {name: snapshot(name) for name in context.snapshots}
    if context.group:
        return shown | {"type": "Group", "groupName": context.group}
    shown["type"] = context.type.value
    if context.type is ContextType.SYNCHRONIZATION:
        shown["objects"] = snapshot(context.binding)
    if context.type is ContextType.EVENT:
        shown |= {"watchEvent": context.event}
    shown |= context.shown
    return shown
