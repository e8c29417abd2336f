"""Findings on policies that could block a whole cluster while their webhook is down."""

from collections.abc import Iterator

from reconciler.api.meta import ANNOTATION_ALL_KINDS, Object
from reconciler.dialects.finding import Finding, Level
from reconciler.engine.program import FAIL, CompiledPolicy, Program
from reconciler.engine.values.wildcard import has_wildcard

_CONSENT = "fail"


def lockout_findings(policy: Object, compiled: CompiledPolicy) -> Iterator[Finding]:
    """Yield the rules for all kinds whose triggers are refused while they cannot be recorded.

    Args:
        policy: The policy object; an annotation of it may declare this as intended.
    """
    annotations = (policy.get("metadata") or {}).get("annotations")
    consent = annotations.get(ANNOTATION_ALL_KINDS) if isinstance(annotations, dict) else None
    if compiled.failure_policy != FAIL or compiled.match_conditions or consent == _CONSENT:
        return
    if compiled.object_labels:
        return
    for program in compiled.programs:
        if _matches_everything(program):
            yield Finding(
                level=Level.ERROR,
                code="all-kinds-fail",
                location=program.origin.selection,
                text="with failurePolicy Fail, a rule for all kinds in all namespaces blocks all"
                " writes in the cluster while retrofit-admission does not answer",
                cure="name the kinds or namespaces, set the failure policy Ignore, or add the"
                f" annotation {ANNOTATION_ALL_KINDS}: {_CONSENT}",
            )


def _matches_everything(program: Program) -> bool:
    if program.origin.namespace or program.match.namespaces is not None:
        return False
    selectors = (scope.selector for scope in program.match.kinds())
    return any(item.is_every_kind and has_wildcard(item.group) for item in selectors)
