"""When an object was last changed, according to its metadata.

The API server notes whole seconds. It does so before it calls admission, so a request that was
recorded for a change is never older than the change.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reconciler.api.meta import manager_of
from reconciler.api.updaterequest import parse_time

# For other subresources, such as status or binding, no webhook of the object is called.
_WHOLE = frozenset({"", "ephemeralcontainers"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The time in which changes are searched for, both ends included.

    Attributes:
        version: A resourceVersion that was stored at ``since``, 0 where that is unknown: changes
            in the same second with a lower one came before the window.
    """

    since: datetime
    until: datetime
    version: int = 0

    def holds(self, moment: datetime, version: str) -> bool:
        """Return whether a change is in the window, given the object's resourceVersion."""
        if not self.since <= moment <= self.until:
            return False
        same_second = moment == self.since.replace(microsecond=0)
        return not (same_second and version.isdecimal() and int(version) < self.version)


def changed(obj: Mapping[str, Any], *, but_by: frozenset[str] = frozenset()) -> datetime | None:
    """Return when an object was last created or changed, None if only by the given managers.

    Args:
        obj: The object; its metadata is enough.
        but_by: Field managers whose changes do not count.
    """
    meta = obj.get("metadata") or {}
    counted: set[datetime] = set()
    others: set[datetime] = set()
    for entry in meta.get("managedFields") or ():
        moment = parse_time(entry.get("time"))
        if moment is not None and entry.get("subresource", "") in _WHOLE:
            (others if manager_of(entry) in but_by else counted).add(moment)
    created = parse_time(meta.get("creationTimestamp"))
    # The creator may have lost all its fields to other managers: then the creation counts.
    if created is not None and created not in others:
        counted.add(created)
    return max(counted, default=None)
