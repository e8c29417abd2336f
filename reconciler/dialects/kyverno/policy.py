"""The policy object around the rules: flags, webhook settings, what is not acted on."""

from collections.abc import Mapping
from typing import Any

from reconciler.api.meta import Object
from reconciler.dialects.kyverno.rule import RuleDefaults, compile_rule
from reconciler.engine.match import reading
from reconciler.engine.program import CompiledPolicy, Origin, Program
from reconciler.errors import InvalidPolicy

KINDS = frozenset({"ClusterPolicy", "Policy"})
OPERATIONS = ("mutate", "validate", "generate", "verifyImages")

_SPEC_FIELDS = (
    "rules",
    "applyRules",
    "failurePolicy",
    "validationFailureAction",
    "validationFailureActionOverrides",
    "emitWarning",
    "admission",
    "background",
    "schemaValidation",
    "webhookTimeoutSeconds",
    "webhookConfiguration",
    "mutateExistingOnPolicyUpdate",
    "generateExistingOnPolicyUpdate",
    "generateExisting",
    "useServerSideApply",
)
_RULE_FIELDS = (
    "name",
    "context",
    "match",
    "exclude",
    "imageExtractors",
    "preconditions",
    "celPreconditions",
    "skipBackgroundRequests",
    "reportProperties",
    *OPERATIONS,
)
_WEBHOOK_FIELDS = ("failurePolicy", "timeoutSeconds", "matchConditions")
_MAX_TIMEOUT = 30
_MAX_NAME = 63


def compile_policy(policy: Object) -> CompiledPolicy:
    """Return the programs of a policy's rules with targets, and warnings about the others.

    Raises:
        InvalidPolicy: Something cannot be compiled; the first place that is wrong.
    """
    meta = policy.get("metadata") or {}
    kind = str(policy.get("kind", ""))
    name, namespace = str(meta.get("name", "")), str(meta.get("namespace", ""))
    if kind == "ClusterPolicy" and namespace:
        raise InvalidPolicy(
            "metadata.namespace", "A clusterpolicy should not have the namespace defined"
        )
    spec = reading.mapping(policy.get("spec"), "spec", allowed=_SPEC_FIELDS)
    rules = _read_rules(spec)
    webhook = _read_webhook(spec)
    key = f"{namespace}/{name}" if namespace else name
    programs: list[Program] = []
    warnings = list(_policy_warnings(spec))
    for index, rule in enumerate(rules):
        origin = Origin(
            dialect="kyverno",
            api_version=str(policy.get("apiVersion", "")),
            kind=kind,
            policy=key,
            uid=str(meta.get("uid", "")),
            generation=int(meta.get("generation", 0)),
            rule=rule["name"],
            location=f"spec.rules[{index}]",
        )
        program = _compile(rule, origin, _defaults(spec))
        if program is None:
            warnings.append(_not_acted_on(rule, origin.location))
        else:
            programs.append(program)
    return CompiledPolicy(
        key=key,
        kind=kind,
        api_version=str(policy.get("apiVersion", "")),
        uid=str(meta.get("uid", "")),
        generation=int(meta.get("generation", 0)),
        programs=tuple(programs),
        failure_policy=webhook["failurePolicy"],
        timeout=webhook["timeoutSeconds"],
        match_conditions=tuple(webhook["matchConditions"]),
        warnings=tuple(warnings),
        rule_count=tuple(
            (name.lower(), sum(name in rule for rule in rules)) for name in OPERATIONS
        ),
    )


def _defaults(spec: Mapping[str, Any]) -> RuleDefaults:
    return RuleDefaults(
        on_policy_change=_flag(spec, "mutateExistingOnPolicyUpdate", "spec", default=False),
        background=_flag(spec, "background", "spec", default=True),
    )


def _flag(raw: Mapping[str, Any], field: str, location: str, *, default: bool) -> bool:
    value = raw.get(field)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise InvalidPolicy(f"{location}.{field}", "expected true or false")
    return value


def _read_rules(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    raw = reading.sequence(spec.get("rules"), "spec.rules")
    if not raw:
        raise InvalidPolicy("spec.rules", "a policy needs at least one rule")
    rules: list[Mapping[str, Any]] = []
    names: set[str] = set()
    for index, item in enumerate(raw):
        location = f"spec.rules[{index}]"
        rule = reading.mapping(item, location, allowed=_RULE_FIELDS)
        name = reading.string(rule.get("name"), f"{location}.name")
        if len(name) > _MAX_NAME:
            raise InvalidPolicy(f"{location}.name", f"longer than {_MAX_NAME} characters")
        if name in names:
            raise InvalidPolicy(f"{location}.name", f"Duplicate rule name: '{name}'")
        names.add(name)
        _check_operation(rule, location)
        rules.append(rule)
    return rules


def _check_operation(rule: Mapping[str, Any], location: str) -> None:
    found = [name for name in OPERATIONS if rule.get(name) is not None]
    known = ",".join(OPERATIONS)
    if not found:
        raise InvalidPolicy(
            location,
            f"No operation defined in the rule '{rule['name']}'.(supported operations: {known})",
        )
    if len(found) > 1:
        raise InvalidPolicy(
            location,
            f"Multiple operations defined in the rule '{rule['name']}', only one operation "
            f"({known}) is allowed per rule",
        )


def _compile(rule: Mapping[str, Any], origin: Origin, defaults: RuleDefaults) -> Program | None:
    mutate = rule.get("mutate")
    if mutate is None:
        return None
    return compile_rule(rule, origin=origin, defaults=defaults)


def _read_webhook(spec: Mapping[str, Any]) -> dict[str, Any]:
    raw = reading.mapping(
        spec.get("webhookConfiguration"), "spec.webhookConfiguration", allowed=_WEBHOOK_FIELDS
    )
    older = {"failurePolicy": "failurePolicy", "timeoutSeconds": "webhookTimeoutSeconds"}
    merged: dict[str, Any] = {"matchConditions": raw.get("matchConditions") or []}
    for field, old in older.items():
        if raw.get(field) is not None and spec.get(old) is not None:
            raise InvalidPolicy(
                f"spec.{old}",
                f"remove the deprecated field and use spec.webhookConfiguration.{field} instead",
            )
        merged[field] = raw.get(field) if raw.get(field) is not None else spec.get(old)
    merged["failurePolicy"] = merged["failurePolicy"] or "Fail"
    if merged["failurePolicy"] not in ("Fail", "Ignore"):
        raise InvalidPolicy("spec.webhookConfiguration.failurePolicy", "is Fail or Ignore")
    timeout = merged["timeoutSeconds"]
    if timeout is not None and not (type(timeout) is int and 1 <= timeout <= _MAX_TIMEOUT):
        raise InvalidPolicy(
            "spec.webhookConfiguration.timeoutSeconds",
            "the timeout value must be between 1 and 30 seconds",
        )
    return merged


def _policy_warnings(spec: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    if spec.get("applyRules") == "One":
        found.append("spec.applyRules: One is not acted on: every rule with targets is applied")
    return found


def _not_acted_on(rule: Mapping[str, Any], location: str) -> str:
    if rule.get("mutate") is not None:
        return (
            f"{location}: rule {rule['name']} has no mutate.targets: kube-retrofit stores it, but"
            " changes objects that exist already and does not act on it"
        )
    operation = next(name for name in OPERATIONS if rule.get(name) is not None)
    return (
        f"{location}: rule {rule['name']} is a {operation} rule: kube-retrofit stores it, but does"
        " not act on it"
    )
