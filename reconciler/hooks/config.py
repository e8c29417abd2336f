"""Parser of the configuration that a hook prints: version 1, without unknown fields.

Every field, its type and its default are those of shell-operator. Version 0, which has no
``configVersion``, is not supported.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from reconciler.engine.reading import kind_of
from reconciler.engine.values.scalars import parse_duration
from reconciler.errors import ErrorList, InvalidPolicy
from reconciler.hooks import selection, webhooks
from reconciler.hooks.bindings import (
    EVENTS,
    MAIN_QUEUE,
    HookConfig,
    KubernetesBinding,
    ScheduleBinding,
)
from reconciler.hooks.crontab import parse_crontab
from reconciler.hooks.fields import Fields
from reconciler.hooks.programs import check_program
from reconciler.languages import goyaml
from reconciler.requests.pace import Pace

_Binding = TypeVar("_Binding")

VERSION: Final = "v1"
NO_VERSION: Final = "v0"
"""The version of a document without ``configVersion``."""
_NANO: Final = 1_000_000_000


def load_config(text: str) -> HookConfig:
    """Parse a configuration in YAML or JSON.

    Its jq programs are checked, but not compiled: that needs `JqWorkers.compile`.

    Raises:
        InvalidPolicy: It cannot be parsed or used; lists all locations.
    """
    data = decode_text(text)
    if version_of(data) == NO_VERSION:
        reason = "is missing, write configVersion: v1; version 0 of the format is not supported"
        raise InvalidPolicy("configVersion", reason)
    return read_config(data)


def decode_text(text: str) -> Any:
    """Parse the first document of a text, as the original does; return None without one.

    Raises:
        InvalidPolicy: It is neither YAML nor JSON.
    """
    try:
        return goyaml.parse(text)
    except goyaml.YAMLError as error:
        raise InvalidPolicy("configuration", str(error)) from error


def version_of(data: Any) -> str:
    """Return the version that a document declares.

    Raises:
        InvalidPolicy: It is not an object, or its version is unknown.
    """
    if data is None:
        return NO_VERSION
    if not isinstance(data, Mapping):
        raise InvalidPolicy("configuration", f"expected an object, got {kind_of(data)}")
    if "configVersion" not in data:
        return NO_VERSION
    version = data["configVersion"]
    if not isinstance(version, str):
        raise InvalidPolicy("configVersion", f"expected a string, got {kind_of(version)}")
    if version != VERSION:
        raise InvalidPolicy("configVersion", f"{version!r} is not known, write {VERSION}")
    return version


def read_config(data: Any) -> HookConfig:
    """Parse a document of version 1.

    Raises:
        InvalidPolicy: It has errors; lists all locations.
    """
    with ErrorList() as errors:
        fields = Fields(data, "", errors)
        fields.require("configVersion")
        fields.text("configVersion", among=(VERSION,))
        if len(fields) == 1 and "configVersion" in fields:
            fields.refuse("configVersion", "is the only field: add a binding, such as onStartup")
        config = HookConfig(
            startup=fields.integer("onStartup"),
            pace=_pace(fields.part("settings")),
            schedules=tuple(_schedule(part) for part in fields.parts("schedule", least=1)),
            kubernetes=tuple(_kubernetes(part) for part in fields.parts("kubernetes", least=1)),
            validating=webhooks.validating(fields.parts("kubernetesValidating", least=1)),
            mutating=webhooks.mutating(fields.parts("kubernetesMutating", least=1)),
            conversions=webhooks.conversions(
                fields.parts("kubernetesCustomResourceConversion", least=1)
            ),
        )
        fields.close()
        _check_snapshots(config, errors)
    return _with_groups(config)


def _pace(fields: Fields | None) -> Pace | None:
    if fields is None:
        return None
    fields.require("executionMinInterval", "executionBurst")
    text = fields.text("executionMinInterval")
    interval = parse_duration(text)
    if interval is None and "executionMinInterval" in fields:
        fields.refuse("executionMinInterval", f"{text!r} is not a duration; write it like 5s")
    burst = fields.integer("executionBurst")
    fields.close()
    return Pace(interval=(interval or 0) / _NANO, burst=burst or 0)


def _schedule(fields: Fields) -> ScheduleBinding:
    fields.require("crontab")
    crontab = fields.text("crontab")
    if "crontab" in fields:
        _note(fields, lambda: parse_crontab(crontab, location=fields.place("crontab")))
    found = ScheduleBinding(
        name=fields.text("name") or "schedule",
        crontab=crontab,
        allow_failure=fields.boolean("allowFailure", default=False),
        snapshots=fields.texts("includeSnapshotsFrom", least=1),
        queue=fields.text("queue") or MAIN_QUEUE,
        group=fields.text("group"),
    )
    fields.close()
    return found


def _kubernetes(fields: Fields) -> KubernetesBinding:
    fields.require("kind")
    program = fields.text("jqFilter")
    if program:
        _note(fields, lambda: check_program(program, location=fields.place("jqFilter")))
    # Accepted and ignored, as in the original.
    fields.text("resynchronizationPeriod")
    queue = fields.text("queue")
    found = KubernetesBinding(
        name=fields.text("name") or "kubernetes",
        api_version=_api_version(fields),
        kind=fields.text("kind"),
        selection=selection.read(fields),
        events=_events(fields),
        on_synchronization=fields.boolean("executeHookOnSynchronization", default=True),
        # The main queue always waits, because its later tasks rely on the first run.
        wait_for_synchronization=fields.boolean("waitForSynchronization", default=True)
        or not queue,
        keep_full_objects=fields.boolean("keepFullObjectsInMemory", default=True),
        jq_filter=program,
        allow_failure=fields.boolean("allowFailure", default=False),
        snapshots=fields.texts("includeSnapshotsFrom", least=1),
        queue=queue or MAIN_QUEUE,
        group=fields.text("group"),
    )
    fields.close()
    return found


def _events(fields: Fields) -> tuple[str, ...]:
    older = fields.texts("watchEvent", among=EVENTS)
    newer = fields.texts("executeHookOnEvent", among=EVENTS)
    if "executeHookOnEvent" in fields:
        return newer
    return older if "watchEvent" in fields else EVENTS


def _api_version(fields: Fields) -> str:
    text = fields.text("apiVersion")
    if text.count("/") > 1:
        fields.refuse("apiVersion", f"{text!r} is not a group and version; write it like apps/v1")
    return text


def _note(fields: Fields, read: Callable[[], object]) -> None:
    try:
        read()
    except InvalidPolicy as error:
        place = error.location.removeprefix(f"{fields.location}.")
        fields.refuse(place, error.reason)


def _check_snapshots(config: HookConfig, errors: ErrorList) -> None:
    names = [binding.name for binding in config.kubernetes]
    for place, binding in _bindings(config):
        for index, name in enumerate(binding.snapshots):
            count = names.count(name)
            if count != 1:
                found = "no" if not count else "more than one"
                reason = f"{found} kubernetes binding has the name {name!r}"
                errors.add(InvalidPolicy(f"{place}.includeSnapshotsFrom[{index}]", reason))


def _bindings(config: HookConfig) -> Iterable[tuple[str, Any]]:
    for field, bindings in (
        ("schedule", config.schedules),
        ("kubernetes", config.kubernetes),
        ("kubernetesValidating", config.validating),
        ("kubernetesMutating", config.mutating),
        ("kubernetesCustomResourceConversion", config.conversions),
    ):
        yield from ((f"{field}[{index}]", item) for index, item in enumerate(bindings))


def _with_groups(config: HookConfig) -> HookConfig:
    """Append the snapshots of a group's Kubernetes bindings to each binding of the group."""
    members: dict[str, list[str]] = {}
    for monitor in config.kubernetes:
        if monitor.group:
            members.setdefault(monitor.group, []).append(monitor.name)

    def complete(bindings: tuple[_Binding, ...]) -> tuple[_Binding, ...]:
        return tuple(_with_snapshots(binding, members) for binding in bindings)

    return replace(
        config,
        schedules=complete(config.schedules),
        kubernetes=complete(config.kubernetes),
        validating=complete(config.validating),
        mutating=complete(config.mutating),
        conversions=complete(config.conversions),
    )


def _with_snapshots(binding: Any, members: Mapping[str, list[str]]) -> Any:
    names = dict.fromkeys((*binding.snapshots, *members.get(binding.group, ())))
    return replace(binding, snapshots=tuple(names))
