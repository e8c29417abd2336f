"""Compilation of a policy object: flags, webhook settings, and rules without effect."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from reconciler.api.meta import Object, policy_ref
from reconciler.dialects.base import PLACE, wants_existing
from reconciler.dialects.kyverno.autogen import ANNOTATION, MAX_NAME, generated, shown
from reconciler.dialects.kyverno.bounds import check_bounds
from reconciler.dialects.kyverno.rule import RuleDefaults, compile_rule, read_flag
from reconciler.engine import reading
from reconciler.engine.context import reads_user
from reconciler.engine.given import Given
from reconciler.engine.itself import on_existing
from reconciler.engine.program import FAIL, IGNORE, CompiledPolicy, Origin, Program
from reconciler.errors import ErrorList, InvalidPolicy, read_each

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


def compile_policy(policy: Object, *, given: Mapping[str, Given] | None = None) -> CompiledPolicy:
    """Return the programs of a policy's mutate rules, and warnings about its other rules.

    The programs are in the order of the policy, followed by those that are generated for the
    controllers of Pods.

    Args:
        given: Values that the caller provides in place of context entries, by rule; such an
            entry is neither compiled nor read.

    Raises:
        InvalidPolicy: The policy cannot be compiled; it holds all errors with their locations.
    """
    with ErrorList() as errors:
        return _compile(policy, errors, given=given or {})


def examine_policy(policy: Object) -> tuple[CompiledPolicy | None, tuple[InvalidPolicy, ...]]:
    """Return the policy with the rules that compile, and the errors in the rest.

    The policy is None where there is an error outside of its rules.
    """
    errors = ErrorList()
    compiled = errors.attempt(_compile, policy, errors, given={})
    return compiled, errors.errors


def _compile(policy: Object, errors: ErrorList, *, given: Mapping[str, Given]) -> CompiledPolicy:
    meta = policy.get("metadata") or {}
    if not isinstance(meta, Mapping):
        raise InvalidPolicy("metadata", "expected an object with a name")
    generation = meta.get("generation") or 0
    if not isinstance(generation, int):
        raise InvalidPolicy("metadata.generation", "expected a number; the API server sets it")
    ref = policy_ref(policy)
    if ref.kind == "ClusterPolicy" and ref.namespace:
        reason = "A clusterpolicy should not have the namespace defined"
        errors.add(InvalidPolicy("metadata.namespace", reason))
    check_bounds(policy.get("spec"))
    spec = reading.mapping(policy.get("spec"), "spec", allowed=_SPEC_FIELDS, errors=errors)
    rules = _read_rules(spec, errors)
    webhook = errors.attempt(_read_webhook, spec)
    one = errors.attempt(_read_apply, spec) == "One"
    defaults = errors.attempt(_defaults, spec) or RuleDefaults()
    defaults = replace(defaults, given=given)
    programs: list[Program] = []
    warnings: list[str] = []
    # Generated rules lack their rule's own flag, which is false wherever the policy's is true.
    quiet = replace(defaults, on_policy_change=False)
    made = list(generated(rules, _controllers(meta)))
    written = ((*item, defaults) for item in rules.items())
    for index, rule, settings in (*written, *((*item, quiet) for item in made)):
        origin = Origin(
            dialect="kyverno",
            policy=ref,
            uid=str(meta.get("uid", "")),
            generation=generation,
            rule=rule["name"],
            location=f"spec.rules[{index}]",
        )
        if rule.get("mutate") is not None:
            program = errors.attempt(compile_rule, rule, origin=origin, defaults=settings)
            if program is not None:
                before = [item for item in programs if one and item.phases == program.phases]
                programs.append(replace(program, before=tuple(before)))
        else:
            warnings.append(_not_acted_on(rule, origin.location))
    if webhook is None:
        raise errors.combined()
    return CompiledPolicy(
        ref=ref,
        uid=str(meta.get("uid", "")),
        generation=generation,
        programs=tuple(programs),
        failure_policy=webhook["failurePolicy"],
        timeout=webhook["timeoutSeconds"],
        match_conditions=tuple(webhook["matchConditions"]),
        warnings=tuple(warnings),
        rule_count=tuple(
            (name.lower(), sum(rule.get(name) is not None for rule in rules.values()))
            for name in OPERATIONS
        ),
        first_only=one,
        emit_warning=bool(errors.attempt(read_flag, spec, "emitWarning", "spec", default=False)),
        on_existing=errors.attempt(_on_existing, policy, programs, webhook) or (),
        generated=tuple(shown(rule) for _, rule in made),
    )


def _on_existing(
    policy: Object, programs: Sequence[Program], webhook: Mapping[str, Any]
) -> tuple[Program, ...]:
    """Return the rules that run on existing objects as their trigger, if the policy enables it."""
    if not wants_existing(policy):
        return ()
    if webhook["matchConditions"]:
        raise InvalidPolicy(
            PLACE,
            "only the API server evaluates matchConditions, and only for requests, so they"
            " cannot select existing objects; use match and preconditions",
        )
    found: dict[int, Program] = {}
    for program in programs:
        if not program.changes_trigger:
            continue
        if program.match.needs.user or any(map(reads_user, program.reads)):
            raise InvalidPolicy(
                PLACE,
                f"rule {program.rule} depends on the user who sends a request, and there is no"
                " request for existing objects; move the rule to a policy without the annotation",
            )
        before = tuple(found[id(item)] for item in program.before)
        found[id(program)] = replace(on_existing(program), before=before)
    return tuple(found.values())


def _controllers(meta: Mapping[str, Any]) -> str | None:
    annotations = meta.get("annotations")
    value = annotations.get(ANNOTATION) if isinstance(annotations, Mapping) else None
    return value if isinstance(value, str) else None


def _defaults(spec: Mapping[str, Any]) -> RuleDefaults:
    return RuleDefaults(
        on_policy_change=read_flag(spec, "mutateExistingOnPolicyUpdate", "spec", default=False),
        background=read_flag(spec, "background", "spec", default=True),
    )


def _read_rules(spec: Mapping[str, Any], errors: ErrorList) -> dict[int, Mapping[str, Any]]:
    """Return the well-formed rules by their position."""
    raw = reading.sequence(spec.get("rules"), "spec.rules")
    if not raw:
        raise InvalidPolicy("spec.rules", "a policy needs at least one rule")
    rules: dict[int, Mapping[str, Any]] = {}
    names: set[str] = set()
    for index, item in enumerate(raw):
        rule = errors.attempt(_read_rule, item, f"spec.rules[{index}]", names, errors)
        if rule is not None:
            rules[index] = rule
    return rules


def _read_rule(raw: Any, location: str, names: set[str], errors: ErrorList) -> Mapping[str, Any]:
    rule = reading.mapping(raw, location, allowed=_RULE_FIELDS, errors=errors)
    name = reading.string(rule.get("name"), f"{location}.name")
    if len(name) > MAX_NAME:
        errors.add(InvalidPolicy(f"{location}.name", f"longer than {MAX_NAME} characters"))
    if name in names:
        errors.add(InvalidPolicy(f"{location}.name", f"Duplicate rule name: '{name}'"))
    names.add(name)
    _check_operation(rule, location)
    return rule


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
    with ErrorList() as errors:
        raw = reading.mapping(
            spec.get("webhookConfiguration"), place, allowed=_WEBHOOK_FIELDS, errors=errors
        )
        return {
            "matchConditions": errors.attempt(_match_conditions, raw, place) or (),
            "failurePolicy": errors.attempt(_failure_policy, raw, spec),
            "timeoutSeconds": errors.attempt(_timeout, raw, spec),
        }


def _match_conditions(webhook: Mapping[str, Any], place: str) -> Sequence[Any]:
    where = f"{place}.matchConditions"
    conditions = reading.sequence(webhook.get("matchConditions"), where)
    names: set[str] = set()
    read_each(partial(_check_condition, names=names), conditions, where)
    return conditions


def _check_condition(raw: Any, place: str, names: set[str]) -> None:
    fields = reading.mapping(raw, place, allowed=("name", "expression"))
    for field in ("name", "expression"):
        if not isinstance(fields.get(field), str):
            raise InvalidPolicy(f"{place}.{field}", "expected a string")
    if fields["name"] in names:
        raise InvalidPolicy(f"{place}.name", f"duplicate condition name {fields['name']}")
    names.add(fields["name"])


def _failure_policy(webhook: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    place, value = _either(webhook, "failurePolicy", spec, "failurePolicy")
    if value is None:
        return "Fail"
    if value not in (FAIL, IGNORE):
        raise InvalidPolicy(place, "expected Fail or Ignore")
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
    """Return location and value of a field that has a newer and an older form."""
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
        raise InvalidPolicy("spec.applyRules", "expected All or One")
    return str(value)


def _not_acted_on(rule: Mapping[str, Any], location: str) -> str:
    operation = next(name for name in OPERATIONS if rule.get(name) is not None)
    return (
        f"{location}: rule {rule['name']} is a {operation} rule: kube-retrofit stores it, but does"
        " not act on it"
    )
