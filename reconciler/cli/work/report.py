"""An `Overview` for people, and as JSON for programs."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from reconciler.api.updaterequest import State, render_time
from reconciler.cli.work.overview import Overview, PolicyLine, Sweep, Trouble
from reconciler.config import render_duration
from reconciler.services.patchwar import PATCH_WAR

_COLUMNS = (State.PENDING, State.COMPLETED, State.SKIP, State.FAILED)
_HEAD = ("POLICY", "WAITING", "DONE", "SKIPPED", "FAILED", "OLDEST WAITING")
_SWEEPS = ("RULE", "STATE", "DONE", "LEFT OVER", "TIME LEFT", "REQUEST")
_WIDTH = 200


def lines_of(found: Overview, *, now: datetime) -> Iterator[str]:
    """Yield the lines that tell a person; times are told from ``now``."""
    if not found.policies:
        yield "no policy and no request is there"
        return
    yield from _table([_HEAD, *(_policy(line, now) for line in found.policies)])
    for line in found.policies:
        if line.deleted:
            yield f"policy {line.policy} was deleted; what it left is removed by itself"
        elif line.ready:
            yield f"policy {line.policy} is not ready: {line.ready}"
    if found.sweeps:
        yield ""
        yield "All triggers of a rule:"
        yield from _table([_SWEEPS, *map(_sweep, found.sweeps)])
    for state, title in ((State.PENDING, "Waiting:"), (State.FAILED, "Failed:")):
        troubles = [item for item in found.troubles if item.state is state]
        if troubles:
            yield ""
            yield title
        for trouble in troubles:
            yield from _trouble(trouble, now)


def data_of(found: Overview) -> dict[str, Any]:
    """Return an overview as JSON; times are RFC 3339 or null."""
    return {
        "policies": [
            {
                "policy": line.policy,
                "notReady": line.ready,
                "deleted": line.deleted,
                **{state.value.lower(): line.states[state] for state in _COLUMNS},
                "oldestWaiting": _moment(line.oldest),
            }
            for line in found.policies
        ],
        "sweeps": [
            {
                "request": item.request,
                "policy": item.policy,
                "rule": item.rule,
                "state": item.state.value,
                "done": item.done,
                "total": None if item.total < 0 else item.total,
                "failed": item.failed,
                "timeLeft": item.eta,
                "reason": item.reason,
                "message": item.message,
                "nextAttemptTime": _moment(item.next_attempt),
            }
            for item in found.sweeps
        ],
        "troubles": [
            {
                "policy": item.policy,
                "rule": item.rule,
                "state": item.state.value,
                "reason": item.reason,
                "message": item.message,
                "missingPermission": item.permission,
                "cure": _cure(item),
                "count": item.count,
                "nextAttemptTime": _moment(item.next_attempt),
                "requests": [
                    {"name": name, "trigger": trigger} for name, trigger in item.requests
                ],
            }
            for item in found.troubles
        ],
    }


def _policy(line: PolicyLine, now: datetime) -> tuple[str, ...]:
    age = "" if line.oldest is None else _span((now - line.oldest).total_seconds())
    return (line.policy, *(str(line.states[state]) for state in _COLUMNS), age)


def _sweep(item: Sweep) -> tuple[str, ...]:
    total = "?" if item.total < 0 else str(item.total)
    rule = f"{item.policy} / {item.rule}"
    left = str(item.failed) if item.failed else ""
    return rule, item.state.value, f"{item.done}/{total}", left, item.eta, item.request


def _trouble(item: Trouble, now: datetime) -> Iterator[str]:
    text = f": {item.message[:_WIDTH]}" if item.message else ""
    yield f"  {item.count} of {item.policy} / {item.rule}, {item.reason}{text}"
    if item.next_attempt is not None:
        left = (item.next_attempt - now).total_seconds()
        yield f"    next attempt: {'in ' + _span(left) if left >= 1 else 'now'}"
    if cure := _cure(item):
        yield f"    to do: {cure}"
    named = ", ".join(f"{name} ({trigger})" for name, trigger in item.requests)
    more = ", ..." if item.count > len(item.requests) else ""
    yield f"    requests: {named}{more}"


def _cure(item: Trouble) -> str:
    if item.deleted:
        return ""
    if item.permission:
        return (
            f"grant the controller: {item.permission} (a ClusterRole with the label"
            " rbac.kyverno.io/aggregate-to-background-controller); it goes on by itself"
        )
    if item.reason == PATCH_WAR:
        return (
            "make one of the two leave the field alone; to go on before the next attempt:"
            f" kubectl retrofit retry {item.policy}"
        )
    if item.state is State.FAILED:
        return f"correct the cause, then: kubectl retrofit retry {item.policy} --failed"
    return ""


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def _span(seconds: float) -> str:
    whole = max(0, round(seconds))
    # Who looks after days does not count seconds.
    coarse = whole - whole % 60 if whole >= 3600 else whole  # noqa: PLR2004
    return render_duration(coarse) if whole else "0s"


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else render_time(moment)
