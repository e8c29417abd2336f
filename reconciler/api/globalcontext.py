"""GlobalContextEntry on the wire: its kind and its status."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reconciler.api.updaterequest import render_time

KIND = "GlobalContextEntry"

_READY = "Ready"
_LONGEST = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryStatus:
    """What the controller reports about an entry.

    Attributes:
        problem: Why rules cannot read the entry; empty where they can.
        refreshed: When the current data was loaded, None where rules cannot read any.
        generation: The generation of the spec that this status describes.
    """

    problem: str
    refreshed: datetime | None
    generation: int


def render_status(
    status: EntryStatus, before: Mapping[str, Any], now: datetime
) -> dict[str, Any] | None:
    """Return the status to write, None where the stored condition is the same.

    Args:
        before: The status as stored; its transition time is kept while ``Ready`` stays the same.
        now: The transition time of a condition that changes.
    """
    ready = "False" if status.problem else "True"
    condition = {
        "type": _READY,
        "status": ready,
        "reason": "Failed" if status.problem else "Succeeded",
        "message": status.problem[:_LONGEST] or "the data can be read",
        "observedGeneration": status.generation,
    }
    old = _condition(before)
    if {key: old.get(key) for key in condition} == condition:
        return None
    since = old.get("lastTransitionTime") if old.get("status") == ready else None
    return {
        "conditions": [{**condition, "lastTransitionTime": since or render_time(now)}],
        **render_refresh(status),
    }


def render_refresh(status: EntryStatus) -> dict[str, Any]:
    """Return the part of the status with the time of the last refresh."""
    if status.refreshed is None:
        return {}
    return {"lastRefreshTime": render_time(status.refreshed)}


def _condition(status: Mapping[str, Any]) -> Mapping[str, Any]:
    conditions = status.get("conditions") or ()
    return next((item for item in conditions if item.get("type") == _READY), {})
