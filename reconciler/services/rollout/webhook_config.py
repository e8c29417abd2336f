"""Which webhook configurations the policies need: only what they match is asked about.

Pure: the leader resolves the kinds, reads the CA and writes the result.
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
"""Parts of the addresses: for what is recorded, and for rules that change what is written."""

CHAINS = {f"{CHANGE}-{dialect.name}": dialect.name for dialect in DIALECTS if dialect.optional}
"""The same for rules that stand in the tiers of a language, those of all its policies together."""

FORCED = "all"
"""Stands in an address for the failure policy where all policies have ``Ignore`` by force."""

_LONGEST_TIMEOUT = 30
_MOST_CONDITIONS = 64
_MOST_NAMESPACES = 100


class ConfigurationRefs(NamedTuple):
    """The configurations of one installation: of triggers, of changes, and of policies."""

    resource: ConfigurationRef
    mutating: ConfigurationRef
    policy: ConfigurationRef


def refs_of(installation: Installation) -> ConfigurationRefs:
    """Return which they are."""
    resource, policy = f"{installation.prefix}-resource", f"{installation.prefix}-policy"
    return ConfigurationRefs(
        resource=ConfigurationRef(VALIDATING, resource),
        mutating=ConfigurationRef(MUTATING, resource),
        policy=ConfigurationRef(VALIDATING, policy),
    )


RESOURCE_CONFIGURATION, MUTATING_CONFIGURATION, POLICY_CONFIGURATION = refs_of(REPLACING)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookConfig:
    """What holds for all webhooks.

    Attributes:
        namespace: The program's own, which is never asked about.
        controller_users: Full names of the users whose requests are the controller's own.
        timeout: Seconds that the API server waits, where no policy asks for more.
        settings: What people add to the webhooks for triggers.
        owner: Reference of an object with which the configurations are removed.
        forces_ignore: All policies are under ``Ignore``, whatever their authors wrote.
        installation: Whose they are.
        policy_kinds: The kinds of policies that are looked at when they are written; None: those
            that every cluster with this installation has.
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
        policies: All that can act.
        kinds: What each of `selectors` resolves to; a kind that is not served may be absent.
        config: What holds for all webhooks.
    """
    # A replica that has not heard of these policies learns of them by the address.
    at = f"/at/{digest_of(policies)}"
    lone = own_sweeps.lone_rules(policies, kinds)
    webhooks = (
        _recording(at, policies, kinds, config, lone),
        _mutating(at, policies, kinds, config, lone),
        _of_authors(config),
    )
    refs = refs_of(config.installation)
    return {
        ref: _configuration(ref, found, config) for ref, found in zip(refs, webhooks, strict=True)
    }


def silent(config: WebhookConfig) -> dict[ConfigurationRef, Object]:
    """Return the configurations of a program that stands by: nobody is asked anything."""
    refs = refs_of(config.installation)
    return {ref: _configuration(ref, (), config) for ref in refs}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Policies that share a webhook.

    Attributes:
        name: Of the webhook, in its configuration.
        path: Of its address.
    """

    name: str
    path: str
    failure_policy: str
    members: Sequence[CompiledPolicy]


def _groups(
    base: str, policies: Iterable[CompiledPolicy], config: WebhookConfig
) -> Iterator[_Group]:
    """Yield the webhooks of one route.

    Conditions hold for a whole webhook, so a policy that has some gets one of its own. Whoever
    answers knows the policies as they were written, so the address says what is forced on them.
    """
    chosen = list(policies)
    for failure_policy in (FAIL, IGNORE):
        those = [item for item in chosen if item.failure_policy == failure_policy]
        group = _Group(
            name=failure_policy.lower(),
            path=f"{base}/{FORCED if config.forces_ignore else failure_policy.lower()}",
            failure_policy=failure_policy,
            members=[item for item in those if not item.match_conditions],
        )
        yield group
        for item in those:
            if item.match_conditions:
                digest = blake2b(item.key.encode(), digest_size=6).hexdigest()
                path = f"{group.path}/{item.key}"
                yield replace(group, name=f"{group.name}-{digest}", path=path, members=[item])


def _recording(
    at: str,
    policies: Iterable[CompiledPolicy],
    kinds: Kinds,
    config: WebhookConfig,
    lone: frozenset[LoneRule],
) -> Iterator[Object]:
    """Yield the webhooks that record what triggers rules with targets, if no rule refuses it."""
    for group in _groups(f"{at}/{VALIDATE}", policies, config):
        programs = programs_of(group.members, Phase.TRIGGERED, Phase.VERDICT)
        if rules := webhook_rules.recorded(programs, kinds):
            yield _of_rules(
                group,
                programs,
                kinds,
                config,
                lone,
                rules=rules,
                sideEffects="NoneOnDryRun",
            )


def _mutating(
    at: str,
    policies: Sequence[CompiledPolicy],
    kinds: Kinds,
    config: WebhookConfig,
    lone: frozenset[LoneRule],
) -> Iterator[Object]:
    """Yield the webhooks for rules that change what is written.

    The API server asks again when a later webhook changed the object. What a rule adds by
    position it would add again, and a policy that applies one rule would apply the next: such a
    policy is asked once, and its rules stay together, for each acts on what those before it made.
    So do all rules that stand in the tiers of one language.
    """
    for route, chosen in _by_route(policies):
        for group in _groups(f"{at}/{route}", chosen, config):
            programs = programs_of(group.members, Phase.ADMISSION)
            if rules := webhook_rules.changed(programs, kinds):
                once = any(item.acts_once for item in group.members)
                named = replace(group, name=f"{route}-{group.name}")
                # Whoever is asked for data may do something at that.
                asks = any(program.binding.loads for program in programs)
                yield _of_rules(
                    named,
                    programs,
                    kinds,
                    config,
                    lone,
                    rules=rules,
                    sideEffects="NoneOnDryRun" if asks else "None",
                    reinvocationPolicy="Never" if once else "IfNeeded",
                )


def _by_route(
    policies: Sequence[CompiledPolicy],
) -> Iterator[tuple[str, list[CompiledPolicy]]]:
    """Yield the policies of each route, in the order in which the API server is to ask."""
    alone = [item for item in policies if not item.chained]
    yield CHANGE, [item for item in alone if not item.acts_once]
    yield CHANGE_ONCE, [item for item in alone if item.acts_once]
    for route, dialect in CHAINS.items():
        yield route, [item for item in policies if item.chained == dialect]


def _of_rules(
    group: _Group,
    programs: Sequence[Program],
    kinds: Kinds,
    config: WebhookConfig,
    lone: frozenset[LoneRule],
    *,
    rules: Sequence[Object],
    **settings: Any,
) -> Object:
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
            group.members,
            programs,
            kinds,
            config,
            lone,
            labels_are_final=settings.get("reinvocationPolicy") != "IfNeeded",
        ),
        **settings,
    )


def _of_authors(config: WebhookConfig) -> Iterator[Object]:
    """Yield the webhooks that are asked when people write policies and what belongs to them."""
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
        # Without it a write through another version of the same resource would go unseen.
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
    """Return the only namespaces that are asked about, None where those are not named."""
    only = _namespaces(programs)
    left = frozenset() if only is None else frozenset(only) - standing_namespaces(config.namespace)
    return left if 0 < len(left) <= _MOST_NAMESPACES else None


def _object_selector(policies: Iterable[CompiledPolicy], config: WebhookConfig) -> Object:
    """Return the labels of the objects that are asked about.

    Where policies differ in those that they ask for, nobody is left out by them.
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
    """Return the only namespaces in which the rules match, None where that is not said."""
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
    kinds: Kinds,
    config: WebhookConfig,
    lone: frozenset[LoneRule],
    *,
    labels_are_final: bool,
) -> list[Object]:
    written = [dict(item) for policy in policies for item in policy.match_conditions]
    written = written or [dict(item) for item in config.settings.conditions]
    if all(program.skip_background for program in programs) and len(written) < _MOST_CONDITIONS:
        # Saves the call for each write of a target that is the controller's own.
        users = ", ".join(f"'{user}'" for user in config.controller_users)
        own = f"!(request.userInfo.username in [{users}])"
        # After them, so that an index in what the API server says is the author's index.
        written.append({"name": "kube-retrofit-own-writes", "expression": own})
    # What keeps a cluster alive comes before what only saves calls.
    written += standing.exclusions(programs, kinds, _MOST_CONDITIONS - len(written))
    written += own_sweeps.conditions(
        programs, lone, config.controller_users, _MOST_CONDITIONS - len(written)
    )
    return written + narrowing.conditions(
        programs,
        kinds,
        _MOST_CONDITIONS - len(written),
        selected=_selected(programs, config),
        labels_are_final=labels_are_final,
    )
