"""Compilation of one mutate rule to a program; every error has its location."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from reconciler.api.meta import ANNOTATION_EXISTING
from reconciler.dialects.kyverno.context import compile_entries
from reconciler.dialects.kyverno.edits import compile_edits, patch_form
from reconciler.dialects.kyverno.entries import ElementEntry, Entry
from reconciler.dialects.kyverno.match import compile_match
from reconciler.dialects.kyverno.parts import KyvernoRule
from reconciler.dialects.kyverno.preconditions import Conditions
from reconciler.dialects.kyverno.readers import find_projection, paths_of, reading_target
from reconciler.dialects.kyverno.targets import Target
from reconciler.dialects.kyverno.template import Template
from reconciler.dialects.kyverno.variables import Scope, checked_conditions, checked_template
from reconciler.engine import reading
from reconciler.engine.given import Given
from reconciler.engine.match.selectors import compile_selector
from reconciler.engine.program import Origin, Phase, Program
from reconciler.errors import ErrorList, InvalidPolicy

_MUTATE_FIELDS = (
    "mutateExistingOnPolicyUpdate",
    "targets",
    "patchStrategicMerge",
    "patchesJson6902",
    "foreach",
)
_TARGET_FIELDS = (
    "apiVersion",
    "kind",
    "namespace",
    "name",
    "uid",
    "selector",
    "context",
    "preconditions",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleDefaults:
    """Settings of the policy for its rules, and values from the caller.

    Attributes:
        given: Values that the caller provides in place of context entries, by rule.
    """

    on_policy_change: bool = False
    background: bool = True
    given: Mapping[str, Given] = field(default_factory=dict)


def compile_rule(rule: Mapping[str, Any], *, origin: Origin, defaults: RuleDefaults) -> Program:
    """Return the program of a mutate rule.

    Raises:
        InvalidPolicy: A part cannot be compiled.
    """
    place = f"{origin.location}.mutate"
    with ErrorList() as errors:
        mutate = reading.mapping(rule["mutate"], place, allowed=_MUTATE_FIELDS, errors=errors)
        on_change = errors.attempt(
            read_flag,
            *(mutate, "mutateExistingOnPolicyUpdate", place),
            default=defaults.on_policy_change,
        )
        if mutate.get("targets") is None:
            if on_change:
                raise InvalidPolicy(
                    f"{place}.targets",
                    "mutate.targets has to be specified when mutateExistingOnPolicyUpdate is set;"
                    f" for a rule that changes its trigger set the annotation"
                    f' {ANNOTATION_EXISTING}: "true"',
                )
            patch_form(mutate, place)
        program = _program(rule, mutate, origin, defaults, errors)
        if on_change and program.match.needs.user:
            raise InvalidPolicy(
                f"{place}.mutateExistingOnPolicyUpdate",
                "a change of the policy has no user: remove roles, clusterRoles and subjects"
                " from match, or set the field to false",
            )
        return replace(program, on_policy_change=bool(on_change))


def _program(
    rule: Mapping[str, Any],
    mutate: Mapping[str, Any],
    origin: Origin,
    defaults: RuleDefaults,
    errors: ErrorList,
) -> Program:
    location, place = origin.location, f"{origin.location}.mutate"
    own = mutate.get("targets") is None
    errors.attempt(_refuse, rule, location)
    matcher = errors.attempt(
        compile_match,
        rule.get("match"),
        rule.get("exclude"),
        location=location,
        namespace=origin.namespace,
        user_info=own or not defaults.background,
    )
    entries, preconditions, scope = _trigger_part(rule, origin, defaults, errors, own=own)
    targets: tuple[Target, ...] = ()
    skip = errors.attempt(read_flag, rule, "skipBackgroundRequests", location, default=True)
    if not own:
        targets, scopes = _targets(mutate["targets"], f"{place}.targets", scope, origin, errors)
        scope = _common(scopes)
    edits, convergence = compile_edits(mutate, place, scope, origin)
    if matcher is None or errors:
        raise errors.combined()
    parts = KyvernoRule(
        location=location,
        namespace=origin.namespace,
        matcher=matcher,
        entries=entries,
        target_entries=reading_target(entries) if targets else (),
        preconditions=preconditions,
        targets=targets,
        edits=edits,
        convergence=convergence,
    )
    return Program(
        origin=origin,
        phases=frozenset({Phase.ADMISSION if own else Phase.TRIGGERED}),
        match=matcher,
        binding=parts,
        condition=preconditions,
        targets=parts if targets else None,
        mutation=parts,
        projection=find_projection(parts.readers()),
        reads=frozenset(paths_of(parts.readers())),
        on_policy_change=False,
        # As in Kyverno, where the field only concerns background work that a request triggers.
        skip_background=bool(skip) and not own,
        appends=own and parts.appends,
        global_entries=parts.global_entries(),
    )


def _trigger_part(
    rule: Mapping[str, Any],
    origin: Origin,
    defaults: RuleDefaults,
    errors: ErrorList,
    *,
    own: bool,
) -> tuple[tuple[Entry, ...], Conditions | None, Scope]:
    location = origin.location
    given = defaults.given.get(origin.rule, Given())
    elements = tuple(
        ElementEntry(name=name, values=values) for name, values in given.elements.items()
    )
    known = Scope(given=given.names, given_elements=elements, late=own, targets=not own)
    entries, scope = compile_entries(
        rule.get("context"), f"{location}.context", known, origin, errors
    )
    preconditions = errors.attempt(
        checked_conditions, rule.get("preconditions"), f"{location}.preconditions", scope
    )
    return entries, preconditions, scope


def read_flag(raw: Mapping[str, Any], field: str, location: str, *, default: bool) -> bool:
    """Read a boolean field; null means the default.

    Raises:
        InvalidPolicy: The value is no boolean.
    """
    value = raw.get(field)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise InvalidPolicy(f"{location}.{field}", "expected true or false")
    return value


def _refuse(rule: Mapping[str, Any], location: str) -> None:
    if rule.get("celPreconditions"):
        raise InvalidPolicy(
            f"{location}.celPreconditions", "celPrecondition can only be used with validate.cel"
        )
    if rule.get("imageExtractors"):
        raise InvalidPolicy(
            f"{location}.imageExtractors",
            "images are read only from the standard fields of Pods and their controllers;"
            " remove it",
        )


def _common(scopes: Sequence[Scope]) -> Scope:
    # The patch is the same for all targets, so it may use only entries that every target has.
    names = frozenset.intersection(*(scope.entries for scope in scopes))
    return replace(scopes[0], entries=names)


def _targets(
    raw: Any, location: str, scope: Scope, origin: Origin, errors: ErrorList
) -> tuple[tuple[Target, ...], list[Scope]]:
    items = reading.sequence(raw, location)
    if not items:
        raise InvalidPolicy(location, "name at least one target, or leave targets out")
    targets: list[Target] = []
    scopes: list[Scope] = []
    for index, item in enumerate(items):
        place = f"{location}[{index}]"
        fields = errors.attempt(
            reading.mapping, item, place, allowed=_TARGET_FIELDS, errors=errors
        )
        if fields is None:
            continue
        entries, inner = compile_entries(
            fields.get("context"), f"{place}.context", scope.with_target(), origin, errors
        )
        scopes.append(inner)
        target = errors.attempt(_target, fields, place, scope, inner, origin)
        if target is not None:
            targets.append(replace(target, entries=entries))
    return tuple(targets), scopes or [scope.with_target()]


def _target(
    fields: Mapping[str, Any], location: str, scope: Scope, inner: Scope, origin: Origin
) -> Target:
    with ErrorList() as errors:
        for required, example in (("apiVersion", "v1"), ("kind", "Secret")):
            if not fields.get(required):
                reason = f"a target needs its {required}, such as {example}"
                errors.add(InvalidPolicy(f"{location}.{required}", reason))
        namespace = fields.get("namespace")
        if origin.namespace and namespace not in (None, "", origin.namespace):
            reason = (
                "This field can be ignored or should have value of the namespace where the policy"
                " is being created"
            )
            errors.add(InvalidPolicy(f"{location}.namespace", reason))
        texts = {
            field: errors.attempt(_optional, fields, field, location, scope)
            for field in ("apiVersion", "kind", "namespace", "name", "uid")
        }
        selector = errors.attempt(_selector, fields.get("selector"), f"{location}.selector", scope)
        preconditions = errors.attempt(
            checked_conditions, fields.get("preconditions"), f"{location}.preconditions", inner
        )
        api_version, kind = texts["apiVersion"], texts["kind"]
        if api_version is None or kind is None:
            raise errors.combined()
    return Target(
        location=location,
        api_version=api_version,
        kind=kind,
        namespace=texts["namespace"],
        name=texts["name"],
        uid=texts["uid"],
        selector=selector,
        entries=(),
        preconditions=preconditions,
    )


def _selector(raw: Any, location: str, scope: Scope) -> Template | None:
    if raw is None:
        return None
    template = checked_template(raw, location, scope)
    if template.constant:
        compile_selector(raw, location=location)
    return template


def _optional(
    fields: Mapping[str, Any], field: str, location: str, scope: Scope
) -> Template | None:
    value = fields.get(field)
    # Users of Kyverno write an empty field for an absent one.
    if value in (None, ""):
        return None
    if not isinstance(value, str):
        raise InvalidPolicy(f"{location}.{field}", "expected a string, put the value in quotes")
    return checked_template(value, f"{location}.{field}", scope)
