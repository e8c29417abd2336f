"""What people read: reports and events."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from reconciler.api.meta import Object


class ReportStore(Protocol):
    """This project's report in each namespace; ``""`` is the one of cluster-scoped objects.

    Every method raises `NoKindMatch` where the cluster has no reports.
    """

    async def get(self, namespace: str) -> Object | None:
        """Return the report of a namespace, None where there is none."""
        ...

    async def put(self, namespace: str, report: Object) -> None:
        """Store a report; with a resourceVersion in it only in place of that version.

        Raises:
            Conflict: Another version is stored.
            AlreadyExists: Somebody was faster.
            NotFound: There is no such namespace.
        """
        ...

    async def delete(self, namespace: str) -> None:
        """Remove the report; absent is success."""
        ...

    async def namespaces(self) -> frozenset[str]:
        """Return where there are reports."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something to tell about objects, given as references: apiVersion, kind, namespace, name.

    Attributes:
        group: Events of one object and reason with the same group, or where it is empty the same
            note, are one event for some minutes, which counts and keeps the first note.
        reporter: Who says it, where that is not kube-retrofit.
    """

    regarding: Mapping[str, Any]
    related: Mapping[str, Any] | None = None
    severity: Literal["Normal", "Warning"]
    reason: str
    action: str
    note: str
    group: str = ""
    reporter: str = ""


class Events(Protocol):
    """Kubernetes events; they never fail a caller and are rate-limited."""

    def emit(self, event: Event) -> None:
        """Queue one event."""
        ...
