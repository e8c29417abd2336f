"""Output of an `Overview` as text for people, and as JSON for programs."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from reconciler.api.updaterequest import Reason, State, SweepProgress, UpdateRequest, render_time
from reconciler.cli.output.screen import Screen
from reconciler.cli.output.table import table
from reconciler.cli.output.words import number, some
from reconciler.cli.work.overview import HookTrouble, Overview, PolicyLine, Trouble
from reconciler.config import render_duration
from reconciler.requests.lifecycle import FINAL

_COLUMNS = (State.PENDING, State.COMPLETED, State.SKIP, State.FAILED)
_HEAD = ("POLICY", "WAITING", "DONE", "SKIPPED", "FAILED", "OLDEST WAITING")


def lines_of(found: Overview, screen: Screen, *, now: datetime) -> Iterator[str]:
    """Yield the lines of an overview; ages are relative to ``now``."""
    if not found.policies and not found.hooks:
        yield "no policy and no request found"
        return
    if found.policies:
        yield from table([_HEAD, *(_policy(line, now) for line in found.policies)], screen.width)
    for text in _remarks(found):
        yield from screen.fold(text, hanging="  ")
    yield from section("All triggers of a rule:", [*map(_sweep, found.sweeps)], screen)
    for state, title in ((State.PENDING, "Waiting:"), (State.FAILED, "Failed:")):
        troubles = [item for item in found.troubles if item.state is state]
        if troubles:
            yield ""
            yield title
        for trouble in troubles:
            yield from _trouble(trouble, screen, now, label=found.role_label)


def data_of(found: Overview) -> dict[str, Any]:
    """Return an overview as JSON; times are RFC 3339 or null."""
    return {
        "policies": [
            {
                "policy": line.policy,
                "notReady": line.ready,
                "deleted": line.deleted,
                **{state.value.lower(): line.states[state] for state in _COLUMNS},
                "oldestWaiting": moment_of(line.oldest),
            }
            for line in found.policies
        ],
        "hooks": [asdict(item) for item in found.hooks],
        "sweeps": [_data_of_sweep(item) for item in found.sweeps],
        "troubles": [
            {
                "policy": item.policy,
                "rule": item.rule,
                "state": item.state.value,
                "reason": item.reason,
                "message": item.message,
                "missingPermission": item.permission,
                "cure": _cure(item, found.role_label),
                "count": item.count,
                "nextAttemptTime": moment_of(item.next_attempt),
                "requests": [
                    {"name": name, "trigger": trigger} for name, trigger in item.requests
                ],
            }
            for item in found.troubles
        ],
    }


def section(title: str, texts: Sequence[str], screen: Screen) -> Iterator[str]:
    """Yield the lines of a part of a report, with a title if there are any."""
    if texts:
        yield ""
        yield title
    for text in texts:
        yield from screen.fold(text, "  ", hanging="    ")


def data_of_progress(progress: SweepProgress | None) -> dict[str, Any] | None:
    """Return progress as JSON; its total is null before it is counted."""
    if progress is None:
        return None
    total = None if progress.total < 0 else progress.total
    return {"done": progress.done, "total": total, "timeLeft": progress.eta}


def _policy(line: PolicyLine, now: datetime) -> tuple[str, ...]:
    age = "" if line.oldest is None else span((now - line.oldest).total_seconds())
    return (line.policy, *(str(line.states[state]) for state in _COLUMNS), age)


def _remarks(found: Overview) -> Iterator[str]:
    for line in found.policies:
        if line.deleted:
            yield f"policy {line.policy} was deleted; what it left is removed by itself"
        elif line.ready:
            yield f"policy {line.policy} is not ready: {line.ready}"
    yield from map(_hook, found.hooks)


def _hook(item: HookTrouble) -> str:
    if not item.queue:
        return f"{item.hook} is not ready: {item.message}"
    return f"{item.hook}, queue {item.queue}, {number(item.waiting, 'request')}: {item.message}"


def _sweep(item: UpdateRequest) -> str:
    progress = _progress(item)
    total = "?" if progress.total < 0 else f"{progress.total:,}"
    parts = [str(item.status.state), f"{progress.done:,}/{total} done"]
    if progress.failed:
        parts.append(number(progress.failed, "separate request"))
    if progress.eta:
        parts.append(f"{progress.eta} to go")
    return f"{item.spec.policy.key} / {item.spec.rule}: {', '.join(parts)} ({item.name})"


def _data_of_sweep(item: UpdateRequest) -> dict[str, Any]:
    status, progress = item.status, _progress(item)
    return {
        "request": item.name,
        "policy": item.spec.policy.key,
        "rule": item.spec.rule,
        "state": status.state.value,
        "done": progress.done,
        "total": None if progress.total < 0 else progress.total,
        "failed": progress.failed,
        "timeLeft": progress.eta,
        "reason": status.reason,
        "message": status.message,
        "nextAttemptTime": moment_of(status.next_attempt),
    }


def _progress(item: UpdateRequest) -> SweepProgress:
    progress = item.status.sweep or SweepProgress()
    return replace(progress, eta="") if item.status.state in FINAL else progress


def _trouble(item: Trouble, screen: Screen, now: datetime, *, label: str) -> Iterator[str]:
    text = f": {item.message}" if item.message else ""
    head = f"{number(item.count, 'request')} of {item.policy} / {item.rule}, {item.reason}{text}"
    yield from screen.fold(head, "  ", hanging="    ")
    for part in _parts(item, now, label):
        yield from screen.fold(part, "    ", hanging="      ")


def _parts(item: Trouble, now: datetime, label: str) -> Iterator[str]:
    if item.next_attempt is not None:
        left = (item.next_attempt - now).total_seconds()
        yield f"next attempt: {'in ' + span(left) if left >= 1 else 'now'}"
    if cure := _cure(item, label):
        yield f"to do: {cure}"
    yield some((f"{name} ({trigger})" for name, trigger in item.requests), item.count)


def _cure(item: Trouble, label: str) -> str:
    if item.deleted:
        return ""
    if item.permission:
        return (
            f"grant the controller: {item.permission} (a ClusterRole with the label"
            f" {label}); the requests then continue by themselves"
        )
    if item.reason == Reason.PATCH_WAR:
        return (
            "make one of the two stop writing the field; to continue before the next attempt:"
            f" kubectl retrofit retry {item.policy}"
        )
    if item.state is State.FAILED:
        return f"correct the cause, then: kubectl retrofit retry {item.policy} --failed"
    return ""


def span(seconds: float) -> str:
    """Return a duration for people: `3m5s`, without seconds from one hour on."""
    whole = max(0, round(seconds))
    # Seconds do not matter for long durations.
    coarse = whole - whole % 60 if whole >= 3600 else whole  # noqa: PLR2004
    return render_duration(coarse) if whole else "0s"


def moment_of(moment: datetime | None) -> str | None:
    """Return a time as RFC 3339 text, None where there is none."""
    return None if moment is None else render_time(moment)
