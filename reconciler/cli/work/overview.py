"""The requests of a cluster, counted and grouped by what blocks them, without I/O."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from reconciler.api.meta import Object, policy_ref
from reconciler.api.updaterequest import State, UpdateRequest
from reconciler.installation import REPLACING
from reconciler.requests.lifecycle import FINAL

_EXAMPLES = 3
_NOT_BEGUN = "NotBegun"


@dataclass(slots=True, kw_only=True)
class Trouble:
    """Requests of one rule that wait or have failed for the same reason.

    Attributes:
        message: The message of the first request.
        permission: The right to grant, where one is missing.
        next_attempt: The earliest next attempt; None where none is planned.
        deleted: Whether their policy no longer exists.
        requests: The first few requests, each with its trigger.
    """

    policy: str
    rule: str
    state: State
    reason: str
    message: str
    permission: str
    count: int = 0
    next_attempt: datetime | None = None
    deleted: bool = False
    requests: list[tuple[str, str]] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class PolicyLine:
    """The figures of one policy.

    Attributes:
        ready: Why the policy is not ready; empty where it is ready or was not read.
        states: The number of requests by state, without failed ones that are retried.
        oldest: When the oldest waiting request was created.
        deleted: Whether requests refer to the policy, but it no longer exists.
    """

    policy: str
    ready: str = ""
    states: Counter[State] = field(default_factory=Counter)
    oldest: datetime | None = None
    deleted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HookTrouble:
    """What blocks a queue of a hook, or the hook itself where ``queue`` is empty."""

    hook: str
    queue: str
    waiting: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The overview of a cluster; troubles with the most requests come first.

    Attributes:
        sweeps: The requests for all triggers of a rule; those that wait come first.
        role_label: The label of ClusterRoles whose rights policies get.
    """

    policies: list[PolicyLine]
    sweeps: list[UpdateRequest]
    troubles: list[Trouble]
    role_label: str
    hooks: list[HookTrouble] = field(default_factory=list)


def hook_troubles(hooks: Iterable[Object]) -> list[HookTrouble]:
    """Return what blocks hooks, according to their statuses."""
    found: list[HookTrouble] = []
    for hook in hooks:
        status, ref = hook.get("status") or {}, policy_ref(hook)
        name = f"{ref.kind} {ref}"
        conditions = status.get("conditions") or ()
        problem = next((item.get("message") for item in conditions if item.get("message")), "")
        if problem:
            waiting = int(status.get("waiting") or 0)
            found.append(HookTrouble(hook=name, queue="", waiting=waiting, message=problem))
        found += [
            HookTrouble(
                hook=name,
                queue=queue.get("name", ""),
                waiting=int(queue.get("waiting") or 0),
                message=queue["blocked"],
            )
            for queue in status.get("queues") or ()
            if queue.get("blocked")
        ]
    return found


def overview(
    requests: Iterable[UpdateRequest],
    *,
    policies: Iterable[tuple[str, str]],
    hooks: Iterable[Object] = (),
    complete: bool = True,
    namespace: str = "",
    role_label: str = REPLACING.background_label,
) -> Overview:
    """Return the overview of requests.

    Args:
        requests: The stored requests; duplicates count once.
        policies: The keys of policies, each with why it is not ready, or an empty text.
        complete: Whether no policy is missing in ``policies`` for lack of a right.
        namespace: The namespace of the triggers, empty for all; sweeps always count.
        role_label: The label of ClusterRoles whose rights policies get.
    """
    lines = {key: PolicyLine(policy=key, ready=ready) for key, ready in policies}
    known = frozenset(lines)
    troubles: dict[tuple[str, ...], Trouble] = {}
    sweeps: list[UpdateRequest] = []
    for request in {item.name: item for item in requests}.values():
        if namespace and not request.spec.sweep and request.spec.resource.namespace != namespace:
            continue
        if request.status.state is State.FAILED and (request.retried or request.retry_requested):
            continue
        _count(request, lines)
        if request.spec.sweep:
            sweeps.append(request)
        if request.status.state in {State.PENDING, State.FAILED}:
            _add(request, troubles)
    for item in lines.values():
        item.deleted = complete and item.policy not in known
    for trouble in troubles.values():
        trouble.deleted = complete and trouble.policy not in known
    return Overview(
        policies=sorted(lines.values(), key=lambda item: item.policy),
        sweeps=sorted(
            sweeps,
            key=lambda item: (item.status.state in FINAL, item.spec.policy.key, item.spec.rule),
        ),
        troubles=sorted(troubles.values(), key=lambda item: (item.state, -item.count)),
        role_label=role_label,
        hooks=hook_troubles(hooks),
    )


def _count(request: UpdateRequest, lines: dict[str, PolicyLine]) -> None:
    key = request.spec.policy.key
    line = lines.setdefault(key, PolicyLine(policy=key))
    line.states[request.status.state] += 1
    if request.status.state is State.PENDING:
        line.oldest = min(filter(None, (line.oldest, request.created)))


def _add(request: UpdateRequest, troubles: dict[tuple[str, ...], Trouble]) -> None:
    spec, status = request.spec, request.status
    if status.sweep is not None and not status.reason:
        return  # it is in progress, which its own line shows
    reason = status.reason or _NOT_BEGUN
    key = (spec.policy.key, spec.rule, status.state, reason, status.missing_permission)
    trouble = troubles.setdefault(
        key,
        Trouble(
            policy=spec.policy.key,
            rule=spec.rule,
            state=status.state,
            reason=reason,
            message=status.message,
            permission=status.missing_permission,
        ),
    )
    trouble.count += 1
    planned = [item for item in (trouble.next_attempt, status.next_attempt) if item is not None]
    trouble.next_attempt = min(planned, default=None)
    if len(trouble.requests) < _EXAMPLES:
        trouble.requests.append((request.name, str(spec.resource)))
