"""Parsing of the settings ConfigMap, key by key, so that a fault in one does not affect others.

The keys and their formats are those of Kyverno. Keys that Kyverno also reads and that have no
effect here are listed in `WITHOUT_EFFECT`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.errors import InvalidSetting
from reconciler.services.catalog.settings.filters import (
    Filters,
    default_filters,
    parse_names,
    parse_resources,
)
from reconciler.services.catalog.settings.webhooks import (
    WebhookSettings,
    parse_conditions,
    parse_selectors,
    parse_texts,
)

WITHOUT_EFFECT = frozenset({"defaultRegistry", "enableDefaultRegistryMutation", "maxContextSize"})

MUTATED = "Resource Mutated"
"""The action of events about a mutated object."""
_ACTIONS = (
    MUTATED,
    "None",
    "Resource Blocked",
    "Resource Cleaned Up",
    "Resource Generated",
    "Resource Passed",
)
"""The event actions that Kyverno defines; those that are not used here are accepted as well."""

_TRUE = frozenset({"1", "t", "T", "true", "True", "TRUE"})
_FALSE = frozenset({"0", "f", "F", "false", "False", "FALSE"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """The settings in the ConfigMap.

    Attributes:
        threshold: Waiting requests above which recording is diverted (``updateRequestThreshold``);
            None if the ConfigMap does not set it.
        success_events: Whether successes have events too (``generateSuccessEvents``); None if the
            ConfigMap does not set it.
        success_actions: The only actions that have success events (``successEventActions``);
            empty for all.
    """

    filters: Filters
    webhooks: WebhookSettings = field(default_factory=WebhookSettings)
    threshold: int | None = None
    success_events: bool | None = None
    success_actions: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A setting that is not used; the message says what is wrong and what to write instead."""

    key: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The result of parsing a ConfigMap.

    Attributes:
        unused: Keys that have no effect here or are unknown.
    """

    settings: ClusterSettings
    faults: tuple[Fault, ...] = ()
    unused: tuple[str, ...] = ()


def default_settings(own_namespace: str) -> ClusterSettings:
    """Return the settings that apply without a ConfigMap."""
    return ClusterSettings(filters=default_filters(own_namespace))


def read_settings(data: Mapping[str, str], *, old: ClusterSettings, own_namespace: str) -> Reading:
    """Return the settings of a ConfigMap's data.

    Args:
        data: The data as stored; an absent key means its default.
        old: The current settings, kept where a value cannot be parsed.
        own_namespace: The programs' namespace, for the default filters.
    """
    defaults, faults = default_settings(own_namespace), list[Fault]()

    def read(part: str) -> Iterator[tuple[str, Any]]:
        for key, (place, name, parse) in _KEYS.items():
            if place != part:
                continue
            if key not in data:
                yield name, getattr(_part(defaults, part), name)
                continue
            try:
                yield name, parse(data[key])
            except InvalidSetting as error:
                faults.append(Fault(key=key, message=str(error)))
                yield name, getattr(_part(old, part), name)

    settings = ClusterSettings(
        filters=Filters(**dict(read("filters"))),
        webhooks=WebhookSettings(**dict(read("webhooks"))),
        **dict(read("")),
    )
    return Reading(
        settings=settings, faults=tuple(faults), unused=tuple(sorted(data.keys() - _KEYS.keys()))
    )


def _part(settings: ClusterSettings, part: str) -> Any:
    return getattr(settings, part) if part else settings


def _flag(text: str) -> bool:
    if (word := text.strip()) in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise InvalidSetting(f"{text!r} is neither true nor false: write one of them")


def _actions(text: str) -> frozenset[str]:
    found = frozenset(filter(None, (item.strip() for item in text.split(","))))
    if unknown := sorted(found.difference(_ACTIONS)):
        known = ", ".join(_ACTIONS)
        raise InvalidSetting(
            f"no event has the action {unknown[0]!r}: write one of {known}, or several"
        )
    return found


def _threshold(text: str) -> int:
    word = text.strip()
    if not (word.isascii() and word.isdecimal()) or not 0 < int(word) < 2**31:
        raise InvalidSetting(
            f"{text!r} is not a positive whole number: write the number of requests, such as 1000"
        )
    return int(word)


_KEYS: Mapping[str, tuple[str, str, Callable[[str], Any]]] = {
    "resourceFilters": ("filters", "resources", parse_resources),
    "excludeGroups": ("filters", "groups", parse_names),
    "excludeUsernames": ("filters", "usernames", parse_names),
    "excludeRoles": ("filters", "roles", parse_names),
    "excludeClusterRoles": ("filters", "cluster_roles", parse_names),
    "webhooks": ("webhooks", "selectors", parse_selectors),
    "matchConditions": ("webhooks", "conditions", parse_conditions),
    "webhookAnnotations": ("webhooks", "annotations", parse_texts),
    "webhookLabels": ("webhooks", "labels", parse_texts),
    "updateRequestThreshold": ("", "threshold", _threshold),
    "generateSuccessEvents": ("", "success_events", _flag),
    "successEventActions": ("", "success_actions", _actions),
}

KNOWN_KEYS = frozenset(_KEYS) | WITHOUT_EFFECT
"""Every key that the ConfigMap may have; other keys are ignored."""
