"""Parser of bindings that the API server calls: admission and conversion.

A validating binding must meet the API server's rules for webhook configurations, because its name
and rules are copied there. For a mutating one only the types of its fields are checked, as in the
original.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from reconciler.hooks import selection
from reconciler.hooks.bindings import AdmissionBinding, ConversionBinding
from reconciler.hooks.fields import Fields

_OPERATIONS: Final = ("CREATE", "UPDATE", "DELETE", "CONNECT", "*")
_SCOPES: Final = ("Cluster", "Namespaced", "*")
_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_DOMAIN: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL}){{2,}}")
_LONGEST_NAME: Final = 253
NAME_RULE: Final = "must be a domain of at least three segments, such as pods.example.com"
_DEFAULT_TIMEOUT: Final = 10
_LONGEST_TIMEOUT: Final = 30


def is_webhook_name(name: str) -> bool:
    """Return whether the API server accepts a name for a webhook."""
    return bool(_DOMAIN.fullmatch(name)) and len(name) <= _LONGEST_NAME


def validating(parts: Sequence[Fields]) -> tuple[AdmissionBinding, ...]:
    """Read the validating bindings."""
    found = mutating(parts)
    names: set[str] = set()
    for fields, binding in zip(parts, found, strict=True):
        if "name" in fields:
            _check_name(fields, binding.name, names)
        if not 1 <= binding.timeout <= _LONGEST_TIMEOUT:
            fields.refuse("timeoutSeconds", f"must be from 1 to {_LONGEST_TIMEOUT}")
        for index, rule in enumerate(binding.rules):
            _check_rule(fields, f"rules[{index}]", rule)
    return found


def mutating(parts: Sequence[Fields]) -> tuple[AdmissionBinding, ...]:
    """Read the mutating bindings."""
    return tuple(_admission(fields) for fields in parts)


def conversions(parts: Sequence[Fields]) -> tuple[ConversionBinding, ...]:
    """Read the conversion bindings."""
    return tuple(_conversion(fields) for fields in parts)


def _admission(fields: Fields) -> AdmissionBinding:
    fields.require("name")
    timeout = fields.integer("timeoutSeconds")
    found = AdmissionBinding(
        name=fields.text("name"),
        rules=tuple(_rule(part) for part in fields.parts("rules", least=1)),
        conditions=tuple(_condition(part) for part in fields.parts("matchConditions")),
        object_labels=selection.labels(fields),
        namespace_labels=_namespace_labels(fields.part("namespace")),
        failure_policy=fields.text("failurePolicy", "Fail", among=("Ignore", "Fail")),
        side_effects=fields.text("sideEffects", "None", among=("None", "NoneOnDryRun")),
        timeout=_DEFAULT_TIMEOUT if timeout is None else timeout,
        snapshots=fields.texts("includeSnapshotsFrom", least=1),
        group=fields.text("group"),
    )
    fields.close()
    return found


def _namespace_labels(fields: Fields | None) -> Any:
    if fields is None:
        return None
    fields.require("labelSelector")
    found = selection.labels(fields)
    fields.close()
    return found


def _rule(fields: Fields) -> Mapping[str, Any]:
    fields.require("apiVersions", "apiGroups", "resources", "operations")
    found: dict[str, Any] = {
        "operations": fields.texts("operations", least=1, among=_OPERATIONS),
        "apiGroups": fields.texts("apiGroups", least=1),
        "apiVersions": fields.texts("apiVersions", least=1),
        "resources": fields.texts("resources", least=1),
    }
    if "scope" in fields:
        found["scope"] = fields.text("scope", among=_SCOPES)
    fields.close()
    return found


def _condition(fields: Fields) -> Mapping[str, Any]:
    # Unknown fields are accepted, as in the original.
    fields.require("expression", "name")
    return {"name": fields.text("name"), "expression": fields.text("expression")}


def _conversion(fields: Fields) -> ConversionBinding:
    fields.require("name", "crdName", "conversions")
    found = ConversionBinding(
        name=fields.text("name"),
        crd=fields.text("crdName"),
        conversions=tuple(_step(part) for part in fields.parts("conversions", least=1)),
        snapshots=fields.texts("includeSnapshotsFrom", least=1),
        group=fields.text("group"),
    )
    fields.close()
    return found


def _step(fields: Fields) -> tuple[str, str]:
    fields.require("fromVersion", "toVersion")
    found = fields.text("fromVersion"), fields.text("toVersion")
    fields.close()
    return found


def _check_name(fields: Fields, name: str, names: set[str]) -> None:
    if not is_webhook_name(name):
        fields.refuse("name", f"{name!r} {NAME_RULE}")
    if name in names:
        fields.refuse("name", f"another binding is already named {name!r}")
    names.add(name)


def _check_rule(fields: Fields, place: str, rule: Mapping[str, Any]) -> None:
    for name in ("operations", "apiGroups", "apiVersions"):
        if "*" in rule[name] and len(rule[name]) > 1:
            fields.refuse(f"{place}.{name}", "'*' means all: nothing else may be listed")
    for name in ("apiVersions", "resources"):
        if "" in rule[name]:
            fields.refuse(f"{place}.{name}", "an empty string is not a name")
    for reason in _overlaps(rule["resources"]):
        fields.refuse(f"{place}.resources", reason)


def _overlaps(resources: Sequence[str]) -> Iterator[str]:
    """Yield which wildcards make other entries redundant.

    By the API server's rules a wildcard covers the entries after it, ``*/*`` covers all, and ``*``
    covers the last entry without a subresource.
    """
    seen: set[str] = set()
    for resource in resources:
        name, slash, subresource = resource.partition("/")
        covers = {f"{name}/*", f"*/{subresource}"} & seen if slash else set()
        yield from (f"{wide!r} already covers {resource!r}: remove it" for wide in sorted(covers))
        seen.add(resource)
    if "*/*" in resources and len(resources) > 1:
        yield "'*/*' means all: nothing else may be listed"
    whole = [resource for resource in resources if resource and "/" not in resource]
    if "*" in whole and whole[-1] != "*":
        yield f"'*' already covers {whole[-1]!r}: remove it"
