"""Parsing of the settings that are added to the webhooks for triggers, from JSON.

Structure and labels are checked here. The API server checks CEL expressions when the webhook
configuration is stored.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.engine.match.selectors import compile_selector
from reconciler.errors import InvalidPolicy, InvalidSetting

_SELECTORS = ("namespaceSelector", "objectSelector")
_WITH_VALUES = frozenset({"In", "NotIn"})
_OPERATORS = (*sorted(_WITH_VALUES), "Exists", "DoesNotExist")
_WEBHOOKS = '{"namespaceSelector": {...}, "objectSelector": {...}}'
_CONDITIONS = '[{"name": "not-a-robot", "expression": "request.userInfo.username != \'robot\'"}]'
_TEXTS = '{"example.com/key": "value"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Selectors:
    """Label selectors in API format, without empty parts; an empty one selects everything."""

    namespaces: Mapping[str, Any] = field(default_factory=dict)
    objects: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """The settings that are added to webhooks and their configurations.

    Attributes:
        conditions: For webhooks of policies that have no conditions of their own.
    """

    selectors: Selectors = field(default_factory=Selectors)
    conditions: tuple[Mapping[str, str], ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


def parse_selectors(text: str) -> Selectors:
    """Parse the key ``webhooks``: an object with selectors, or a list of one such object.

    Raises:
        InvalidSetting: The value has another form.
    """
    value = _decode(text, _WEBHOOKS, empty={})
    if isinstance(value, list):
        if len(value) > 1:
            raise InvalidSetting(
                f"it lists {len(value)} entries, but there is one webhook: keep one"
            )
        value = value[0] if value else {}
    raw = _mapping(value, "it", _SELECTORS, _WEBHOOKS)
    namespaces, objects = (_selector(raw.get(name) or {}, name) for name in _SELECTORS)
    return Selectors(namespaces=namespaces, objects=objects)


def parse_conditions(text: str) -> tuple[Mapping[str, str], ...]:
    """Parse match conditions.

    Raises:
        InvalidSetting: The value is not a list of names and expressions, or a name is repeated.
    """
    value = _decode(text, _CONDITIONS, empty=[])
    if not isinstance(value, list):
        raise InvalidSetting(f"it is not a list: write {_CONDITIONS}")
    fields = ("name", "expression")
    found = []
    for index, item in enumerate(value):
        raw = _mapping(item, f"[{index}]", fields, _CONDITIONS)
        if not all(isinstance(raw.get(name), str) and raw[name] for name in fields):
            raise InvalidSetting(
                f"[{index}] needs name and expression, both strings: write {_CONDITIONS}"
            )
        found.append(dict(raw))
    names = [item["name"] for item in found]
    if len(set(names)) < len(names):
        raise InvalidSetting("two conditions have the same name: give each its own")
    return tuple(found)


def parse_texts(text: str) -> Mapping[str, str]:
    """Parse labels or annotations.

    Raises:
        InvalidSetting: The value is not an object whose values are strings.
    """
    value = _decode(text, _TEXTS, empty={})
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise InvalidSetting(f"it is not an object of strings: write {_TEXTS}")
    return value


def _decode(text: str, form: str, *, empty: Any) -> Any:
    if not text.strip():
        raise InvalidSetting(f"it is empty, which is not JSON: write {form}, or remove the key")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidSetting(f"it is not JSON ({error}): write {form}") from error
    return empty if value is None else value


def _mapping(value: Any, place: str, allowed: tuple[str, ...], form: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidSetting(f"{place} is not an object: write {form}")
    unknown = sorted(value.keys() - set(allowed))
    if unknown:
        raise InvalidSetting(
            f"{place} has the unknown field {unknown[0]!r}: use {', '.join(allowed)}"
        )
    return value


def _selector(value: Any, place: str) -> Mapping[str, Any]:
    raw = _mapping(value, place, ("matchLabels", "matchExpressions"), _WEBHOOKS)
    present = {key: part for key, part in raw.items() if part is not None}
    labels, expressions = present.get("matchLabels", {}), present.get("matchExpressions", [])
    if not isinstance(labels, dict) or not all(isinstance(item, str) for item in labels.values()):
        raise InvalidSetting(f"{place}.matchLabels is not an object of strings: write {_TEXTS}")
    if not isinstance(expressions, list):
        raise InvalidSetting(f"{place}.matchExpressions is not a list")
    parts = {
        "matchLabels": labels,
        "matchExpressions": [
            _requirement(item, f"{place}.matchExpressions[{index}]")
            for index, item in enumerate(expressions)
        ],
    }
    selector = {key: part for key, part in parts.items() if part}
    if selector:
        try:
            compile_selector(selector, location=place)
        except InvalidPolicy as error:
            raise InvalidSetting(str(error)) from error
    return selector


def _requirement(value: Any, place: str) -> Mapping[str, Any]:
    raw = _mapping(value, place, ("key", "operator", "values"), _WEBHOOKS)
    operator, values = raw.get("operator"), raw.get("values") or []
    if not isinstance(raw.get("key"), str) or operator not in _OPERATORS:
        raise InvalidSetting(f"{place} needs a key, and an operator of {', '.join(_OPERATORS)}")
    if not isinstance(values, list) or not all(isinstance(item, str) for item in values):
        raise InvalidSetting(f"{place}.values is not a list of strings")
    if bool(values) != (operator in _WITH_VALUES):
        raise InvalidSetting(f"{place}: {operator} {'takes no' if values else 'needs'} values")
    kept = {"key": raw["key"], "operator": operator}
    return {**kept, "values": values} if values else kept
