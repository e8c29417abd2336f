"""Which rules an admission request fires, as far as that can be told without I/O.

Whatever cannot be told here (the labels of a namespace that is not known yet, a precondition
that needs more than the request or fails) is recorded, and the controller decides. So nothing is
lost, and nobody's request waits for somebody's API call.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from admission.filters import Filters
from reconciler.engine.context import Context, request_context
from reconciler.engine.match import Decision, Subject, UserInfo
from reconciler.engine.preconditions import Conditions
from reconciler.engine.program import Program
from reconciler.errors import EvaluationError
from reconciler.requests.draft import (
    AdmissionRequest,
    Draft,
    TooLarge,
    TypeName,
    draft,
    record_trigger,
)
from reconciler.services.policies import CompiledRule
from reconciler.services.record import Unrecorded

FAIL = "Fail"
IGNORE = "Ignore"

_ROOTS = frozenset({"request", "serviceAccountName", "serviceAccountNamespace"})
_ROLES = frozenset({"roles", "clusterRoles"})
_TOO_LARGE = 422
_UNAVAILABLE = 503


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What holds for all requests.

    Attributes:
        background_user: Name of the user who writes targets, with its prefix.
        max_recorded: Bytes of JSON that a request may keep of objects.
    """

    background_user: str
    max_recorded: int
    filters: Filters


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What an admission request leads to.

    Attributes:
        drafts: One per rule that fires or may fire.
        refused: Why a rule that fires cannot be recorded at all.
    """

    drafts: tuple[Draft, ...] = ()
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the API server is told; ``code`` counts where the request is refused."""

    allowed: bool = True
    code: int = 0
    message: str = ""
    warnings: tuple[str, ...] = ()


def decide(
    request: AdmissionRequest,
    rules: Iterable[CompiledRule],
    *,
    failure_policy: str,
    parent: TypeName | None,
    namespace_labels: Mapping[str, str] | None,
    limits: Limits,
) -> Intent:
    """Return the requests to store.

    Args:
        request: The admission request.
        rules: All that the kind may fire.
        failure_policy: Of the policies that were asked for.
        parent: Of a subresource the kind that it belongs to, by which rules name it.
        namespace_labels: Of the trigger's namespace; None while that is not known.
        limits: What holds for all requests.
    """
    if request.dry_run:
        return Intent()
    subject = _subject(request, parent or request.kind, namespace_labels)
    if limits.filters.exclude(subject):
        return Intent()
    own = request.user.get("username") == limits.background_user
    programs = (rule.program for rule in rules if rule.policy.failure_policy == failure_policy)
    fired = _fired(programs, request, subject, own=own)
    return _drafts(request, fired, limits) if fired else Intent()


def answer(
    failure_policy: str, refused: Sequence[str], unrecorded: Sequence[Unrecorded]
) -> Answer:
    """Return what to tell the API server once recording was tried."""
    if not refused and not unrecorded:
        return Answer()
    texts = [*refused, *(_unrecorded(item) for item in unrecorded)]
    # What can be recorded later is worth a second try; what is too large stays too large.
    code, advice = (_TOO_LARGE, "") if refused else (_UNAVAILABLE, "; try again")
    return _negative(failure_policy, texts, code=code, advice=advice)


def unknown(failure_policy: str, text: str) -> Answer:
    """Return what to tell the API server when it is not known what a request fires."""
    return _negative(failure_policy, [text], code=_UNAVAILABLE, advice="; try again")


def _negative(failure_policy: str, texts: Sequence[str], *, code: int, advice: str) -> Answer:
    if failure_policy == IGNORE:
        return Answer(warnings=tuple(f"kube-retrofit: admitted, but {text}" for text in texts))
    return Answer(allowed=False, code=code, message=f"kube-retrofit: {'; '.join(texts)}{advice}")


def _unrecorded(item: Unrecorded) -> str:
    spec = item.draft.spec
    return (
        f"could not record the work of rule {spec.rule} of policy {spec.policy} "
        f"for {spec.resource}, because {item.message}"
    )


def _subject(
    request: AdmissionRequest, kind: TypeName, namespace_labels: Mapping[str, str] | None
) -> Subject:
    user = request.user
    return Subject(
        obj=request.subject,
        group=kind.group,
        version=kind.version,
        kind=kind.name,
        subresource=request.subresource,
        name=request.name,
        namespace=request.namespace,
        operation=request.operation,
        user=UserInfo(
            username=user.get("username", ""),
            groups=tuple(user.get("groups") or ()),
            roles=request.roles,
            cluster_roles=request.cluster_roles,
        ),
        namespace_labels=namespace_labels if request.namespace else {},
    )


def _fired(
    programs: Iterable[Program], request: AdmissionRequest, subject: Subject, *, own: bool
) -> list[Program]:
    context: Context | None = None
    fired = []
    for program in programs:
        if own and program.skip_background:
            continue
        if program.matcher.evaluate(subject).decision is Decision.NO_MATCH:
            continue
        conditions = program.preconditions
        if conditions is not None and _decidable(conditions, request):
            context = context or _context(request, subject)
            if not _may_pass(conditions, context):
                continue
        fired.append(program)
    return fired


def _decidable(conditions: Conditions, request: AdmissionRequest) -> bool:
    """Return whether the request is enough, and the roles are known where they are read."""
    if not conditions.roots <= _ROOTS:
        return False
    if request.roles is not None and request.cluster_roles is not None:
        return True
    paths = (path for path in conditions.reads if path[:1] == ("request",))
    return all(len(path) > 1 and path[1] not in _ROLES for path in paths)


def _may_pass(conditions: Conditions, context: Context) -> bool:
    try:
        return conditions.evaluate(context).passed
    except EvaluationError:
        return True


def _context(request: AdmissionRequest, subject: Subject) -> Context:
    return request_context(
        operation=request.operation,
        obj=request.subject,
        old_object=request.old_object or {},
        name=request.name,
        namespace=request.namespace,
        kind=(subject.group, subject.version, subject.kind),
        user_info=request.user or None,
        roles=request.roles or (),
        cluster_roles=request.cluster_roles or (),
        extra=request.info,
    )


def _drafts(request: AdmissionRequest, fired: Iterable[Program], limits: Limits) -> Intent:
    trigger = record_trigger(request)
    drafts: list[Draft] = []
    refused: list[str] = []
    for program in fired:
        try:
            drafts.append(draft(request, program, trigger, max_recorded=limits.max_recorded))
        except TooLarge as error:
            refused.append(str(error))
    return Intent(drafts=tuple(drafts), refused=tuple(refused))
