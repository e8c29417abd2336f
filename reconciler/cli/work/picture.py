"""Output of a `Board` as text for a screen, and as JSON for programs."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

from reconciler.api.updaterequest import render_time
from reconciler.cli.output.screen import Screen
from reconciler.cli.output.table import table
from reconciler.cli.output.words import number
from reconciler.cli.work.board import Board, Holder, PolicyFigures
from reconciler.cli.work.report import data_of_progress, moment_of, section, span

_BAR: Final = 20
_HEAD: Final = ("POLICY", "READY", "WAITING", "DONE/S", "DONE", "PATCHED", "FAILED", "LAST RUN")
_RATE: Final = _HEAD.index("DONE/S")
_LEAST: Final = 5
_FRAME: Final = 3


def picture(
    found: Board, screen: Screen, *, rates: Mapping[str, float] | None = None, height: int = 0
) -> Iterator[str]:
    """Yield the lines of a board.

    Args:
        rates: Finished triggers per second by policy; None where there is no measurement.
        height: The maximum number of lines, 0 for no limit; the busiest policies come first.
    """
    above = [*screen.fold(_top_line(found, rates), hanging="  ")]
    if not found.complete:
        above += screen.fold("some policies are missing here: you may not list all kinds")
    if not found.policies:
        yield from [*above, "no policy found"]
        return
    troubles = [line for item in found.policies for line in _of(item)]
    footer = [
        *section("Rollouts:", [*_rollouts(found)], screen),
        *section("Problems:", troubles, screen),
    ]
    # Besides the rows: an empty line, the header, and the line that counts the others.
    room = height - len(above) - _FRAME - min(len(footer), height // 2)
    count = max(_LEAST, room) if height else len(found.policies)
    lines = [*above, "", *_rows(found, rates, count, screen.width), *footer]
    yield from lines[:height] if height else lines


def data_of_board(found: Board, rates: Mapping[str, float] | None) -> dict[str, Any]:
    """Return a board as JSON; times are RFC 3339 or null, and rates null without a measurement."""
    return {
        "time": render_time(found.moment),
        "waiting": found.waiting,
        "complete": found.complete,
        "leader": None if found.leader is None else asdict(found.leader),
        "admission": None if found.admission is None else asdict(found.admission),
        "policies": [data_of_policy(item, rates) for item in found.policies],
    }


def data_of_policy(item: PolicyFigures, rates: Mapping[str, float] | None) -> dict[str, Any]:
    """Return one policy as JSON."""
    return {
        "policy": item.policy,
        "notReady": item.not_ready,
        "waiting": item.waiting,
        "doneTriggers": item.ended,
        "donePerSecond": None if rates is None else round(rates.get(item.policy, 0.0), 2),
        "patched": item.patched,
        "failed": item.failed,
        "lastRun": moment_of(item.last_run),
        "rollout": data_of_progress(item.rollout),
        "message": item.message,
        "lastError": item.last_error,
        "heldBack": item.held,
        "missingPermissions": list(item.rights),
        "lostTimes": item.lost,
    }


def _top_line(found: Board, rates: Mapping[str, float] | None) -> str:
    waiting = "request waits" if found.waiting == 1 else "requests wait"
    parts = [f"{found.waiting:,} {waiting}"]
    if rates is not None:
        parts.append(f"{sum(rates.values()):.1f} done/s")
    parts.append(_said("controller", found.leader, "leads"))
    parts.append(_said("admission server", found.admission, "serves"))
    return "; ".join(parts)


def _said(program: str, holder: Holder | None, does: str) -> str:
    if holder is None:
        return f"{program}: you may not read its Lease"
    if not holder.name or not holder.fresh:
        return f"no {program} {does}"
    return f"{'an' if program[0] == 'a' else 'a'} {program} {does}"


def _rows(
    found: Board, rates: Mapping[str, float] | None, count: int, width: int
) -> Iterator[str]:
    shown = found.policies[:count]
    rows = [_HEAD, *(_row(item, rates or {}, found.moment) for item in shown)]
    if rates is None:
        rows = [(*row[:_RATE], *row[_RATE + 1 :]) for row in rows]
    yield from table(rows, width)
    if left := len(found.policies) - len(shown):
        yield f"and {number(left, 'more policy', 'more policies')}"


def _row(item: PolicyFigures, rates: Mapping[str, float], now: datetime) -> tuple[str, ...]:
    rate = rates.get(item.policy)
    return (
        item.policy,
        "no" if item.not_ready else "yes",
        f"{item.waiting:,}",
        "" if rate is None else f"{rate:.1f}",
        f"{item.ended:,}",
        f"{item.patched:,}",
        f"{item.failed:,}",
        "" if item.last_run is None else span((now - item.last_run).total_seconds()),
    )


def _rollouts(found: Board) -> Iterator[str]:
    for item in found.policies:
        if (rollout := item.rollout) is not None:
            share = min(1.0, rollout.done / rollout.total) if rollout.total > 0 else 0.0
            full = round(share * _BAR)
            bar = f"[{'#' * full}{'.' * (_BAR - full)}] {share:4.0%}"
            yield f"{bar}  {item.policy}: {item.message}"


def _of(item: PolicyFigures) -> Iterator[str]:
    if item.not_ready:
        yield f"{item.policy} is not ready: {item.not_ready}"
    if item.held:
        yield f"{item.policy} is held back: {item.held}"
    if item.rights:
        yield f"{item.policy} waits for a right: {', '.join(item.rights)}"
    elif item.last_error and (item.failed or item.waiting):
        yield f"{item.policy}, last error: {item.last_error}"
    if item.lost:
        yield f"{item.policy} lost triggers {number(item.lost, 'time')}: see status.mutateExisting"
