"""The policy object around the rules: flags, webhook settings, what is not acted on."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from reconciler.api.meta import Object
from reconciler.dialects.kyverno.autogen import ANNOTATION, generated
from reconciler.dialects.kyverno.rule import RuleDefaults, compile_rule, read_flag
from reconciler.engine.entries import Given
from reconciler.engine.match import reading
from reconciler.engine.program import FAIL, IGNORE, CompiledPolicy, Origin, Program
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


def compile_policy(
    policy: Object, *, own: bool = False, given: Mapping[str, Given] | None = None
) -> CompiledPolicy:
    """Return the programs of a policy's rules with targets, and warnings about the others.

    Args:
        policy: The object.
        own: Rules without targets become programs too, in the order of the policy, followed by
            those that are generated for the controllers of Pods. The desk wants them.
        given: What the caller gives in place of context entries, by rule; such an entry is
            neither compiled nor read.

    Raises:
        InvalidPolicy: Something cannot be compiled; the first place that is wrong.
    """
    meta = policy.get("metadata") or {}
    if not isinstance(meta, Mapping):
        raise InvalidPolicy("metadata", "expected an object with a name")
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
    warnings: list[str] = []
    one = _read_apply(spec) == "One"
    defaults = replace(_defaults(spec), own=own, given=given or {})
    made = generated(rules, _controllers(meta)) if own else ()
    for index, rule in (*enumerate(rules), *made):
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
        mutates = rule.get("mutate") is not None
        program = compile_rule(rule, origin=origin, defaults=defaults) if mutates else None
        if program is None:
            warnings.append(_not_acted_on(rule, origin.location))
        else:
            before = [item for item in programs if one and item.own == program.own]
            programs.append(replace(program, before=tuple(before)))
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
            (name.lower(), sum(rule.get(name) is not None for rule in rules))
            for name in OPERATIONS
        ),
        first_only=one,
    )


def _controllers(meta: Mapping[str, Any]) -> str | None:
    annotations = meta.get("annotations")
    value = annotations.get(ANNOTATION) if isinstance(annotations, Mapping) else None
    return value if isinstance(value, str) else None


def _defaults(spec: Mapping[str, Any]) -> RuleDefaults:
    return RuleDefaults(
        on_policy_change=read_flag(spec, "mutateExistingOnPolicyUpdate", "spec", default=False),
        background=read_flag(spec, "background", "spec", default=True),
    )


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


def _read_webhook(spec: Mapping[str, Any]) -> dict[str, Any]:
    place = "spec.webhookConfiguration"
    raw = reading.mapping(spec.get("webhookConfiguration"), place, allowed=_WEBHOOK_FIELDS)
    conditions = reading.sequence(raw.get("matchConditions"), f"{place}.matchConditions")
    for index, item in enumerate(conditions):
        where = f"{place}.matchConditions[{index}]"
        fields = reading.mapping(item, where, allowed=("name", "expression"))
        for field in ("name", "expression"):
            if not isinstance(fields.get(field), str):
                raise InvalidPolicy(f"{where}.{field}", "expected a text")
        if fields["name"] in {other["name"] for other in conditions[:index]}:
            raise InvalidPolicy(f"{where}.name", f"a second condition named {fields['name']}")
    return {
        "matchConditions": conditions,
        "failurePolicy": _failure_policy(raw, spec),
        "timeoutSeconds": _timeout(raw, spec),
    }


def _failure_policy(webhook: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    place, value = _either(webhook, "failurePolicy", spec, "failurePolicy")
    if value is None:
        return "Fail"
    if value not in (FAIL, IGNORE):
        raise InvalidPolicy(place, "is Fail or Ignore")
    return str(value)


def _timeout(webhook: Mapping[str, Any], spec: Mapping[str, Any]) -> int | None:
    place, value = _either(webhook, "timeoutSeconds", spec, "webhookTimeoutSeconds")
    if value is None:
        return None
    if type(value) is not int or not 1 <= value <= _MAX_TIMEOUT:
        raise InvalidPolicy(place, "the timeout value must be between 1 and 30 seconds")
    return value


def _either(
    webhook: Mapping[str, Any], field: str, spec: Mapping[str, Any], older: str
) -> tuple[str, Any]:
    """Return place and value of a field that may be written in a newer or an older way."""
    if webhook.get(field) is not None and spec.get(older) is not None:
        raise InvalidPolicy(
            f"spec.{older}",
            f"remove the deprecated field and use spec.webhookConfiguration.{field} instead",
        )
    if webhook.get(field) is not None:
        return f"spec.webhookConfiguration.{field}", webhook[field]
    return f"spec.{older}", spec.get(older)


def _read_apply(spec: Mapping[str, Any]) -> str:
    value = spec.get("applyRules")
    if value not in (None, "All", "One"):
        raise InvalidPolicy("spec.applyRules", "is All or One")
    return str(value)


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
