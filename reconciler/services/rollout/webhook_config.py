"""Which webhook configurations the policies need: only what they match is asked about.

Pure: the leader resolves the kinds, reads the CA and writes the result.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from reconciler.api.globalcontext import ENTRIES
from reconciler.api.meta import (
    EXCEPTION_VERSION,
    GROUP,
    Kind,
    Object,
    own_namespaces,
)
from reconciler.dialects.registry import POLICY_KINDS
from reconciler.engine.match import KindScope, KindSelector
from reconciler.engine.program import FAIL, IGNORE, CompiledPolicy, Phase, Program
from reconciler.engine.values.wildcard import has_wildcard
from reconciler.services.catalog.policy_store import digest_of
from reconciler.services.catalog.settings import WebhookSettings
from reconciler.services.rollout import narrowing, standing

RESOURCE_CONFIGURATION = "kube-retrofit-resource"
POLICY_CONFIGURATION = "kube-retrofit-policy"
MANAGED_BY = "app.kubernetes.io/managed-by"

_DOMAIN = f"retrofit.{GROUP}"
_NAMESPACE_NAME = "kubernetes.io/metadata.name"
_LONGEST_TIMEOUT = 30
_MOST_CONDITIONS = 64
_MOST_NAMESPACES = 100
_SERVICE_PORT = 443

Kinds = Mapping[KindSelector, Sequence[Kind]]
Rules = dict[tuple[str, str, str, str], set[str]]
"""Operations by group, version, resource and scope."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where the API server finds the webhook server.

    Attributes:
        url: Base address outside a cluster; empty where the Service is used.
        service: Name of the Service, in the program's own namespace.
        ca_bundle: Certificates in PEM that the serving certificate is checked against.
    """

    url: str = ""
    service: str = ""
    ca_bundle: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookConfig:
    """What holds for all webhooks.

    Attributes:
        namespace: The program's own, which is never asked about.
        controller_users: Full names of the users whose requests are the controller's own.
        timeout: Seconds that the API server waits, where no policy asks for more.
        settings: What people add to the webhooks for triggers.
        owner: Reference of an object with which the configurations shall be removed.
    """

    endpoint: Endpoint
    namespace: str
    controller_users: tuple[str, ...]
    timeout: float
    settings: WebhookSettings = field(default_factory=WebhookSettings)
    owner: Mapping[str, Any] | None = None


def selectors(policies: Iterable[CompiledPolicy]) -> frozenset[KindSelector]:
    """Return the kinds that have to be resolved before `configurations` is called.

    The kind ``*`` needs no resolving: the webhook gets a wildcard too.
    """
    return frozenset(
        scope.selector
        for policy in policies
        for program in policy.in_phase(Phase.TRIGGERED)
        for scope in program.match.kinds()
        if not _is_wild(scope.selector)
    )


def lookup(selector: KindSelector) -> tuple[str, str]:
    """Return the ``apiVersion`` and ``kind`` by which the Kinds port finds a selector."""
    group = f"{selector.group}/" if selector.group else ""
    # Subresources by a wildcard are named by their parent: pods/*.
    named = selector.subresource and not has_wildcard(selector.subresource)
    kind = f"{selector.kind}/{selector.subresource}" if named else selector.kind
    return f"{group}{selector.version}", kind


def configurations(
    policies: Sequence[CompiledPolicy], kinds: Kinds, registration: WebhookConfig
) -> dict[str, Object]:
    """Return the configurations by name, with every default that the API server would set.

    Args:
        policies: All that can act.
        kinds: What each of `selectors` resolves to; a kind that is not served may be absent.
        registration: What holds for all webhooks.
    """
    webhooks = [
        webhook
        for failure_policy in (FAIL, IGNORE)
        for webhook in _resource_webhooks(failure_policy, policies, kinds, registration)
    ]
    return {
        RESOURCE_CONFIGURATION: _configuration(RESOURCE_CONFIGURATION, webhooks, registration),
        POLICY_CONFIGURATION: _configuration(
            POLICY_CONFIGURATION,
            [
                _written(
                    "policy",
                    "/policies",
                    ((kind.group, kind.version, kind.plural) for kind in (*POLICY_KINDS, ENTRIES)),
                    registration,
                    standing.harmless_edits(),
                ),
                _written(
                    "exception",
                    "/exceptions",
                    ((GROUP, EXCEPTION_VERSION, "policyexceptions"),),
                    registration,
                ),
            ],
            registration,
        ),
    }


def silent(registration: WebhookConfig) -> dict[str, Object]:
    """Return the configurations of a program that stands by: nobody is asked anything."""
    return {
        name: _configuration(name, (), registration)
        for name in (RESOURCE_CONFIGURATION, POLICY_CONFIGURATION)
    }


def _resource_webhooks(
    failure_policy: str,
    policies: Sequence[CompiledPolicy],
    kinds: Kinds,
    registration: WebhookConfig,
) -> Iterable[Object]:
    # A replica that has not heard of these policies is told so by the address.
    base = f"/at/{digest_of(policies)}/validate/{failure_policy.lower()}"
    chosen = [item for item in policies if item.failure_policy == failure_policy]
    shared = [item for item in chosen if not item.match_conditions]
    groups = [(failure_policy.lower(), base, shared)]
    # Conditions hold for a whole webhook, so a policy that has some gets one of its own.
    groups += [
        (
            f"{failure_policy.lower()}-{blake2b(item.key.encode(), digest_size=6).hexdigest()}",
            f"{base}/{item.key}",
            [item],
        )
        for item in chosen
        if item.match_conditions
    ]
    for name, path, members in groups:
        if rules := _rules(members, kinds):
            yield _webhook(
                f"{name}.{_DOMAIN}",
                path,
                rules,
                registration,
                failurePolicy=failure_policy,
                sideEffects="NoneOnDryRun",
                timeoutSeconds=_timeout(members, registration.timeout),
                namespaceSelector=_namespace_selector(members, registration),
                objectSelector=dict(registration.settings.selectors.objects),
                matchConditions=_conditions(members, kinds, registration),
            )


def _written(
    name: str,
    path: str,
    resources: Iterable[tuple[str, str, str]],
    registration: WebhookConfig,
    conditions: Sequence[Object] = (),
) -> Object:
    """Return the webhook that is asked when people write objects of ours."""
    rules: Rules = {(*resource, "*"): {"CREATE", "UPDATE"} for resource in resources}
    return _webhook(
        f"{name}.{_DOMAIN}",
        path,
        _render_rules(rules),
        registration,
        failurePolicy="Fail",
        sideEffects="None",
        timeoutSeconds=_timeout((), registration.timeout),
        namespaceSelector={},
        objectSelector={},
        matchConditions=list(conditions),
    )


def _configuration(name: str, webhooks: Sequence[Object], registration: WebhookConfig) -> Object:
    settings, owner = registration.settings, registration.owner
    meta: Object = {"name": name, "labels": {**settings.labels, MANAGED_BY: "kube-retrofit"}}
    if settings.annotations:
        meta["annotations"] = dict(settings.annotations)
    if owner is not None:
        meta["ownerReferences"] = [dict(owner)]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": meta,
        "webhooks": list(webhooks),
    }


def _webhook(
    name: str, path: str, rules: Sequence[Object], registration: WebhookConfig, **settings: Any
) -> Object:
    conditions = settings.pop("matchConditions")
    webhook = {
        "name": name,
        "admissionReviewVersions": ["v1"],
        "clientConfig": _client(path, registration),
        "rules": list(rules),
        # Without it a write through another version of the same resource would go unseen.
        "matchPolicy": "Equivalent",
        **settings,
    }
    return webhook | ({"matchConditions": conditions} if conditions else {})


def _client(path: str, registration: WebhookConfig) -> Object:
    endpoint = registration.endpoint
    bundle = base64.b64encode(endpoint.ca_bundle).decode()
    if endpoint.url:
        return {"url": endpoint.url.rstrip("/") + path, "caBundle": bundle}
    service = {
        "name": endpoint.service,
        "namespace": registration.namespace,
        "path": path,
        "port": _SERVICE_PORT,
    }
    return {"service": service, "caBundle": bundle}


def _namespace_selector(policies: Sequence[CompiledPolicy], registration: WebhookConfig) -> Object:
    # The selector is also asked about Namespace objects themselves, by their own labels.
    never = own_namespaces(registration.namespace) | {"kube-system"}
    only = _namespaces(policies)
    own: Object = {"key": _NAMESPACE_NAME, "operator": "NotIn", "values": sorted(never)}
    if only is not None and 0 < len(only - never) <= _MOST_NAMESPACES:
        own = {"key": _NAMESPACE_NAME, "operator": "In", "values": sorted(only - never)}
    added = registration.settings.selectors.namespaces
    return {**added, "matchExpressions": [own, *added.get("matchExpressions", ())]}


def _namespaces(policies: Iterable[CompiledPolicy]) -> set[str] | None:
    """Return the only namespaces in which the policies match, None where that is not said."""
    found: set[str] = set()
    for policy in policies:
        for program in policy.in_phase(Phase.TRIGGERED):
            names = (policy.namespace,) if policy.namespace else program.match.namespaces
            if names is None:
                return None
            found.update(names)
    return found


def _timeout(policies: Iterable[CompiledPolicy], default: float) -> int:
    wanted = [item.timeout for item in policies if item.timeout is not None]
    return min(_LONGEST_TIMEOUT, max([max(1, round(default)), *wanted]))


def _conditions(
    policies: Sequence[CompiledPolicy], kinds: Kinds, registration: WebhookConfig
) -> list[Object]:
    written = [dict(item) for policy in policies for item in policy.match_conditions]
    written = written or [dict(item) for item in registration.settings.conditions]
    programs = [program for policy in policies for program in policy.in_phase(Phase.TRIGGERED)]
    if all(program.skip_background for program in programs) and len(written) < _MOST_CONDITIONS:
        # Saves the call for each of our own writes of targets.
        users = ", ".join(f"'{user}'" for user in registration.controller_users)
        own = f"!(request.userInfo.username in [{users}])"
        # After them, so that an index in what the API server says is the author's index.
        written.append({"name": "kube-retrofit-own-writes", "expression": own})
    # What keeps a cluster alive comes before what only saves calls.
    written += standing.exclusions(policies, kinds, _MOST_CONDITIONS - len(written))
    return written + narrowing.conditions(policies, kinds, _MOST_CONDITIONS - len(written))


def _rules(policies: Iterable[CompiledPolicy], kinds: Kinds) -> list[Object]:
    rules: Rules = {}
    for policy in policies:
        for program in policy.in_phase(Phase.TRIGGERED):
            for scope in program.match.kinds():
                operations = _operations(program, scope)
                for place in _places(scope.selector, kinds, namespaced=bool(policy.namespace)):
                    rules.setdefault(place, set()).update(operations)
    return _render_rules(rules)


def _operations(program: Program, scope: KindScope) -> set[str]:
    if scope.operations:
        return set(scope.operations)
    operations = {"CREATE", "UPDATE"}
    # DELETE fires a rule that lists it anywhere, and then for all its kinds.
    if any("DELETE" in other.operations for other in program.match.kinds()):
        operations.add("DELETE")
    if scope.selector.subresource:
        operations.add("CONNECT")
    return operations


def _places(
    selector: KindSelector, kinds: Kinds, *, namespaced: bool
) -> Iterable[tuple[str, str, str, str]]:
    """Yield group, version, resource and scope of what a selector means."""
    if _is_wild(selector):
        scope = "Namespaced" if namespaced else "*"
        resource = _joined("*", selector.subresource)
        yield _pattern(selector.group), _pattern(selector.version), resource, scope
        return
    for kind in kinds.get(selector, ()):
        if namespaced and not kind.namespaced:
            continue
        scope = "Namespaced" if kind.namespaced else "Cluster"
        resource = _joined(kind.plural, selector.subresource)
        yield kind.group, kind.version, resource, scope
        if kind.plural == "pods" and not kind.group and not selector.subresource:
            # An ephemeral container is a change of the Pod to whoever selects Pods.
            yield kind.group, kind.version, "pods/ephemeralcontainers", scope


def _joined(plural: str, subresource: str) -> str:
    return f"{plural}/{_pattern(subresource)}" if subresource else plural


def _pattern(text: str) -> str:
    # The API server knows only the whole wildcard; the matcher narrows it down again.
    return "*" if has_wildcard(text) else text


def _is_wild(selector: KindSelector) -> bool:
    return selector.kind == "*"


def _render_rules(rules: Rules) -> list[Object]:
    merged: dict[tuple[str, str, str, tuple[str, ...]], list[str]] = {}
    for (group, version, resource, scope), operations in rules.items():
        key = (group, version, scope, tuple(sorted(operations)))
        merged.setdefault(key, []).append(resource)
    return [
        {
            "apiGroups": [group],
            "apiVersions": [version],
            "resources": sorted(resources),
            "operations": list(operations),
            "scope": scope,
        }
        for (group, version, scope, operations), resources in sorted(merged.items())
    ]
