"""Decides which rules an admission request triggers, as far as possible without I/O.

A rule that cannot be decided here (the labels of the namespace are not known yet, a precondition
needs more than the request or fails) is recorded, and the controller decides. So no trigger is
lost, and no user's request waits for an API call.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from typing import Any

from reconciler.api.meta import PolicyRef
from reconciler.engine.allowance import Allowance, Exhausted
from reconciler.engine.context import Context
from reconciler.engine.exceptions import PolicyException
from reconciler.engine.match import Decision, Subject
from reconciler.engine.ports import Condition
from reconciler.engine.program import IGNORE, Program
from reconciler.engine.run import RuleRun
from reconciler.requests.admission import context_of, is_from_controller, subject_of
from reconciler.requests.draft import (
    AdmissionRequest,
    Draft,
    TooLarge,
    TypeName,
    draft,
    record_trigger,
)
from reconciler.services.catalog.rule_index import CompiledRule
from reconciler.services.catalog.settings import Filters
from reconciler.services.recording.recorder import Unrecorded
from reconciler.values import value_class

_ROOTS = frozenset({"request", "serviceAccountName", "serviceAccountNamespace"})
_ROLES = frozenset({"roles", "clusterRoles"})
_TOO_LARGE = 422
_UNAVAILABLE = 503

REVIEW_STEPS = 4_000_000
"""Some fifty milliseconds; typical rules take hundredths of one."""

Exceptions = Callable[[Program], Iterable[PolicyException]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of all requests.

    Attributes:
        controller_users: Full names of the users whose requests are the controller's own.
        max_recorded: Limit of the recorded parts of objects, in bytes of JSON.
        steps: Allowance for evaluating all rules on one request.
    """

    controller_users: tuple[str, ...]
    max_recorded: int
    filters: Filters
    steps: int = REVIEW_STEPS


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """The result of deciding on an admission request.

    Attributes:
        drafts: One per rule that fires or may fire.
        refused: Why a rule that fires cannot be recorded at all.
        costly: The most expensive rule, if the allowance was exhausted.
    """

    drafts: tuple[Draft, ...] = ()
    refused: tuple[str, ...] = ()
    costly: Program | None = None


@value_class(frozen=True, slots=True, kw_only=True)
class AdmissionResponse:
    """The response to the API server.

    Attributes:
        code: HTTP status; used only if the request is refused.
        patch: Operations of RFC 6902 that change the object before it is stored.
    """

    allowed: bool = True
    code: int = 0
    message: str = ""
    warnings: tuple[str, ...] = ()
    patch: Sequence[Mapping[str, Any]] = ()


def decide(
    request: AdmissionRequest,
    rules: Iterable[CompiledRule],
    *,
    parent: TypeName | None,
    namespace_labels: Mapping[str, str] | None,
    limits: Limits,
    exceptions: Exceptions = lambda _: (),
    excepts: bool = True,
    spared: Callable[[Program], bool] = lambda _: False,
) -> Intent:
    """Return the drafts of requests to store.

    Args:
        rules: Rules that the kind may trigger, of the policies that the call is for.
        parent: Parent kind of a subresource, by which rules name it.
        namespace_labels: Labels of the trigger's namespace; None if they are not known.
        excepts: Whether the exceptions are known to be current.
        spared: Returns whether a rule is not evaluated here because it was too expensive.
    """
    if request.dry_run:
        return Intent()
    subject = subject_of(request, parent or request.kind, namespace_labels)
    excluded = limits.filters.exclude(subject)
    asked = [rule for rule in rules if not (excluded and rule.program.filtered)]
    if not asked:
        return Intent()
    allowance = Allowance(limits.steps)
    case = _Case(
        request=request,
        subject=subject.with_object(subject.obj, allowance),
        context=context_of(request, subject).within(allowance),
        controller_users=limits.controller_users,
        exceptions=exceptions,
        excepts=excepts,
        spared=spared,
        allowance=allowance,
    )
    fired = _fired(case, asked)
    intent = _drafts(case, fired, limits) if fired else Intent()
    if not allowance.exhausted:
        return intent
    return replace(intent, costly=max(case.costs, key=itemgetter(0))[1])


def respond(
    failure_policy: str, refused: Sequence[str], unrecorded: Sequence[Unrecorded]
) -> AdmissionResponse:
    """Return the response after recording was attempted."""
    if not refused and not unrecorded:
        return AdmissionResponse()
    texts = [*refused, *(_unrecorded(item) for item in unrecorded)]
    # What could not be recorded may succeed later; what is too large stays too large.
    code, advice = (_TOO_LARGE, "") if refused else (_UNAVAILABLE, "; try again")
    return _negative(failure_policy, texts, code=code, advice=advice)


def unknown(failure_policy: str, text: str) -> AdmissionResponse:
    """Return the response if it is unknown which rules a request triggers."""
    return _negative(failure_policy, [text], code=_UNAVAILABLE, advice="; try again")


def _negative(
    failure_policy: str, texts: Sequence[str], *, code: int, advice: str
) -> AdmissionResponse:
    if failure_policy == IGNORE:
        return AdmissionResponse(
            warnings=tuple(f"kube-retrofit: admitted, but {text}" for text in texts)
        )
    return AdmissionResponse(
        allowed=False, code=code, message=f"kube-retrofit: {'; '.join(texts)}{advice}"
    )


def _unrecorded(item: Unrecorded) -> str:
    spec = item.draft.spec
    return (
        f"could not record the work of rule {spec.rule} of policy {spec.policy} "
        f"for {spec.resource}, because {item.message}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """One admission request, on which all rules are decided.

    Attributes:
        controller_users: Full names of the controller's users; a rule's account is another one.
        allowance: Remaining allowance of all rules; once exhausted, the others are undecided.
    """

    request: AdmissionRequest
    subject: Subject
    context: Context
    controller_users: tuple[str, ...]
    exceptions: Exceptions
    excepts: bool
    spared: Callable[[Program], bool]
    allowance: Allowance
    costs: list[tuple[int, Program]] = field(default_factory=list)

    def from_controller(self, program: Program) -> bool:
        """Return whether the controller sent it, as policies' shared user or as the rule's."""
        return is_from_controller(self.request, program, self.controller_users)

    def decide(self, program: Program) -> Decision:
        """Return whether a rule fires; the controller decides if it is UNDECIDED."""
        if self.from_controller(program) and program.skip_background:
            return Decision.NO_MATCH
        if self.allowance.exhausted:
            return Decision.UNDECIDED
        before = self.allowance.left
        try:
            return self._decide(program)
        except Exhausted:
            return Decision.UNDECIDED
        finally:
            self.costs.append((before - self.allowance.left, program))

    def _decide(self, program: Program) -> Decision:
        run = RuleRun(
            program=program,
            subject=self.subject,
            plain=self.context,
            # Conditions that need names defined by the rule are decided by the controller.
            context=self.context,
            exceptions=tuple(self.exceptions(program)),
        )
        return run.decide_early(partial(self._decidable, program), certain=self.excepts)

    def _decidable(self, program: Program, conditions: Condition) -> bool:
        spared = conditions is program.condition and self.spared(program)
        return not spared and _decidable(conditions, self.request)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fired:
    """A rule that fires or may fire, and earlier rules that may fire in its place."""

    program: Program
    unless: tuple[Program, ...] = ()

    def sender(self, case: _Case) -> str:
        """Return the part of the user's identity that the rule's work depends on."""
        if any(True for item in (self.program, *self.unless) for _ in case.exceptions(item)):
            return str(case.request.user.get("username", ""))
        # The controller has to recognize its own writes.
        return "controller" if case.from_controller(self.program) else ""


def _fired(case: _Case, rules: Iterable[CompiledRule]) -> list[_Fired]:
    fired: list[_Fired] = []
    first: dict[PolicyRef, list[CompiledRule]] = {}
    for rule in rules:
        if rule.policy.first_only:
            first.setdefault(rule.policy.ref, []).append(rule)
        elif case.decide(rule.program) is not Decision.NO_MATCH:
            fired.append(_Fired(program=rule.program))
    for chosen in first.values():
        fired += _first(case, chosen)
    return fired


def _first(case: _Case, rules: Sequence[CompiledRule]) -> Iterator[_Fired]:
    """Yield the first rule of a policy that fires, after earlier ones that may fire."""
    names = {rule.program.rule for rule in rules}
    pending: list[Program] = []
    for program in (item for item in rules[0].policy.programs if item.rule in names):
        decision = case.decide(program)
        if decision is Decision.NO_MATCH:
            continue
        yield _Fired(program=program, unless=tuple(pending))
        if decision is Decision.MATCH:
            return
        pending.append(program)


def _decidable(conditions: Condition, request: AdmissionRequest) -> bool:
    """Return whether conditions need only the request, with known roles if they read them."""
    if request.cut or not conditions.roots <= _ROOTS:
        return False
    if request.roles is not None and request.cluster_roles is not None:
        return True
    paths = (path for path in conditions.reads if path[:1] == ("request",))
    return all(len(path) > 1 and path[1] not in _ROLES for path in paths)


def _drafts(case: _Case, fired: Iterable[_Fired], limits: Limits) -> Intent:
    trigger = record_trigger(case.request)
    drafts: list[Draft] = []
    refused: list[str] = []
    for item in fired:
        try:
            drafts.append(
                draft(
                    case.request,
                    item.program,
                    trigger,
                    max_recorded=limits.max_recorded,
                    unless=item.unless,
                    sender=item.sender(case),
                )
            )
        except TooLarge as error:
            refused.append(str(error))
    return Intent(drafts=tuple(drafts), refused=tuple(refused))
