"""What the use cases need of the world; `reconciler.kube` and `reconciler.memory` give it.

Every method raises the `ClusterError` family of `reconciler.errors` and nothing else. Transport
retries (a refused connection, a 429 with Retry-After) happen below the port and are bounded; a
409 is never repeated below it, because the decision has to be taken again.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol, TypeVar

from reconciler.api.account import ServiceAccount
from reconciler.api.meta import Kind, Object
from reconciler.api.rights import Right
from reconciler.api.updaterequest import RequestSpec, RequestStatus, UpdateRequest
from reconciler.engine.entries import Load
from reconciler.engine.patch import KeyTable
from reconciler.requests.overload import Backlog

T = TypeVar("T")
Change = Literal["ADDED", "MODIFIED", "DELETED"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of a LIST.

    Attributes:
        token: Continues the list; empty at its end. It expires after minutes (`Expired`).
        remaining: How many follow as far as the server tells, else 0.
        size: Bytes of JSON that it came in, 0 where that is not known.
    """

    items: tuple[Object, ...]
    token: str = ""
    remaining: int = 0
    resource_version: str = ""
    size: int = 0


class Kinds(Protocol):
    """Discovery."""

    async def find(self, api_version: str, kind: str) -> tuple[Kind, ...]:
        """Return the served resources that a target's ``apiVersion`` and ``kind`` name.

        ``kind`` may carry a subresource (``Node/status``), ``api_version`` and both parts of
        ``kind`` may be ``*``. An exact ``v1`` is the core group only. Empty result: not served;
        the answer is not remembered for longer than some seconds.
        """
        ...

    async def of_resource(self, group: str, version: str, plural: str) -> Kind | None:
        """Return the kind behind a resource name, None where it is not served."""
        ...


class MergeKeys(Protocol):
    """Which lists merge by key in a strategic merge."""

    async def merge_keys(self, api_version: str) -> KeyTable:
        """Return the keys for objects of a group version; what cannot be read has none."""
        ...


class Reader(Protocol):
    """Live reads; objects are plain dicts that the caller must not change."""

    def acting_as(self, account: ServiceAccount | None) -> "Reader":
        """Return one that reads in an account's name; None: in that of this one."""
        ...

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """Return the object, of a kind with subresource that subresource.

        Raises:
            Gone: There is no such object.
            UnknownKind: The cluster does not serve the kind (any more).
        """
        ...

    async def list_page(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        limit: int = 500,
        token: str = "",
    ) -> Page:
        """Return one page; an empty namespace means all. Items carry apiVersion and kind.

        It may have fewer items than ``limit`` although more follow, where they are large.
        ``labels`` and ``fields`` are selectors in the API's text form.
        """
        ...


class History(Protocol):
    """What the API server still knows of objects that may be gone."""

    async def stored(
        self, kind: Kind, namespace: str, name: str, uid: str, since: str
    ) -> bool | None:
        """Return whether an object was stored after a resourceVersion, None where none can tell.

        That version may be one of another kind, as far as both are stored in one place.
        """
        ...


class MatchConditions(Protocol):
    """CEL conditions, as webhooks have them."""

    async def check(self, conditions: Sequence[Mapping[str, Any]]) -> None:
        """Have conditions compiled.

        Raises:
            Invalid: They do not compile; says which and why.
        """
        ...


class Loader(Protocol):
    """Reads for context entries."""

    async def load(self, load: Load) -> Any:
        """Return what an entry asks for, decoded.

        Raises:
            Gone: There is no such thing; the rule cannot be evaluated.
            Invalid: It may not be asked for, or the answer is unusable.
        """
        ...


class Isolation(Protocol):
    """Evaluates where nothing else waits for it, and where it can do no harm."""

    async def evaluate(self, work: Callable[[], T], tenant: str) -> T:
        """Return what a pure function gives, which may take long.

        Args:
            work: Changes nothing that the caller sees; its result can be pickled.
            tenant: Whose work it is; tenants take turns.

        Raises:
            EvaluationError: It needs more memory than it may have, or its result is too large.
            Interrupted: It was ended before it had a result.
        """
        ...


class RuleLoader(Loader, Protocol):
    """The same for the rules of all policies."""

    def acting_as(self, account: ServiceAccount | None) -> Loader:
        """Return one that asks the API server in the name of an account, as `Reader`."""
        ...


class Writer(Protocol):
    """Guarded writes of targets."""

    def acting_as(self, account: ServiceAccount | None) -> "Writer":
        """Return one that writes in the name of an account, as `Reader`."""
        ...

    async def change(self, kind: Kind, before: Object, after: Object) -> Object:
        """Write the smallest change that leads from one to the other; return the new object.

        It succeeds only if the stored object still has the resourceVersion of ``before``.
        Where ``patch`` is not granted but ``update`` is, the whole object is put.

        Raises:
            Conflict: The object changed since it was read.
            Gone: It was deleted.
            Forbidden: Neither verb is granted; names the missing one.
            Invalid: The content is refused.
            Denied: Another admission webhook refused it.
        """
        ...


class Requests(Protocol):
    """The durable requests."""

    async def create(self, name: str, labels: Mapping[str, str], spec: RequestSpec) -> str:
        """Store a request; return its resourceVersion, empty where one of that name is stored.

        That is success too: our own CREATE came twice.
        """
        ...

    async def raise_sequence(self, request: UpdateRequest) -> UpdateRequest:
        """Raise ``spec.sequence`` of this very version of a request by one.

        Raises:
            Conflict: The request changed since.
            Gone: It was deleted.
        """
        ...

    async def get(self, name: str) -> UpdateRequest:
        """Return a request as it is stored now."""
        ...

    async def write_status(self, request: UpdateRequest, status: RequestStatus) -> UpdateRequest:
        """Write a status that was decided on this very version of the request.

        Raises:
            Conflict: The request changed since; a final state is never reopened.
            Gone: It was deleted.
        """
        ...

    async def annotate(self, name: str, annotations: Mapping[str, str]) -> None:
        """Set annotations of a request.

        Raises:
            Gone: It was deleted.
        """
        ...

    def waiting(self) -> AsyncIterator[UpdateRequest]:
        """Yield all requests that are not final, in pages."""
        ...

    def finished(self) -> AsyncIterator[UpdateRequest]:
        """Yield all final requests, in pages."""
        ...

    async def remove(self, *, remove_after: str, policy: str = "") -> None:
        """Delete the finished requests of one minute of ``status.removeAfter`` in one call."""
        ...

    async def create_recorded(self, request: str, labels: Mapping[str, str], data: bytes) -> None:
        """Store recorded fields that must not stand in the request of a name, as a Secret.

        What is stored already stays as it is.
        """
        ...

    async def read_recorded(self, request: str, *, former: bool = False) -> bytes:
        """Return what `create_recorded` stored.

        Args:
            request: The name of the request.
            former: Look also where older versions stored it.

        Raises:
            Gone: Nothing is stored.
            Forbidden: It may be where older versions stored it, which may not be read.
        """
        ...

    async def delete_recorded(self, request: str, *, former: bool = False) -> None:
        """Remove it, with ``former`` also where older versions stored it; absent is success."""
        ...


class Policies(Protocol):
    """Policy objects, as stored."""

    async def get(self, key: str) -> Object:
        """Return the ClusterPolicy ``name`` or the Policy ``namespace/name``, live."""
        ...

    async def stored(self) -> tuple[Object, ...]:
        """Return all policies of both kinds, live."""
        ...

    async def write_status(self, policy: Object, status: Mapping[str, Any]) -> None:
        """Merge into the status of a policy."""
        ...


class Feed(Protocol):
    """The objects of one kind as they come, change and go; for one consumer.

    Attributes:
        synced: Set once all that there is was handed over.
        progress: Monotonic time at which the server last said anything.
        problem: Why it makes no progress; empty while it does.
    """

    synced: asyncio.Event
    progress: float
    problem: str

    def events(self) -> AsyncGenerator[tuple[Change, Object]]:
        """Yield changes for ever; objects carry apiVersion and kind."""
        ...


class Entries(Protocol):
    """GlobalContextEntries, as stored, and the objects that they are about."""

    def follow(self) -> Feed:
        """Return all entries."""
        ...

    def follow_objects(self, kind: Kind, namespace: str) -> Feed:
        """Return all objects of a kind; an empty namespace means everywhere."""
        ...

    async def write_status(self, entry: Object, status: Mapping[str, Any]) -> Object:
        """Merge into the status of this very version of an entry; return the stored one.

        Raises:
            Conflict: The entry changed since.
            Gone: It was deleted.
        """
        ...


class Webhooks(Protocol):
    """Webhook configurations, as stored."""

    async def get(self, name: str) -> Object | None:
        """Return a configuration, None where there is none."""
        ...

    async def create(self, configuration: Object) -> Object:
        """Store a new one; raises `AlreadyExists`."""
        ...

    async def replace(self, configuration: Object) -> Object:
        """Replace that very version; raises `Conflict`."""
        ...

    async def delete(self, name: str) -> None:
        """Remove a configuration; absent is success."""
        ...

    async def check(self, configuration: Object) -> None:
        """Have the API server check one without storing it; raises `Invalid`."""
        ...

    async def owner(self) -> Mapping[str, Any] | None:
        """Return the owner reference for configurations, None where there is no such object."""
        ...


class Board(Protocol):
    """Where the leader tells the replicas that record how many requests wait."""

    async def read(self) -> Backlog:
        """Return what was told last; before anything was, nothing waits."""
        ...

    async def write(self, backlog: Backlog) -> None:
        """Tell it; only a leader does."""
        ...


class Leases(Protocol):
    """Leases of the programs' own namespace."""

    async def lease(self, name: str) -> Object | None:
        """Return a Lease, None where there is none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """What the admission servers say of themselves.

    Attributes:
        renewed: Another text each time that one of them says that it is alive.
        missed: Another text each time that none was there, or one could not record.
    """

    renewed: str = ""
    missed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What of the search for lost triggers outlives a process.

    Attributes:
        done: Until when everything was looked at, None where nobody ever looked.
        version: Of the webhook configuration for triggers as it was in force last.
        confirmed: When that was seen last.
        outages: Times at which policies were not in force, as `Outages.dump` gives them.
    """

    done: datetime | None = None
    version: str = ""
    confirmed: datetime | None = None
    outages: str = ""


class Marks(Protocol):
    """Where the checkpoint is kept, and what the admission servers say."""

    async def load(self) -> Checkpoint:
        """Return what was stored last."""
        ...

    async def store(self, checkpoint: Checkpoint) -> None:
        """Store it whole."""
        ...

    async def pulse(self) -> Pulse:
        """Return what the admission servers said last."""
        ...


class ReportStore(Protocol):
    """This project's report in each namespace; ``""`` is the one of cluster-scoped objects.

    Every method raises `UnknownKind` where the cluster has no reports.
    """

    async def get(self, namespace: str) -> Object | None:
        """Return the report of a namespace, None where there is none."""
        ...

    async def put(self, namespace: str, report: Object) -> None:
        """Store a report; with a resourceVersion in it only in place of that version.

        Raises:
            Conflict: Another version is stored.
            AlreadyExists: Somebody was faster.
            Gone: There is no such namespace.
        """
        ...

    async def delete(self, namespace: str) -> None:
        """Remove the report; absent is success."""
        ...

    async def namespaces(self) -> frozenset[str]:
        """Return where there are reports."""
        ...


class Authority(Protocol):
    """The certificate authority that the webhook's serving certificate comes from."""

    async def restore(self) -> None:
        """Make the Secrets that hold it and the certificate again, empty, where they are gone."""
        ...

    async def ca_bundle(self) -> bytes | None:
        """Return its certificates in PEM, None where no admission server has made it yet."""
        ...


class Access(Protocol):
    """What one account may do; every answer is fresh."""

    async def may(self, right: Right) -> bool:
        """Return whether a right is granted now."""
        ...


class Accesses(Access, Protocol):
    """The same about the account that policies share, and about any that a policy names."""

    def of(self, account: ServiceAccount | None) -> Access:
        """Return what tells about an account, None being the shared one.

        To `ServiceAccount.impersonation` it answers whether the programs may work in its name.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something to tell about objects, given as references: apiVersion, kind, namespace, name.

    Attributes:
        group: Events of one object and reason with the same group, or where it is empty the same
            note, are one event for some minutes, which counts and keeps the first note.
    """

    regarding: Mapping[str, Any]
    related: Mapping[str, Any] | None = None
    severity: Literal["Normal", "Warning"]
    reason: str
    action: str
    note: str
    group: str = ""


class Events(Protocol):
    """Kubernetes events; they never fail a caller and are rate-limited."""

    def emit(self, event: Event) -> None:
        """Queue one event."""
        ...
