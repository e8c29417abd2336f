"""The statuses of targets within the status of a request."""

from collections.abc import Iterable
from dataclasses import replace

from reconciler.api.meta import ObjectRef, TargetKey
from reconciler.api.updaterequest import SUCCESSES, Outcome, RequestStatus, TargetStatus
from reconciler.engine.program import Program
from reconciler.requests.lifecycle import identity
from reconciler.requests.redaction import HIDDEN
from reconciler.services.processing.results import TargetResult
from reconciler.services.processing.selection import SelectedTarget, Selection

_SEVERITY = {Outcome.SKIPPED: 0, Outcome.UNCHANGED: 1, Outcome.PATCHED: 2}


def identity_of(key: TargetKey) -> tuple[str, str, str, str, str]:
    """Return the key of an object, equal to the `identity` of its status."""
    kind = key.kind
    return kind.api_version, kind.kind, key.namespace, key.name, kind.subresource


def nameable(item: SelectedTarget, program: Program) -> frozenset[str]:
    """Return the namespaces of a target that a message may name, even in confidential work."""
    return frozenset() if _named_by_content(item, program) else frozenset({item.key.namespace})


def _named_by_content(item: SelectedTarget, program: Program) -> bool:
    return program.targets is not None and program.targets.named_by_content(item.query.index)


def _reference(
    item: SelectedTarget, result: TargetResult, program: Program, *, confidential: bool
) -> ObjectRef:
    """Return a target's reference, whose name is hidden if it is made of a Secret and unread."""
    key = item.key
    hidden = confidential and not result.uid and _named_by_content(item, program)
    return ObjectRef(
        api_version=key.kind.api_version,
        kind=key.kind.kind,
        namespace=HIDDEN if hidden and key.namespace else key.namespace,
        name=HIDDEN if hidden else key.name,
        uid=result.uid,
    )


def statuses_of(
    found: Iterable[tuple[SelectedTarget, TargetResult]], program: Program, *, confidential: bool
) -> list[TargetStatus]:
    """Return the statuses of selected targets, each given with its result.

    Two targets of a rule may select one object, or have hidden names: the status then shows the
    worse result.
    """
    by_target: dict[tuple[str, str, str, str, str], TargetStatus] = {}
    for item, result in found:
        status = TargetStatus(
            ref=_reference(item, result, program, confidential=confidential),
            subresource=item.key.kind.subresource,
            outcome=result.outcome,
            message=result.message,
            version_before=result.version_before,
            version_after=result.version_after,
        )
        other = by_target.setdefault(identity(status), status)
        if _SEVERITY.get(status.outcome, 3) > _SEVERITY.get(other.outcome, 3):
            by_target[identity(status)] = status
    return list(by_target.values())


def ended(status: RequestStatus) -> set[tuple[str, str, str, str, str]]:
    """Return the targets that need no further attempt.

    A status lists only a sample of the successes. One that is not listed is evaluated again, which
    costs only a read: the rule converges, or the marker on the target shows that it was applied.
    """
    ended = SUCCESSES | {Outcome.INVALID}
    return {identity(item) for item in status.targets if item.outcome in ended}


def earlier(
    status: RequestStatus, selection: Selection, statuses: Iterable[TargetStatus]
) -> list[TargetStatus]:
    """Return the results of earlier attempts, as they are after another one.

    A target that failed and is no longer selected is skipped. A result under a hidden name is
    dropped: every attempt repeats its target, which may have a name now.

    Args:
        status: The status before the attempt; the others are of the attempt.
    """
    if selection.errors or selection.failures:
        return list(status.targets)
    there = {identity_of(item.key) for item in selection.found}
    there.update(identity(item) for item in statuses)
    return [
        item if item.outcome in SUCCESSES or identity(item) in there else _vanished(item)
        for item in status.targets
        if item.ref.name != HIDDEN or identity(item) in there
    ]


def _vanished(target: TargetStatus) -> TargetStatus:
    message = "it was deleted, or is no longer a target of the rule"
    return replace(target, outcome=Outcome.SKIPPED, message=message)
