"""One rule with ``mutate.targets`` as a program; every error names its place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.dialects.kyverno.edits import compile_edits
from reconciler.dialects.kyverno.variables import Scope, check_scope, checked_template
from reconciler.engine.match import compile_match, reading
from reconciler.engine.preconditions import Conditions, compile_conditions
from reconciler.engine.program import Edit, JsonPatchEdit, Origin, Program, Projection
from reconciler.engine.targets import Target
from reconciler.engine.variables import Template
from reconciler.errors import InvalidPolicy

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
_LATER = "is not supported by this version of kube-retrofit; remove it, or do not apply the policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleDefaults:
    """What the policy says for its rules."""

    on_policy_change: bool
    background: bool


def compile_rule(
    rule: Mapping[str, Any], *, origin: Origin, defaults: RuleDefaults
) -> Program | None:
    """Return the program of a mutate rule, None where it has no targets.

    Raises:
        InvalidPolicy: A part cannot be compiled.
    """
    location = origin.location
    place = f"{location}.mutate"
    mutate = reading.mapping(rule["mutate"], place, allowed=_MUTATE_FIELDS)
    on_change = mutate.get("mutateExistingOnPolicyUpdate")
    if mutate.get("targets") is None:
        if on_change or (on_change is None and defaults.on_policy_change):
            raise InvalidPolicy(
                f"{place}.targets",
                "mutate.targets has to be specified when mutateExistingOnPolicyUpdate is set",
            )
        return None
    _refuse_later(rule, location)
    _refuse_later(mutate, place)
    matcher = compile_match(
        rule.get("match"), rule.get("exclude"), location=location, namespace=origin.namespace
    )
    preconditions = _conditions(
        rule.get("preconditions"), f"{location}.preconditions", Scope.TRIGGER
    )
    targets = _targets(mutate["targets"], origin, f"{place}.targets")
    edits, convergence = compile_edits(mutate, place)
    if defaults.on_policy_change and on_change is None:
        on_change = True
    return Program(
        origin=origin,
        matcher=matcher,
        preconditions=preconditions,
        targets=targets,
        edits=edits,
        convergence=convergence,
        projection=_projection(preconditions, targets, edits),
        on_policy_change=bool(on_change),
        skip_background=rule.get("skipBackgroundRequests") is not False,
    )


def _refuse_later(raw: Mapping[str, Any], location: str) -> None:
    if raw.get("celPreconditions"):
        raise InvalidPolicy(
            f"{location}.celPreconditions", "celPrecondition can only be used with validate.cel"
        )
    for field in ("context", "foreach", "imageExtractors"):
        if raw.get(field):
            raise InvalidPolicy(f"{location}.{field}", _LATER)


def _conditions(raw: Any, location: str, scope: Scope) -> Conditions | None:
    if raw is None:
        return None
    conditions = compile_conditions(raw, location=location)
    if conditions is not None:
        for template in conditions.templates:
            check_scope(template, location, scope)
    return conditions


def _targets(raw: Any, origin: Origin, location: str) -> tuple[Target, ...]:
    items = reading.sequence(raw, location)
    if not items:
        raise InvalidPolicy(location, "name at least one target, or leave targets out")
    return tuple(_target(item, origin, f"{location}[{index}]") for index, item in enumerate(items))


def _target(raw: Any, origin: Origin, location: str) -> Target:
    fields = reading.mapping(raw, location, allowed=_TARGET_FIELDS)
    _refuse_later(fields, location)
    for required, example in (("apiVersion", "v1"), ("kind", "Secret")):
        if not fields.get(required):
            raise InvalidPolicy(
                f"{location}.{required}", f"a target needs its {required}, such as {example}"
            )
    namespace = fields.get("namespace")
    if origin.namespace and namespace not in (None, origin.namespace):
        raise InvalidPolicy(
            f"{location}.namespace",
            "This field can be ignored or should have value of the namespace where the policy is"
            " being created",
        )
    return Target(
        location=location,
        api_version=_text(fields, "apiVersion", location),
        kind=_text(fields, "kind", location),
        namespace=_optional(fields, "namespace", location),
        name=_optional(fields, "name", location),
        uid=_optional(fields, "uid", location),
        selector=None
        if fields.get("selector") is None
        else checked_template(fields["selector"], f"{location}.selector", Scope.TRIGGER),
        preconditions=_conditions(
            fields.get("preconditions"), f"{location}.preconditions", Scope.TARGET
        ),
    )


def _text(fields: Mapping[str, Any], field: str, location: str) -> Template:
    value = fields[field]
    if not isinstance(value, str):
        raise InvalidPolicy(f"{location}.{field}", "expected a text, put the value in quotes")
    return checked_template(value, f"{location}.{field}", Scope.TRIGGER)


def _optional(fields: Mapping[str, Any], field: str, location: str) -> Template | None:
    # The reference's users write an empty field for an absent one.
    return None if fields.get(field) in (None, "") else _text(fields, field, location)


def _projection(
    preconditions: Conditions | None, targets: Sequence[Target], edits: Sequence[Edit]
) -> Projection:
    templates: list[Template] = []
    if preconditions is not None:
        templates.extend(preconditions.templates)
    for target in targets:
        templates.extend(target.templates)
        if target.preconditions is not None:
            templates.extend(target.preconditions.templates)
    templates.extend(
        edit.text if isinstance(edit, JsonPatchEdit) else edit.template for edit in edits
    )
    return Projection(
        object=_paths(templates, "object"), old_object=_paths(templates, "oldObject")
    )


def _paths(templates: Sequence[Template], name: str) -> frozenset[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    for template in templates:
        if template.dynamic or "images" in template.roots:
            # What is read is decided by the data, or is the whole pod specification.
            found.add(())
        for path in template.reads:
            if path[:2] == ("request", name):
                found.add(path[2:])
            elif path in {(), ("request",)}:
                found.add(())
    return frozenset({()}) if () in found else frozenset(found)
