"""``status.mutateExisting`` of a policy: what its work on existing objects came to.

The figures are kept in the status itself, because finished requests are removed sooner or later,
at a retention of 0 at once. ``running`` says which part of them belongs to requests that have not
ended: those are counted anew by whoever leads next, so that a restart counts nothing twice.
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
"""Spans of lost triggers that a status lists; of more the latest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Sums over requests.

    Attributes:
        triggers: Triggers that fired a rule and are done, well or not.
        skipped_triggers: Triggers that in the end fired nothing.
        existing: Existing objects that sweeps looked at.
        failed: Targets that could not be changed; a trigger that failed before any is one.
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
    """What has not ended.

    Attributes:
        pending: Requests that wait.
        figures: What they came to so far; a part of the whole.
        total: Objects that running sweeps have to look at; -1 where one is not counted yet.
        eta: Time that the longest sweep will take, as ``1m20s``; empty where unknown.
        permissions: What to grant, each once.
        sweeping: A sweep is among them.
        diverted: One of them stands for triggers that were not recorded one by one.
        waits: Why a sweep does not go on now; empty where each does.
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
    """The whole of it; ``figures`` includes what is running."""

    figures: Figures = field(default_factory=Figures)
    running: Running = field(default_factory=Running)
    last_run: datetime | None = None
    last_error: str = ""
    last_skip: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostSpan:
    """A time in which triggers of some rules were lost.

    Attributes:
        rules: Of each its name, why its triggers cannot be found, and how many objects that it
            matches were changed without being recorded; None where nobody can say.
    """

    since: datetime
    until: datetime | None
    reason: str
    rules: tuple[tuple[str, str, int | None], ...]


def add_lost(policy: Mapping[str, Any], span: LostSpan) -> list[Object]:
    """Return ``status.mutateExisting.lost`` with another span; the same one is replaced."""
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
    """Return what the status of a policy says."""
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
    """Return ``status.mutateExisting`` as a merge patch wants it: what is not set is null."""
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
    """Return the merge patch that takes all figures away, for another generation."""
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
    """Return whether rules that change their trigger were sent over what exists."""
    return observed(policy).get("onExisting") is True


def stored_alike(policy: Mapping[str, Any], rendered: Mapping[str, Any]) -> bool:
    """Return whether a rendered progress is what the policy holds already."""
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
