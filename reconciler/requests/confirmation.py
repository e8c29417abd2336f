"""Checks that a triggering request was stored, since it is recorded before it is stored.

CREATE: the live object has the recorded uid. UPDATE: it has that uid and another resourceVersion
than the request carried; a request that changed nothing keeps it and needs no proof. DELETE: it is
gone, or terminating where it was not before. Other operations leave nothing to check.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from reconciler.api.meta import resource_version
from reconciler.api.updaterequest import RequestSpec
from reconciler.requests.draft import READ_LATER


class Presence(Enum):
    """What a live read shows about the triggering request."""

    STORED = "stored"
    WAITING = "waiting"
    GONE = "gone"


def needs_read(spec: RequestSpec) -> bool:
    """Return whether the trigger has to be read before the request is processed."""
    return bool(spec.resource.name) and spec.trigger.subresource in READ_LATER


def confirm(spec: RequestSpec, live: Mapping[str, Any] | None) -> Presence:
    """Return what a live read shows; ``live`` is None where the object does not exist."""
    uid = "" if live is None else (live.get("metadata") or {}).get("uid", "")
    same = live is not None and (not spec.resource.uid or uid == spec.resource.uid)
    match spec.operation:
        case "CREATE":
            return Presence.STORED if same else Presence.WAITING
        case "DELETE":
            return _deleted(spec, live if same else None)
        case "UPDATE" if same and live is not None:
            moved = resource_version(live) != spec.trigger.resource_version
            return Presence.STORED if moved or spec.trigger.unchanged else Presence.WAITING
        case _:
            return Presence.STORED if same else Presence.GONE


def _deleted(spec: RequestSpec, live: Mapping[str, Any] | None) -> Presence:
    if live is None:
        return Presence.STORED
    terminating = bool((live.get("metadata") or {}).get("deletionTimestamp"))
    return Presence.STORED if terminating and not spec.trigger.terminating else Presence.WAITING
