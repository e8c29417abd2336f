"""Which rules an admission request fires, as far as that is known without I/O.

Whatever is unknown here (the labels of a namespace that is not known yet, a precondition
that needs more than the request or fails) is recorded, and the controller decides. So nothing is
lost, and nobody's request waits for somebody's API call.
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
"""Some fifty milliseconds; what people write takes hundredths of one."""

Exceptions = Callable[[Program], Iterable[PolicyException]]


def _none(_: Program) -> tuple[PolicyException, ...]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What holds for all requests.

    Attributes:
        controller_users: Full names of the users whose requests are the controller's own.
        max_recorded: Bytes of JSON that a request may keep of objects.
        steps: What evaluating all rules on one request may cost together.
    """

    controller_users: tuple[str, ...]
    max_recorded: int
    filters: Filters
    steps: int = REVIEW_STEPS


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What an admission request leads to.

    Attributes:
        drafts: One per rule that fires or may fire.
        refused: Why a rule that fires cannot be recorded at all.
        costly: The rule that took most of the allowance, where that did not suffice.
    """

    drafts: tuple[Draft, ...] = ()
    refused: tuple[str, ...] = ()
    costly: Program | None = None


@value_class(frozen=True, slots=True, kw_only=True)
class AdmissionResponse:
    """The response to the API server.

    Attributes:
        code: Counts where the request is refused.
        patch: Operations of RFC 6902 that the object is changed by before it is stored.
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
    exceptions: Exceptions = _none,
    excepts: bool = True,
    spared: Callable[[Program], bool] = lambda _: False,
) -> Intent:
    """Return the requests to store.

    Args:
        request: The admission request.
        rules: All that the kind may fire, of the policies that were asked for.
        parent: Of a subresource the kind that it belongs to, by which rules name it.
        namespace_labels: Of the trigger's namespace; None while that is not known.
        limits: What holds for all requests; its filters hold for the rules that they concern.
        exceptions: Gives those that concern a rule.
        excepts: They are known to be there still.
        spared: Tells the rules that are not evaluated here, because that cost too much lately.
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
    return replace(intent, costly=case.costliest) if allowance.exhausted else intent


def respond(
    failure_policy: str, refused: Sequence[str], unrecorded: Sequence[Unrecorded]
) -> AdmissionResponse:
    """Return what to tell the API server once recording was tried."""
    if not refused and not unrecorded:
        return AdmissionResponse()
    texts = [*refused, *(_unrecorded(item) for item in unrecorded)]
    # What can be recorded later is worth a second try; what is too large stays too large.
    code, advice = (_TOO_LARGE, "") if refused else (_UNAVAILABLE, "; try again")
    return _negative(failure_policy, texts, code=code, advice=advice)


def unknown(failure_policy: str, text: str) -> AdmissionResponse:
    """Return what to tell the API server when it is not known what a request fires."""
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
    """One admission request, as all rules are asked about it.

    Attributes:
        context: What expressions see.
        controller_users: Who sends what is the controller's own, in the name that policies share.
        allowance: What is left for all rules; with it used up the others are undecided.
        costs: What each rule has cost.
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

    @property
    def costliest(self) -> Program | None:
        """Return the rule that has cost most."""
        return max(self.costs, key=itemgetter(0))[1] if self.costs else None

    def from_controller(self, program: Program) -> bool:
        """Return whether the controller wrote it, in the policies' shared name or the rule's."""
        return is_from_controller(self.request, program, self.controller_users)

    def decide(self, program: Program) -> Decision:
        """Return whether a rule fires; UNDECIDED is left to the controller."""
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
            # What needs a name of the rule is left to the controller.
            context=self.context,
            exceptions=tuple(self.exceptions(program)),
        )
        return run.decide_early(partial(self._decidable, program), certain=self.excepts)

    def _decidable(self, program: Program, conditions: Condition) -> bool:
        spared = conditions is program.condition and self.spared(program)
        return not spared and _decidable(conditions, self.request)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fired:
    """A rule that fires or may fire, and those before it that may fire instead."""

    program: Program
    unless: tuple[Program, ...] = ()

    def sender(self, case: _Case) -> str:
        """Return what the work depends on of the user, whom the rule may not read."""
        if any(True for item in (self.program, *self.unless) for _ in case.exceptions(item)):
            return str(case.request.user.get("username", ""))
        # Of its own writes the controller wants to know which they are.
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
    """Yield the first rule of a policy that fires, after those before it that may."""
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
    """Return whether the request is enough, and the roles are known where they are read."""
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
