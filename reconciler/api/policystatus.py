"""``status.mutateExisting`` of a policy: the results of its work on existing objects.

The figures are kept in the status itself, because finished requests are removed sooner or later,
with a retention of 0 at once. ``running`` is the part of them that belongs to requests that have
not ended: the next leader counts those again, so that a restart counts nothing twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Self

from reconciler.api.meta import Object
from reconciler.api.updaterequest import parse_time, render_time

MAX_TEXT = 500
MAX_PERMISSIONS = 10
MAX_LOST = 10
"""Spans of lost triggers that a status lists; the latest ones are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Sums over requests.

    Attributes:
        triggers: Triggers that fired a rule and are done, successfully or not.
        skipped_triggers: Triggers that fired no rule in the end.
        existing: Existing objects that sweeps examined.
        failed: Targets that could not be changed; a trigger that failed before any counts as one.
    """

    triggers: int = 0
    skipped_triggers: int = 0
    existing: int = 0
    patched: int = 0
    unchanged: int = 0
    skipped: int = 0
    failed: int = 0

    def __add__(self, other: Self) -> Self:
        return self._each(other, 1)

    def __sub__(self, other: Self) -> Self:
        return self._each(other, -1)

    def _each(self, other: Self, sign: int) -> Self:
        values = {
            item.name: max(0, getattr(self, item.name) + sign * getattr(other, item.name))
            for item in fields(self)
        }
        return type(self)(**values)


_WIRE = {
    "triggers": "triggers",
    "skipped_triggers": "skippedTriggers",
    "existing": "existing",
    "patched": "patched",
    "unchanged": "unchanged",
    "skipped": "skipped",
    "failed": "failed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """The requests that have not ended.

    Attributes:
        pending: Number of requests that wait.
        figures: Their results so far, which the totals include.
        total: Objects that running sweeps have to examine; -1 where one has no count yet.
        eta: Estimated time of the longest sweep, as ``1m20s``; empty where unknown.
        permissions: The missing rights, each once.
        sweeping: One of them is a sweep.
        diverted: One of them stands for triggers that were not recorded one by one.
        waits: Why a sweep does not proceed now, or why requests are held back; empty where all do.
    """

    pending: int = 0
    figures: Figures = field(default_factory=Figures)
    total: int = 0
    eta: str = ""
    permissions: tuple[str, ...] = ()
    sweeping: bool = False
    diverted: bool = False
    waits: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyProgress:
    """The progress of a policy; ``figures`` includes those of ``running``."""

    figures: Figures = field(default_factory=Figures)
    running: Running = field(default_factory=Running)
    last_run: datetime | None = None
    last_error: str = ""
    last_skip: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostSpan:
    """A span of time in which triggers of some rules were lost.

    Attributes:
        rules: For each its name, why its triggers cannot be found, and how many objects that it
            matches were changed without being recorded; None where that is unknown.
    """

    since: datetime
    until: datetime | None
    reason: str
    rules: tuple[tuple[str, str, int | None], ...]


def add_lost(policy: Mapping[str, Any], span: LostSpan) -> list[Object]:
    """Return ``status.mutateExisting.lost`` with a span, which replaces one with equal start."""
    since = render_time(span.since)
    stored = [item for item in observed(policy).get("lost") or () if item.get("since") != since]
    new: Object = {
        "since": since,
        "reason": span.reason,
        "rules": [
            {"name": name, "why": why} | ({} if objects is None else {"objects": objects})
            for name, why, objects in span.rules
        ],
    }
    if span.until is not None:
        new["until"] = render_time(span.until)
    return sorted([*stored, new], key=lambda item: str(item["since"]))[-MAX_LOST:]


def parse_progress(policy: Mapping[str, Any]) -> PolicyProgress:
    """Return the progress that the status of a policy holds."""
    raw = observed(policy)
    running = raw.get("running") or {}
    return PolicyProgress(
        figures=_parse(raw),
        running=Running(pending=_number(raw, "pending"), figures=_parse(running)),
        last_run=parse_time(raw.get("lastRun")),
        last_error=str(raw.get("lastError") or ""),
        last_skip=str(raw.get("lastSkip") or ""),
        message=str(raw.get("message") or ""),
    )


def render_progress(progress: PolicyProgress) -> Object:
    """Return ``status.mutateExisting`` for a merge patch, in which unset fields are null."""
    running = progress.running
    part = _render(running.figures)
    return {
        **_render(progress.figures),
        "pending": running.pending,
        "lastRun": None if progress.last_run is None else render_time(progress.last_run),
        "lastError": progress.last_error[:MAX_TEXT] or None,
        "lastSkip": progress.last_skip[:MAX_TEXT] or None,
        "missingPermissions": list(running.permissions[:MAX_PERMISSIONS]) or None,
        "message": progress.message[:MAX_TEXT] or None,
        "running": {
            **part,
            "total": running.total if running.sweeping else None,
            "eta": running.eta or None,
        }
        if running.sweeping or any(part.values())
        else None,
    }


def blank_progress() -> Object:
    """Return the merge patch that removes all figures, for another generation."""
    return dict.fromkeys(render_progress(PolicyProgress()))


def observed(policy: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return ``status.mutateExisting`` as it is stored."""
    status: Mapping[str, Any] = policy.get("status") or {}
    return status.get("mutateExisting") or {}


def observed_generation(policy: Mapping[str, Any]) -> int | None:
    """Return the generation that the figures belong to, None before the first."""
    found = observed(policy).get("observedGeneration")
    return found if isinstance(found, int) else None


def runs_on_existing(policy: Mapping[str, Any]) -> bool:
    """Return whether rules that change their trigger were run on existing objects."""
    return observed(policy).get("onExisting") is True


def stored_alike(policy: Mapping[str, Any], rendered: Mapping[str, Any]) -> bool:
    """Return whether the status of a policy already equals a rendered progress."""
    stored = observed(policy)
    return all(stored.get(key) == _without_null(value) for key, value in rendered.items())


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: item for key, item in value.items() if item is not None}
    return value


def _parse(raw: Mapping[str, Any]) -> Figures:
    return Figures(**{name: _number(raw, wire) for name, wire in _WIRE.items()})


def _render(figures: Figures) -> Object:
    return {wire: getattr(figures, name) for name, wire in _WIRE.items()}


def _number(raw: Mapping[str, Any], key: str) -> int:
    value = raw.get(key)
    return value if isinstance(value, int) else 0
