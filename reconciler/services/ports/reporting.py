"""Ports for policy reports and Kubernetes events."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from reconciler.api.meta import Object


class ReportStore(Protocol):
    """Store of one report for each namespace; ``""`` is the one for cluster-scoped objects.

    Every method raises `NoKindMatch` if the cluster does not serve reports.
    """

    async def get(self, namespace: str) -> Object | None:
        """Return the report of a namespace, None if it has none."""

    async def put(self, namespace: str, report: Object) -> None:
        """Store a report; one with a resourceVersion replaces only that version.

        Raises:
            Conflict: Another version is stored.
            AlreadyExists: Another writer created it first.
            NotFound: The namespace does not exist.
        """

    async def delete(self, namespace: str) -> None:
        """Remove the report; succeed if it does not exist."""

    async def namespaces(self) -> frozenset[str]:
        """Return the namespaces that have a report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event on objects, given as references: apiVersion, kind, namespace, name.

    Attributes:
        group: Events of one object and reason with the same group, or with the same note if it is
            empty, are one event for some minutes, which counts them and keeps the first note.
        reporter: The reporting component, if it is not kube-retrofit.
    """

    regarding: Mapping[str, Any]
    related: Mapping[str, Any] | None = None
    severity: Literal["Normal", "Warning"]
    reason: str
    action: str = "None"
    note: str
    group: str = ""
    reporter: str = ""


class Events(Protocol):
    """Kubernetes events; emitting never fails, and is rate-limited."""

    def emit(self, event: Event) -> None:
        """Queue an event."""
