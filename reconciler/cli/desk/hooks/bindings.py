"""The binding contexts of a hook, computed from the objects of files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reconciler.api.meta import Object, split_api_version
from reconciler.cli.desk.emit import title
from reconciler.cli.desk.file_objects import FileObjects
from reconciler.errors import EvaluationError, InvalidSetting
from reconciler.hooks import contexts
from reconciler.hooks.bindings import EVENTS, HookConfig, KubernetesBinding
from reconciler.hooks.contexts import STARTUP, Context, SnapshotOf
from reconciler.hooks.monitor import Change, Monitor, ObservedObject, observe
from reconciler.services.ports.jq import Jq

ON_STARTUP: Final = "OnStartup"
SCHEDULE: Final = "Schedule"
SYNCHRONIZATION: Final = "Synchronization"
REASONS: Final = (*EVENTS, SYNCHRONIZATION, SCHEDULE, ON_STARTUP)
"""The values of ``--event``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """The occasion of a run.

    Attributes:
        reason: One of `REASONS`.
        objects: The objects of the events, one event for each.
        binding: The name of the binding; empty for all that fit.
    """

    reason: str
    objects: Sequence[Object] = ()
    binding: str = ""


class DeskBindings:
    """Evaluates the bindings of a hook on the objects of files.

    An `EvaluationError` says which jq filter fails for which object.
    """

    def __init__(self, config: HookConfig, jq: Jq, file_objects: FileObjects) -> None:
        self._config = config
        self._jq = jq
        self._file_objects = file_objects

    async def contexts(self, occasion: Occasion) -> list[dict[str, Any]]:
        """Return the binding contexts of an occasion.

        Raises:
            InvalidSetting: No binding fits the occasion; the message names those that exist.
        """
        found, refused = await self._of(occasion)
        if not found:
            raise InvalidSetting("; ".join(refused))
        return contexts.render(found, await self.snapshots())

    async def snapshots(self) -> SnapshotOf:
        """Return a function that returns the snapshot of a binding by its name."""
        monitors = {binding.name: Monitor(binding) for binding in self._config.kubernetes}
        for monitor in monitors.values():
            monitor.replace(await self.seen(monitor.binding))
        return lambda name: monitors[name].snapshot()

    async def _of(self, occasion: Occasion) -> tuple[list[Context], list[str]]:
        if occasion.reason == ON_STARTUP:
            if self._config.startup is None:
                return [], ["the hook has no onStartup"]
            return [STARTUP], []
        if occasion.reason == SCHEDULE:
            schedules = _named(self._config.schedules, occasion.binding)
            return [contexts.of_schedule(item) for item in schedules], [
                _no_binding("schedule", self._config.schedules, occasion.binding)
            ]
        bindings = _named(self._config.kubernetes, occasion.binding)
        refused = [_no_binding("kubernetes", self._config.kubernetes, occasion.binding)]
        if occasion.reason == SYNCHRONIZATION:
            first = [contexts.of_synchronization(binding) for binding in bindings]
            if bindings:
                refused = ["every binding has executeHookOnSynchronization: false"]
            return [context for context in first if context], refused
        return await self._of_events(bindings, occasion) if bindings else ([], refused)

    async def _of_events(
        self, bindings: Sequence[KubernetesBinding], occasion: Occasion
    ) -> tuple[list[Context], list[str]]:
        found: list[Context] = []
        refused: list[str] = []
        for obj in occasion.objects:
            for binding in bindings:
                if reason := await self._why_not(binding, occasion.reason, obj):
                    refused.append(f"{title(obj)}: binding {binding.name!r} {reason}")
                    continue
                (observed,) = await self._observed(binding, [obj])
                found.append(contexts.of_change(binding, Change(occasion.reason, observed)))
        return found, refused or ["an event is about an object: name its file with --resource"]

    async def _why_not(self, binding: KubernetesBinding, event: str, obj: Object) -> str:
        if not await self._is_kind(binding, obj):
            return f"is for {binding.kind}"
        if not binding.selection.accepts(obj, await self._labels(obj)):
            return "does not select it"
        if event not in binding.events:
            return f"is for {', '.join(binding.events) or 'no event'}"
        return ""

    async def _is_kind(self, binding: KubernetesBinding, obj: Object) -> bool:
        kind = await self._file_objects.cluster.named(binding.api_version, binding.kind)
        if kind is None:
            # Other forms of the name of a kind that no file defines are not known.
            same = binding.api_version in {"", obj["apiVersion"]}
            return same and binding.kind.lower() == obj["kind"].lower()
        group, _ = split_api_version(obj["apiVersion"])
        return (kind.group, kind.kind) == (group, obj["kind"])

    async def _labels(self, obj: Object) -> dict[str, str]:
        namespace = str(obj["metadata"].get("namespace") or "")
        return dict(await self._file_objects.labels(namespace)) if namespace else {}

    async def seen(self, binding: KubernetesBinding) -> list[ObservedObject]:
        """Return the objects that a binding selects, filtered by its jq program."""
        chosen = [
            obj
            for obj in self._file_objects.objects.values()
            if await self._is_kind(binding, obj)
            and binding.selection.accepts(obj, await self._labels(obj))
        ]
        return await self._observed(binding, chosen)

    async def _observed(
        self, binding: KubernetesBinding, chosen: Sequence[Object]
    ) -> list[ObservedObject]:
        if not binding.jq_filter:
            return [observe(binding, obj, None) for obj in chosen]
        results = await self._jq.evaluate(binding.jq_filter, chosen)
        for obj, result in zip(chosen, results, strict=True):
            if isinstance(result, EvaluationError):
                raise EvaluationError(f"binding {binding.name!r}: {title(obj)}: {result}")
        return [
            observe(binding, obj, result)
            for obj, result in zip(chosen, results, strict=True)
            if not isinstance(result, EvaluationError)
        ]


class HookStage:
    """Computes binding contexts as a cluster changes; the hook starts with the first state."""

    def __init__(self, config: HookConfig, jq: Jq) -> None:
        self._config = config
        self._jq = jq
        self._monitors = [Monitor(binding) for binding in config.kubernetes]
        self._started = False

    async def change(self, file_objects: FileObjects) -> list[dict[str, Any]]:
        """Return the binding contexts of a hook when the cluster changes to a new state."""
        desk = DeskBindings(self._config, self._jq, file_objects)
        found: list[Context] = []
        if not self._started and self._config.startup is not None:
            found.append(STARTUP)
        for monitor in self._monitors:
            changes = monitor.replace(await desk.seen(monitor.binding))
            if self._started:
                found += [contexts.of_change(monitor.binding, change) for change in changes]
            elif first := contexts.of_synchronization(monitor.binding):
                found.append(first)
        self._started = True
        return self._rendered(found)

    def tick(self, crontab: str) -> list[dict[str, Any]]:
        """Return the binding contexts for the schedules with a crontab that is due."""
        due = [item for item in self._config.schedules if item.crontab == crontab]
        return self._rendered([contexts.of_schedule(item) for item in due])

    def _rendered(self, found: list[Context]) -> list[dict[str, Any]]:
        shown = {monitor.binding.name: monitor for monitor in self._monitors}
        return contexts.render(found, lambda name: shown[name].snapshot())


def _named(bindings: Sequence[Any], name: str) -> list[Any]:
    return [binding for binding in bindings if name in {"", binding.name}]


def _no_binding(field: str, bindings: Sequence[Any], name: str) -> str:
    if not bindings:
        return f"the hook has no {field} binding"
    known = ", ".join(sorted({binding.name for binding in bindings}))
    return f"the hook has no {field} binding {name!r}: name one of {known}"


def outline(config: HookConfig) -> Iterator[tuple[str, str, str]]:
    """Yield the name, occasion and queue of each binding, as text for people."""
    if config.startup is not None:
        yield "onStartup", f"start, order {config.startup}", "main"
    for schedule in config.schedules:
        yield schedule.name, schedule.crontab, schedule.queue
    for binding in config.kubernetes:
        events = ", ".join(binding.events) or "snapshots only"
        yield binding.name, f"{binding.kind}: {events}", binding.queue
    for asked in (*config.validating, *config.mutating):
        yield asked.name, "admission", ""
    for conversion in config.conversions:
        yield conversion.name, f"conversion of {conversion.crd}", ""
    if config == HookConfig(pace=config.pace):
        yield "none", "never", ""
