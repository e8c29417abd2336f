"""Computation of the webhook configurations, which cover only what the policies match.

The functions are pure: the leader resolves the kinds, reads the CA and writes the result.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, NamedTuple

from reconciler.api.kinds import kinds_of
from reconciler.api.meta import Kind, Object
from reconciler.dialects.registry import DIALECTS, required_kinds
from reconciler.engine.program import FAIL, IGNORE, CompiledPolicy, Phase, Program
from reconciler.hooks.declared import HOOK_KINDS
from reconciler.installation import REPLACING, Installation
from reconciler.services.catalog.lone_rules import LoneRule
from reconciler.services.catalog.policy_store import digest_of
from reconciler.services.catalog.protection import (
    NAMESPACE_NAME,
    outside_of_them,
    standing_namespaces,
)
from reconciler.services.catalog.settings import WebhookSettings
from reconciler.services.ports.webhooks import (
    MANAGED_BY,
    MUTATING,
    VALIDATING,
    ConfigurationRef,
    Endpoint,
    render_configuration,
)
from reconciler.services.rollout import narrowing, own_sweeps, standing, webhook_rules
from reconciler.services.rollout.webhook_rules import Kinds, Rules, programs_of

VALIDATE = "validate"
CHANGE, CHANGE_ONCE = "mutate", "mutate-once"
"""Parts of the webhook paths: for recording triggers, and for rules that change the object."""

CHAINS = {f"{CHANGE}-{dialect.name}": dialect.name for dialect in DIALECTS if dialect.optional}
"""Path parts for languages with tiers; the rules of all policies of one share a webhook."""

FORCED = "all"
"""Replaces the failure policy in a path if ``Ignore`` is forced on all policies."""

_LONGEST_TIMEOUT = 30
_MOST_CONDITIONS = 64
_MOST_NAMESPACES = 100


class ConfigurationRefs(NamedTuple):
    """The configurations of one installation: for triggers, for changes, and for policies."""

    resource: ConfigurationRef
    mutating: ConfigurationRef
    policy: ConfigurationRef


def refs_of(installation: Installation) -> ConfigurationRefs:
    """Return the references of an installation's three webhook configurations."""
    resource, policy = f"{installation.prefix}-resource", f"{installation.prefix}-policy"
    return ConfigurationRefs(
        resource=ConfigurationRef(VALIDATING, resource),
        mutating=ConfigurationRef(MUTATING, resource),
        policy=ConfigurationRef(VALIDATING, policy),
    )


RESOURCE_CONFIGURATION, MUTATING_CONFIGURATION, POLICY_CONFIGURATION = refs_of(REPLACING)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookConfig:
    """The parameters that all webhooks share.

    Attributes:
        namespace: The program's own namespace, for which no webhook is called.
        controller_users: Full names of the users whose requests are the controller's own.
        timeout: Seconds that the API server waits, unless a policy requires more.
        owner: Reference of an object with which the configurations are deleted.
        forces_ignore: All policies have ``Ignore``, whatever their authors wrote.
        policy_kinds: The kinds of policies that are validated when they are written, None for
            those that every cluster with this installation has.
    """

    endpoint: Endpoint
    namespace: str
    controller_users: tuple[str, ...]
    timeout: float
    settings: WebhookSettings = field(default_factory=WebhookSettings)
    owner: Mapping[str, Any] | None = None
    forces_ignore: bool = False
    installation: Installation = REPLACING
    policy_kinds: Sequence[Kind] | None = None


def configurations(
    policies: Sequence[CompiledPolicy], kinds: Kinds, config: WebhookConfig
) -> dict[ConfigurationRef, Object]:
    """Return the configurations, with every default that the API server would set.

    Args:
        policies: All policies that can act.
        kinds: The kinds that each of `selectors` resolves to; an unserved kind may be absent.
    """
    given = _Given(
        # It shows a replica that its policies are not up to date.
        at=f"/at/{digest_of(policies)}",
        kinds=kinds,
        config=config,
        lone=own_sweeps.lone_rules(policies, kinds),
    )
    webhooks = _recording(policies, given), _mutating(policies, given), _of_authors(config)
    refs = refs_of(config.installation)
    return {
        ref: _configuration(ref, found, config) for ref, found in zip(refs, webhooks, strict=True)
    }


def silent(config: WebhookConfig) -> dict[ConfigurationRef, Object]:
    """Return the configurations of a program that stands by, which have no webhooks."""
    refs = refs_of(config.installation)
    return {ref: _configuration(ref, (), config) for ref in refs}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """What all webhooks for users' objects are made from, besides their policies.

    Attributes:
        at: The first parts of their paths, with the digest of all policies.
        lone: The lone rules of all policies.
    """

    at: str
    kinds: Kinds
    config: WebhookConfig
    lone: frozenset[LoneRule]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Policies that share a webhook.

    Attributes:
        path: The path that the API server calls.
    """

    name: str
    path: str
    failure_policy: str
    members: Sequence[CompiledPolicy]


def _groups(route: str, policies: Iterable[CompiledPolicy], given: _Given) -> Iterator[_Group]:
    """Yield the policy groups of one route; each becomes a webhook.

    Match conditions apply to a whole webhook, so a policy with conditions gets its own. The
    admission server uses the policies as written, so the path tells if ``Ignore`` is forced.
    """
    chosen, forced = list(policies), given.config.forces_ignore
    for failure_policy in (FAIL, IGNORE):
        those = [item for item in chosen if item.failure_policy == failure_policy]
        group = _Group(
            name=failure_policy.lower(),
            path=f"{given.at}/{route}/{FORCED if forced else failure_policy.lower()}",
            failure_policy=failure_policy,
            members=[item for item in those if not item.match_conditions],
        )
        yield group
        for item in those:
            if item.match_conditions:
                digest = blake2b(item.key.encode(), digest_size=6).hexdigest()
                path = f"{group.path}/{item.key}"
                yield replace(group, name=f"{group.name}-{digest}", path=path, members=[item])


def _recording(policies: Iterable[CompiledPolicy], given: _Given) -> Iterator[Object]:
    """Yield the webhooks that record triggers of rules with targets and evaluate verdicts."""
    for group in _groups(VALIDATE, policies, given):
        programs = programs_of(group.members, Phase.TRIGGERED, Phase.VERDICT)
        if rules := webhook_rules.recorded(programs, given.kinds):
            yield _of_rules(group, programs, given, rules=rules, sideEffects="NoneOnDryRun")


def _mutating(policies: Sequence[CompiledPolicy], given: _Given) -> Iterator[Object]:
    """Yield the webhooks for rules that change the object before it is stored.

    The API server reinvokes a webhook if a later one changed the object. A rule that adds to a
    list by position would then add again, and a policy that applies only one rule would apply the
    next. So the webhook of such a policy is called once. Its rules stay together, as each acts on
    the result of those before it, and so do all rules in the tiers of one language.
    """
    for route, chosen in _by_route(policies):
        for group in _groups(route, chosen, given):
            programs = programs_of(group.members, Phase.ADMISSION)
            if rules := webhook_rules.changed(programs, given.kinds):
                once = any(item.acts_once for item in group.members)
                named = replace(group, name=f"{route}-{group.name}")
                # Loading data may have side effects in the service that is called.
                asks = any(program.binding.loads for program in programs)
                yield _of_rules(
                    named,
                    programs,
                    given,
                    rules=rules,
                    sideEffects="NoneOnDryRun" if asks else "None",
                    reinvocationPolicy="Never" if once else "IfNeeded",
                )


def _by_route(policies: Sequence[CompiledPolicy]) -> Iterator[tuple[str, list[CompiledPolicy]]]:
    """Yield the policies of each route, in the order in which the API server calls the routes."""
    alone = [item for item in policies if not item.chained]
    yield CHANGE, [item for item in alone if not item.acts_once]
    yield CHANGE_ONCE, [item for item in alone if item.acts_once]
    for route, dialect in CHAINS.items():
        yield route, [item for item in policies if item.chained == dialect]


def _of_rules(
    group: _Group,
    programs: Sequence[Program],
    given: _Given,
    *,
    rules: Sequence[Object],
    **settings: Any,
) -> Object:
    config, reinvoked = given.config, settings.get("reinvocationPolicy") == "IfNeeded"
    return _webhook(
        f"{group.name}.retrofit.{config.installation.group}",
        group.path,
        rules,
        config,
        failurePolicy=group.failure_policy,
        timeoutSeconds=_timeout(group.members, config.timeout),
        namespaceSelector=_namespace_selector(programs, config),
        objectSelector=_object_selector(group.members, config),
        matchConditions=_conditions(
            group.members, programs, given, labels_are_final=not reinvoked
        ),
        **settings,
    )


def _of_authors(config: WebhookConfig) -> Iterator[Object]:
    """Yield the webhooks that validate policies, global entries, hooks and exceptions."""
    own, policies = kinds_of(config.installation), config.policy_kinds
    if policies is None:
        policies = required_kinds(config.installation)
    yield _written(
        "policy",
        "/policies",
        (*policies, own.entries, *HOOK_KINDS),
        config,
        standing.harmless_edits(),
    )
    yield _written("exception", "/exceptions", (own.exceptions,), config)


def _written(
    name: str,
    path: str,
    kinds: Iterable[Kind],
    config: WebhookConfig,
    conditions: Sequence[Object] = (),
) -> Object:
    rules: Rules = {
        (kind.group, kind.version, kind.plural, "*"): {"CREATE", "UPDATE"} for kind in kinds
    }
    return _webhook(
        f"{name}.retrofit.{config.installation.group}",
        path,
        webhook_rules.render_rules(rules),
        config,
        failurePolicy="Fail",
        sideEffects="None",
        timeoutSeconds=_timeout((), config.timeout),
        namespaceSelector={},
        objectSelector={},
        matchConditions=list(conditions),
    )


def _configuration(
    ref: ConfigurationRef, webhooks: Iterable[Object], config: WebhookConfig
) -> Object:
    settings, managed = config.settings, {MANAGED_BY: config.installation.prefix}
    return render_configuration(
        ref,
        webhooks,
        labels={**settings.labels, **managed},
        annotations=settings.annotations,
        owner=config.owner,
    )


def _webhook(
    name: str, path: str, rules: Sequence[Object], config: WebhookConfig, **settings: Any
) -> Object:
    conditions = settings.pop("matchConditions")
    webhook = {
        "name": name,
        "admissionReviewVersions": ["v1"],
        "clientConfig": config.endpoint.client(config.namespace, path),
        "rules": list(rules),
        # Otherwise a write through another version of the same resource would be missed.
        "matchPolicy": "Equivalent",
        **settings,
    }
    return webhook | ({"matchConditions": conditions} if conditions else {})


def _namespace_selector(programs: Iterable[Program], config: WebhookConfig) -> Object:
    own = outside_of_them(config.namespace)
    if only := _selected(programs, config):
        own = {"key": NAMESPACE_NAME, "operator": "In", "values": sorted(only)}
    added = config.settings.selectors.namespaces
    return {**added, "matchExpressions": [own, *added.get("matchExpressions", ())]}


def _selected(programs: Iterable[Program], config: WebhookConfig) -> frozenset[str] | None:
    """Return the only namespaces that the webhook selects, None if it cannot list them."""
    only = _namespaces(programs)
    left = frozenset() if only is None else frozenset(only) - standing_namespaces(config.namespace)
    return left if 0 < len(left) <= _MOST_NAMESPACES else None


def _object_selector(policies: Iterable[CompiledPolicy], config: WebhookConfig) -> Object:
    """Return the label selector for the objects of a webhook.

    If the policies require different labels, their labels exclude no object.
    """
    found: Object = dict(config.settings.selectors.objects)
    labels = {policy.object_labels for policy in policies}
    wanted = [
        {"key": key, "operator": "In", "values": [value]}
        for key, value in (labels.pop() if len(labels) == 1 else ())
    ]
    if not wanted:
        return found
    return {**found, "matchExpressions": [*found.get("matchExpressions", ()), *wanted]}


def _namespaces(programs: Iterable[Program]) -> set[str] | None:
    """Return the only namespaces in which the rules match, None if a rule names none."""
    found: set[str] = set()
    for program in programs:
        own = program.origin.namespace
        names = (own,) if own else program.match.namespaces
        if names is None:
            return None
        found.update(names)
    return found


def _timeout(policies: Iterable[CompiledPolicy], default: float) -> int:
    wanted = [item.timeout for item in policies if item.timeout is not None]
    return min(_LONGEST_TIMEOUT, max([max(1, round(default)), *wanted]))


def _conditions(
    policies: Iterable[CompiledPolicy],
    programs: Sequence[Program],
    given: _Given,
    *,
    labels_are_final: bool,
) -> list[Object]:
    kinds, config = given.kinds, given.config
    written = [dict(item) for policy in policies for item in policy.match_conditions]
    written = written or [dict(item) for item in config.settings.conditions]
    if all(program.skip_background for program in programs) and len(written) < _MOST_CONDITIONS:
        # Saves the call for each of the controller's own writes of a target.
        users = ", ".join(f"'{user}'" for user in config.controller_users)
        own = f"!(request.userInfo.username in [{users}])"
        # Appended last, so that an index in an error of the API server is the author's index.
        written.append({"name": "kube-retrofit-own-writes", "expression": own})
    # Conditions that keep a cluster alive take precedence over those that only save calls.
    written += standing.exclusions(programs, kinds, _MOST_CONDITIONS - len(written))
    written += own_sweeps.conditions(
        programs, given.lone, config.controller_users, _MOST_CONDITIONS - len(written)
    )
    return written + narrowing.conditions(
        programs,
        kinds,
        _MOST_CONDITIONS - len(written),
        selected=_selected(programs, config),
        labels_are_final=labels_are_final,
    )
