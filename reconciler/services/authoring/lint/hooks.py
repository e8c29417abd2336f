"""Findings for the author of a hook, before it is applied."""

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from reconciler.api.meta import Object
from reconciler.dialects.finding import Finding, invalid, refusal, warning
from reconciler.errors import InvalidPolicy
from reconciler.hooks.bindings import ADDED, MAIN_QUEUE, KubernetesBinding
from reconciler.hooks.crontab import parse_crontab
from reconciler.hooks.declared import DeclaredHook, compile_hook
from reconciler.hooks.operations import (
    OBJECTS,
    OperationType,
    is_plain,
    patched_metadata,
    written_target,
)
from reconciler.services.catalog.protection import Protection
from reconciler.services.hooks.compiling import compile_programs
from reconciler.services.ports.jq import Jq

_ANY_DAY: Final = datetime(2000, 1, 1, tzinfo=UTC)
"""A schedule that is never due after this day is never due at all."""


async def lint_hook(hook: Object, jq: Jq) -> tuple[Finding, ...]:
    """Return all findings on a Hook or ClusterHook.

    Raises:
        Interrupted: The jq compiler was interrupted for an outside reason.
    """
    try:
        compiled = compile_hook(hook)
        await compile_programs(compiled.programs, jq)
    except InvalidPolicy as error:
        return tuple(map(invalid, (error, *error.others)))
    return hook_findings(compiled, Protection())


def hook_findings(hook: DeclaredHook, guard: Protection) -> tuple[Finding, ...]:
    """Return the findings on a hook that compiles: refusals, and likely mistakes."""
    return (*_shared_queue(hook), *_never_due(hook), *_protected(hook, guard), *_loops(hook))


def _shared_queue(hook: DeclaredHook) -> Iterator[Finding]:
    pace = hook.config.pace
    if pace is None or not pace.interval:
        return
    queues = {
        **{
            f"kubernetes[{index}]": item.queue for index, item in enumerate(hook.config.kubernetes)
        },
        **{f"schedule[{index}]": item.queue for index, item in enumerate(hook.config.schedules)},
    }
    for place, queue in queues.items():
        if queue == MAIN_QUEUE:
            yield warning(
                "shared-queue",
                f"spec.{place}",
                f"the hook runs at most every {pace.interval:g} s, and while it waits, all"
                f" other hooks in queue {MAIN_QUEUE} wait too",
                "give it a queue of its own",
            )


def _never_due(hook: DeclaredHook) -> Iterator[Finding]:
    for index, binding in enumerate(hook.config.schedules):
        location = f"spec.schedule[{index}].crontab"
        if parse_crontab(binding.crontab, location=location).next(_ANY_DAY) is None:
            yield warning(
                "never-due",
                location,
                f"no time matches {binding.crontab!r}, so this schedule is never due",
                "name a day that exists in its month",
            )


def _protected(hook: DeclaredHook, guard: Protection) -> Iterator[Finding]:
    for index, text in enumerate(hook.run.texts if hook.run is not None else ()):
        location, target = f"spec.run.operations[{index}]", written_target(text)
        namespace = hook.confined_to or target.namespace
        plain = is_plain(target.api_version) and is_plain(namespace)
        if plain and (reason := guard.of_api_version(target.api_version, namespace)):
            yield refusal("protected-target", location, reason)
        operation = OperationType(text["operation"])
        patch = text.get("mergePatch") or text.get("jsonPatch")
        for field in sorted(patched_metadata(operation, patch, guard.guarded)):
            yield refusal("guarded-metadata", location, guard.of_field(field))


def _loops(hook: DeclaredHook) -> Iterator[Finding]:
    """Yield operations that create objects for which the hook runs again."""
    for index, text in enumerate(hook.run.texts if hook.run is not None else ()):
        obj = text.get("object")
        if text["operation"] not in OBJECTS or not isinstance(obj, Mapping):
            continue
        for binding in hook.config.kubernetes:
            if ADDED in binding.events and _may_see(hook, binding, text, obj):
                yield warning(
                    "may-loop",
                    f"spec.run.operations[{index}].object",
                    f"binding {binding.name!r} sees the {obj['kind']} created here as Added,"
                    " so the hook runs again for it",
                    "label the objects that the binding is for, and select the label in"
                    " labelSelector",
                )


def _may_see(
    hook: DeclaredHook, binding: KubernetesBinding, text: Mapping[str, Any], obj: Mapping[str, Any]
) -> bool:
    """Return whether a binding may select an operation's object, for any values of variables."""
    target, chosen = written_target(text), binding.selection
    if not is_plain(target.kind) or target.kind.lower() != binding.kind.lower():
        return False
    namespace = hook.confined_to or target.namespace
    if (
        _is_other(target.api_version, (binding.api_version,) if binding.api_version else ())
        or _is_other(namespace, chosen.namespaces or ())
        or _is_other(target.name, chosen.names or ())
    ):
        return False
    meta = obj.get("metadata")
    labels = meta.get("labels") if isinstance(meta, Mapping) else None
    if chosen.labels is None or isinstance(labels, str):
        return chosen.labels is None
    written = labels if isinstance(labels, Mapping) else {}
    return all(map(is_plain, written.values())) and chosen.labels.accepts(dict(written))


def _is_other(value: Any, named: Collection[str]) -> bool:
    """Return whether a part of an operation is literal and none of these values."""
    return bool(named) and is_plain(value) and value not in named
