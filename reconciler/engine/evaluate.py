"""Evaluation of a compiled rule: does it fire, which targets, what changes."""

from collections.abc import Mapping
from typing import Any

from reconciler.engine.context import Context
from reconciler.engine.match import Decision, Subject
from reconciler.engine.outcome import RuleStatus, TargetChange, TriggerDecision
from reconciler.engine.patch import (
    LENIENT,
    Unmet,
    apply_operations,
    compile_operations,
    equal,
    merge,
    parse_operations,
    schema_for,
)
from reconciler.engine.program import Convergence, Edit, Program, StrategicEdit
from reconciler.engine.targets import TargetQuery, resolve
from reconciler.engine.variables import Template
from reconciler.errors import EvaluationError, InvalidPolicy

NOTHING = "no patches applied"
"""The message of a rule whose patch leaves the object as it is."""

_IDENTITY = ("name", "namespace", "uid")


def decide(program: Program, subject: Subject, context: Context) -> TriggerDecision:
    """Return whether a rule fires for a trigger: match, exclude, preconditions.

    Raises:
        EvaluationError: A precondition cannot be evaluated, or something that match asks for is
            not known, as the roles of the user.
    """
    verdict = program.matcher.evaluate(subject)
    if verdict.decision is Decision.UNDECIDED:
        msg = f"match cannot be decided: {'; '.join(verdict.reasons)}"
        raise EvaluationError(msg)
    if verdict.decision is not Decision.MATCH:
        return TriggerDecision(fires=False, message="; ".join(verdict.reasons))
    if program.preconditions is None:
        return TriggerDecision(fires=True)
    try:
        held = program.preconditions.evaluate(context)
    except EvaluationError as error:
        msg = f"failed to evaluate preconditions: {error}"
        raise EvaluationError(msg) from error
    if held.passed:
        return TriggerDecision(fires=True)
    return TriggerDecision(fires=False, message=_unmet(held.message))


def _unmet(message: str) -> str:
    return f"preconditions not met; {message}" if message else "preconditions not met"


def queries(program: Program, context: Context) -> tuple[list[TargetQuery], list[str]]:
    """Return what the rule's targets mean for a trigger, and the errors of those that fail."""
    found: list[TargetQuery] = []
    errors: list[str] = []
    for index, target in enumerate(program.targets):
        try:
            query = resolve(index, target, context, policy_namespace=program.origin.namespace)
        except EvaluationError as error:
            errors.append(str(error))
        else:
            found.append(query)
    return found, errors


def change(program: Program, index: int, context: Context, obj: Mapping[str, Any]) -> TargetChange:
    """Return what a rule makes of one target object.

    Args:
        program: The rule.
        index: Which of its targets selected the object.
        context: The trigger's context; the object is bound here, for this object only.
        obj: The target as it stands, not changed by this call.
    """
    bound = context.bind(target=obj)
    target = program.targets[index]
    try:
        if target.preconditions is not None:
            held = target.preconditions.evaluate(bound)
            if not held.passed:
                return _skip(obj, _unmet(held.message))
    except EvaluationError as error:
        return _error(obj, f"failed to evaluate preconditions: {error}")
    try:
        after = _apply(program, bound, obj)
    except (EvaluationError, InvalidPolicy) as error:
        return _error(obj, str(error))
    if isinstance(after, Unmet):
        return _skip(obj, after.reason)
    if equal(obj, after):
        return _skip(obj, NOTHING)
    if (broken := _broken_identity(obj, after)) is not None:
        return _error(obj, f"the patch changes {broken}, which makes it another object")
    return TargetChange(
        status=RuleStatus.PASS,
        message=_mutated(after),
        after=after,
        repeats=_repeats(program, context, after),
    )


def _skip(obj: Mapping[str, Any], message: str) -> TargetChange:
    return TargetChange(status=RuleStatus.SKIP, message=message, after=obj)


def _error(obj: Mapping[str, Any], message: str) -> TargetChange:
    return TargetChange(status=RuleStatus.ERROR, message=message, after=obj)


def _repeats(program: Program, context: Context, after: Mapping[str, Any]) -> bool:
    match program.convergence:
        case Convergence.YES:
            return False
        case Convergence.NO:
            return True
        case Convergence.PROBED:
            try:
                again = _apply(program, context.bind(target=after), after)
            except (EvaluationError, InvalidPolicy):
                return True
            return not isinstance(again, Unmet) and not equal(after, again)


def _apply(program: Program, context: Context, obj: Mapping[str, Any]) -> dict[str, Any] | Unmet:
    after: dict[str, Any] | Unmet = dict(obj)
    for edit in program.edits:
        if isinstance(after, Unmet):
            return after
        after = _edit(edit, context, after)
    return after


def _edit(edit: Edit, context: Context, obj: dict[str, Any]) -> dict[str, Any] | Unmet:
    if isinstance(edit, StrategicEdit):
        return _merge_strategic(edit, _substitute(edit.template, context), obj)
    operations = edit.operations
    if operations is None:
        text = _substitute(edit.text, context)
        if not isinstance(text, str):
            msg = f"{edit.location}: the variable gives {type(text).__name__}, use to_string()"
            raise EvaluationError(msg)
        operations = compile_operations(
            parse_operations(text, location=edit.location), location=edit.location
        )
    try:
        changed: dict[str, Any] = apply_operations(obj, operations, profile=LENIENT)
    except EvaluationError as error:
        msg = f"failed to patch resource: {error}"
        raise EvaluationError(msg) from error
    return changed


def _substitute(template: Template, context: Context) -> Any:
    try:
        return template.render(context)
    except EvaluationError as error:
        msg = f"variable substitution failed: {error}"
        raise EvaluationError(msg) from error


def _merge_strategic(
    edit: StrategicEdit, patch: Any, obj: dict[str, Any]
) -> dict[str, Any] | Unmet:
    schema = schema_for(str(obj.get("apiVersion", "")), str(obj.get("kind", "")))
    try:
        plain = edit.patch.resolve(patch, obj, schema=schema)
        if isinstance(plain, Unmet):
            return plain
        return merge(obj, plain, schema)
    except EvaluationError as error:
        msg = f"failed to patch resource: {error}"
        raise EvaluationError(msg) from error


def _broken_identity(before: Mapping[str, Any], after: Any) -> str | None:
    if not isinstance(after, dict) or not isinstance(after.get("metadata", {}), dict):
        return "the object to something that is none"
    for field in ("apiVersion", "kind"):
        if before.get(field) != after.get(field):
            return field
    old, new = before.get("metadata") or {}, after.get("metadata") or {}
    changed = (field for field in _IDENTITY if old.get(field) != new.get(field))
    return next((f"metadata.{field}" for field in changed), None)


def _mutated(obj: Mapping[str, Any]) -> str:
    meta = obj.get("metadata") or {}
    place = f" in namespace {meta['namespace']}" if meta.get("namespace") else ""
    return f"mutated {obj.get('kind', '')}/{meta.get('name', '')}{place}"
