"""Builds the webhook configurations of a program's hooks, without I/O."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from reconciler.api.meta import PREFIX, Object
from reconciler.engine.match.selectors import LabelSelector
from reconciler.hooks.bindings import AdmissionBinding
from reconciler.services.catalog.protection import outside_of_them
from reconciler.services.hooks.answering import AskedBinding
from reconciler.services.ports.webhooks import (
    MANAGED_BY,
    MUTATING,
    ConfigurationRef,
    Endpoint,
    render_configuration,
)

MANAGER: Final = "retrofit-hooks"
OWNER: Final = f"{PREFIX}hooks-in"
"""The annotation with the namespace of the program that owns a configuration."""
_SPARED: Final = ("authentication.k8s.io", "authorization.k8s.io", "coordination.k8s.io")
"""API groups that a rule for all groups excludes: while no hook answers, no node or leader could
renew its Lease, and no authentication or authorization request would be answered."""


def path_of(asked: AskedBinding) -> str:
    """Return the URL path at which a binding is called."""
    return f"/{'mutating' if asked.mutating else 'validating'}/{asked.binding.name}"


def configuration(
    ref: ConfigurationRef,
    asked: Sequence[AskedBinding],
    endpoint: Endpoint,
    namespace: str,
    owner: Mapping[str, Any] | None,
) -> Object:
    """Return a webhook configuration of the program in a namespace.

    It has every default that the API server would set.
    """
    return render_configuration(
        ref,
        (_webhook(ref.kind, item, endpoint, namespace) for item in asked),
        labels={MANAGED_BY: MANAGER},
        annotations={OWNER: namespace},
        owner=owner,
    )


def _webhook(kind: str, asked: AskedBinding, endpoint: Endpoint, namespace: str) -> Object:
    binding = asked.binding
    found: Object = {
        "name": binding.name,
        "admissionReviewVersions": ["v1"],
        "clientConfig": endpoint.client(namespace, path_of(asked)),
        "rules": [{"scope": "*", **_listed(rule)} for rule in binding.rules],
        "matchPolicy": "Equivalent",
        "failurePolicy": binding.failure_policy,
        "sideEffects": binding.side_effects,
        "timeoutSeconds": binding.timeout,
        "namespaceSelector": _namespaces(binding, namespace),
        "objectSelector": _selector(binding.object_labels),
    }
    if conditions := [*map(dict, binding.conditions), *_spared(binding)]:
        found["matchConditions"] = conditions
    if kind == MUTATING:
        found["reinvocationPolicy"] = "Never"
    return found


def _spared(binding: AdmissionBinding) -> Iterator[Object]:
    groups = {group for rule in binding.rules for group in rule["apiGroups"]}
    # A group that another rule names explicitly is not excluded.
    left = [group for group in _SPARED if group not in groups]
    if "*" in groups and left:
        listed = ", ".join(f"'{group}'" for group in left)
        expression = f"!(request.resource.group in [{listed}])"
        yield {"name": f"{PREFIX}spared-groups", "expression": expression}


def _listed(rule: Mapping[str, Any]) -> Object:
    return {name: list(item) if isinstance(item, tuple) else item for name, item in rule.items()}


def _namespaces(binding: AdmissionBinding, namespace: str) -> Object:
    chosen = _selector(binding.namespace_labels)
    own = outside_of_them(namespace)
    return {**chosen, "matchExpressions": [own, *chosen.get("matchExpressions", ())]}


def _selector(labels: LabelSelector | None) -> Object:
    if labels is None:
        return {}
    found: Object = {}
    if labels.source.get("matchLabels"):
        found["matchLabels"] = dict(labels.source["matchLabels"])
    if expressions := labels.source.get("matchExpressions"):
        # Exists and DoesNotExist must not have values, not even an empty list.
        found["matchExpressions"] = [
            {name: value for name, value in item.items() if value} for item in expressions
        ]
    return found
