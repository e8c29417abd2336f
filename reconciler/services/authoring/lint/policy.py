"""Findings on a policy of any language: its annotations, and when its rules fire and on what."""

from collections.abc import Iterator

from reconciler.api.meta import ANNOTATION_ALL_KINDS, PREFIX, Object, own_namespaces
from reconciler.dialects.finding import Finding, Scope, invalid, note, refusal, warning
from reconciler.dialects.registry import dialect_of
from reconciler.engine.program import FAIL, IGNORE, CompiledPolicy, Phase, Program
from reconciler.engine.values.wildcard import has_wildcard
from reconciler.errors import InvalidPolicy
from reconciler.requests.account import PLACE, named_account, parse_account
from reconciler.requests.limits import CANARY, KNOWN, PROMOTE, parse_limits, place_of, unread
from reconciler.services.catalog.protection import Protection
from reconciler.services.catchup.rules import why_lost

_CONSENT = "fail"


def limit_findings(policy: Object) -> Iterator[Finding]:
    """Yield findings on kube-retrofit's annotations of a policy."""
    of_language = dialect_of(policy).annotations
    for name in unread(policy):
        if name in of_language:
            continue
        yield warning(
            "unknown-annotation",
            place_of(name),
            "nothing reads this annotation",
            f"the known annotations under {PREFIX} are {KNOWN}",
        )
    try:
        limits = parse_limits(policy)
    except InvalidPolicy as error:
        yield invalid(error)
        return
    if limits.promote and not limits.canary:
        yield note(
            "promote-without-canary",
            place_of(PROMOTE),
            "there are no canaries to promote",
            f"add the annotation {CANARY}, or remove this one",
        )


def account_findings(policy: Object, protection: Protection) -> Iterator[Finding]:
    """Yield why a policy cannot use the account that it names."""
    try:
        parse_account(policy, reserved=own_namespaces(protection.namespace))
    except InvalidPolicy as error:
        yield invalid(error)


def unread_findings(policy: Object, compiled: CompiledPolicy) -> Iterator[Finding]:
    """Yield the rules that would have to read as the account before an object is stored."""
    rules = [item.rule for item in compiled.in_phase(Phase.ADMISSION) if _reads_itself(item)]
    if rules and named_account(policy) is not None:
        yield warning(
            "entry-at-admission",
            PLACE,
            "nothing is read as the policy's account before an object is stored: every"
            f" request for which {', '.join(rules)} reads a context entry will fail",
            "move rules without mutate.targets that read something to another policy",
        )


def _reads_itself(program: Program) -> bool:
    """Return whether a rule reads more than GlobalContextEntries, which are for all rules."""
    binding = program.binding
    is_shared = program.global_entries != frozenset() and not any(binding.read_rights())
    return binding.loads and not is_shared


def kind_findings(program: Program, scope: Scope) -> Iterator[Finding]:
    """Yield findings on the kinds that a rule matches."""
    place = program.origin.selection
    for selector in (item.selector for item in program.match.kinds()):
        if selector.is_every_kind and not selector.subresource.strip("*"):
            yield warning(
                "every-kind",
                place,
                "the rule matches every kind, so every write in the cluster waits for the webhook",
                "name the kinds that can trigger it",
            )
            continue
        group, version = selector.group, selector.version
        api_version = f"{group}/{version}" if group and version != "*" else version
        if program.origin.namespace and scope(api_version, selector.kind) is False:
            yield refusal(
                "cluster-kind-in-policy",
                place,
                f"{selector.kind} is cluster-scoped; the {program.origin.policy.kind} applies"
                f" only to objects in its namespace {program.origin.namespace}, so this kind never"
                " matches",
                "remove the kind, or write the rule as a policy for the whole cluster",
            )


def lost_findings(policy: CompiledPolicy, program: Program) -> Iterator[Finding]:
    """Yield why catch-up cannot find triggers that a rule loses with failurePolicy Ignore."""
    reason = why_lost(policy, program) if policy.failure_policy == IGNORE else ""
    if reason:
        yield note(
            "no-catch-up",
            program.origin.location,
            "with failurePolicy Ignore, a trigger of this rule that could not be recorded is"
            f" lost, because it cannot be found afterwards: {reason}",
            "set failurePolicy: Fail where no trigger may be lost",
        )


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
            yield refusal(
                "all-kinds-fail",
                program.origin.selection,
                "with failurePolicy Fail, a rule for all kinds in all namespaces blocks all"
                " writes in the cluster while retrofit-admission does not answer",
                "name the kinds or namespaces, set the failure policy Ignore, or add the"
                f" annotation {ANNOTATION_ALL_KINDS}: {_CONSENT}",
            )


def _matches_everything(program: Program) -> bool:
    if program.origin.namespace or program.match.namespaces is not None:
        return False
    selectors = (scope.selector for scope in program.match.kinds())
    return any(item.is_every_kind and has_wildcard(item.group) for item in selectors)


def protected_targets(program: Program, protection: Protection) -> Iterator[Finding]:
    """Yield the targets of a rule that no policy may address."""
    for target in () if program.targets is None else program.targets.target_rights():
        for namespace in target.namespaces:
            if reason := protection.of_api_version(target.api_version, namespace):
                yield refusal(
                    "protected-target",
                    target.location,
                    reason,
                    "the controller refuses it too, whatever rights are granted",
                )
                break


def protected_objects(program: Program, protection: Protection) -> Iterator[Finding]:
    """Yield why a rule changes none of its matching objects before they are stored."""
    home = program.origin.namespace
    namespaces = (home,) if home else program.match.namespaces or ()
    reasons = [protection.of_admission(namespace) for namespace in namespaces]
    if reasons and all(reasons):
        yield warning(
            "protected-object",
            program.origin.selection,
            f"the rule changes nothing: {reasons[0]}",
            "match other namespaces, or remove the rule",
        )
