"""Evaluation of a compiled rule: whether it fires, and how it changes an object."""

from collections.abc import Iterable, Mapping
from typing import Any

from reconciler.api.shape import with_texts
from reconciler.engine.context import Context
from reconciler.engine.environment import later_environment_entry
from reconciler.engine.match import Decision, Verdict
from reconciler.engine.outcome import Convergence, RuleStatus, TargetChange, TriggerDecision, Unmet
from reconciler.engine.patch import SHIPPED, KeyTable, equal
from reconciler.engine.ports import Condition
from reconciler.engine.program import Phase, Program
from reconciler.errors import EvaluationError, InvalidPolicy

NOTHING = "no patches applied"
"""The message of a rule whose patch does not change the object."""

UNSETTLED = "applying it again changes the object again"
"""The message of a rule that does not run on an existing object, as it would not converge."""

NOT_AN_OBJECT = "the patch changes the object into something that is not an object"

_FAILS_AGAIN = "applying it again fails"

GUARDED = frozenset({"ownerReferences", "finalizers"})
"""Fields of ``metadata`` that decide when and by whom an object is deleted."""

_FIRES = TriggerDecision(fires=True)
_KIND = ("apiVersion", "kind")
_IDENTITY = ("name", "namespace", "uid")
_REQUIRED = (*_KIND, "metadata")


def decide(program: Program, verdict: Verdict, context: Context) -> TriggerDecision:
    """Return whether a rule fires for a trigger: match, exclude, preconditions.

    Args:
        verdict: The result of its match and exclude for the trigger.
        context: The trigger's, with the rule's names bound.

    Raises:
        EvaluationError: A precondition cannot be evaluated, or data that match needs is not
            known, as the roles of the user.
    """
    if verdict.decision is Decision.UNDECIDED:
        raise EvaluationError(f"match cannot be decided: {'; '.join(verdict.reasons)}")
    if verdict.decision is not Decision.MATCH:
        return TriggerDecision(fires=False, matched=False, message="; ".join(verdict.reasons))
    if program.condition is None:
        return _FIRES
    reason = why_unmet(program.condition, context)
    return TriggerDecision(fires=False, message=reason) if reason else _FIRES


def why_unmet(condition: Condition, context: Context) -> str:
    """Return why a condition of a rule or of a target does not hold, empty where it does.

    Raises:
        EvaluationError: It cannot be evaluated.
    """
    try:
        held = condition.evaluate(context)
    except EvaluationError as error:
        failed = "failed to evaluate preconditions"
        bare = f"{failed}: {error.without_values}"
        raise EvaluationError(f"{failed}: {error}").bare(bare) from error
    if held.passed:
        return ""
    return f"preconditions not met; {held.message}" if held.message else "preconditions not met"


def change(
    program: Program,
    index: int | None,
    context: Context,
    obj: Mapping[str, Any],
    *,
    keys: KeyTable = SHIPPED,
    guarded: frozenset[str] = GUARDED,
) -> TargetChange:
    """Return the change of a rule at an object.

    Args:
        index: Which of its targets selected the object. None for the trigger itself, whose
            identity and guarded fields a rule may change.
        context: The trigger's context with the rule's names bound.
        obj: The current object, not changed by this call.
        keys: Which lists merge by key.
        guarded: Fields of a target's metadata that no patch changes.
    """
    try:
        after = _applied(program, index, context, obj, keys)
    except (EvaluationError, InvalidPolicy) as error:
        return _error(obj, str(error), error.without_values)
    if isinstance(after, Unmet):
        return _skip(obj, after.reason, after.bare)
    if equal(obj, after):
        return TargetChange(status=RuleStatus.SKIP, message=NOTHING, after=obj, unchanged=True)
    if reason := _why_refused(obj, after, guarded, target=index is not None):
        return _error(obj, reason)
    if index is None:
        return TargetChange(status=RuleStatus.PASS, message=_mutated(after), after=after)
    # Existing objects are processed repeatedly: for a new leader, for the next generation.
    again = Phase.EXISTING in program.phases
    if again:
        context = context.bind(**later_environment_entry(context.data))
    unsettled = _why_unsettled(program, index, context, after, keys)
    if again and unsettled is not None:
        return _skip(obj, unsettled.reason, unsettled.bare)
    repeats = unsettled is not None
    return TargetChange(
        status=RuleStatus.PASS, message=_mutated(after), after=after, repeats=repeats
    )


def _applied(
    program: Program, index: int | None, context: Context, obj: Mapping[str, Any], keys: KeyTable
) -> Any:
    """Return the result of the mutation, of a target as the API server reads it."""
    after = program.mutation.apply(index, context, obj, keys)
    return after if index is None or isinstance(after, Unmet) else with_texts(after)


def _skip(obj: Mapping[str, Any], message: str, bare: str = "") -> TargetChange:
    return TargetChange(status=RuleStatus.SKIP, message=message, bare=bare, after=obj)


def _error(obj: Mapping[str, Any], message: str, bare: str = "") -> TargetChange:
    return TargetChange(status=RuleStatus.ERROR, message=message, bare=bare, after=obj)


def _why_unsettled(
    program: Program, index: int, context: Context, after: Mapping[str, Any], keys: KeyTable
) -> Unmet | None:
    """Return why a rule does not converge on its own result, None where it does."""
    match program.mutation.convergence:
        case Convergence.YES:
            return None
        case Convergence.NO:
            return Unmet(reason=UNSETTLED)
        case Convergence.PROBED:
            try:
                again = _applied(program, index, context, after, keys)
            except (EvaluationError, InvalidPolicy) as error:
                bare = f"{_FAILS_AGAIN}: {error.without_values}"
                return Unmet(reason=f"{_FAILS_AGAIN}: {error}", bare=bare)
            settled = isinstance(again, Unmet) or equal(after, again)
            return None if settled else Unmet(reason=UNSETTLED)


def _why_refused(
    before: Mapping[str, Any], after: Any, guarded: frozenset[str], *, target: bool
) -> str:
    """Return why a result must not be written, empty where it may be."""
    if not isinstance(after, dict) or not isinstance(after.get("metadata", {}), dict):
        return NOT_AN_OBJECT
    if not target:
        lost = (name for name in _REQUIRED if before.get(name) and not after.get(name))
        return next((f"{NOT_AN_OBJECT}: it has no {name}" for name in lost), "")
    old, new = before.get("metadata") or {}, after.get("metadata") or {}
    broken = _first_changed(_KIND, before, after)
    if not broken and (field := _first_changed(_IDENTITY, old, new)):
        broken = f"metadata.{field}"
    if broken:
        return f"the patch changes {broken}, which makes it another object"
    if field := _first_changed(sorted(guarded), old, new):
        return (
            f"the patch changes metadata.{field}, which decides when the object is deleted:"
            f" --allow-metadata={field} of both programs permits that"
        )
    return ""


def _first_changed(fields: Iterable[str], old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    return next((field for field in fields if old.get(field) != new.get(field)), "")


def _mutated(obj: Mapping[str, Any]) -> str:
    meta = obj.get("metadata") or {}
    place = f" in namespace {meta['namespace']}" if meta.get("namespace") else ""
    prefix = meta.get("generateName")
    name = meta.get("name") or (f"{prefix}*" if prefix else "")
    return f"mutated {obj.get('kind', '')}/{name}{place}"
