"""Ports for objects of any kind: discovery, reads and guarded writes."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from reconciler.api.account import ServiceAccount
from reconciler.api.meta import FIELD_MANAGER, Kind, Object
from reconciler.engine.loads import Load, ObjectLoad
from reconciler.engine.patch import KeyTable
from reconciler.errors import Invalid, NoKindMatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of a LIST.

    Attributes:
        token: Continues the list; empty at its end. It expires after minutes (`Gone`).
        remaining: How many items follow if the server reports it, else 0.
        size: Bytes of the JSON answer, 0 if unknown.
    """

    items: tuple[Object, ...]
    token: str = ""
    remaining: int = 0
    resource_version: str = ""
    size: int = 0


class Kinds(Protocol):
    """Discovery of the kinds that the cluster serves."""

    async def find(self, api_version: str, kind: str) -> tuple[Kind, ...]:
        """Return the served resources that a target's ``apiVersion`` and ``kind`` name.

        ``kind`` may carry a subresource (``Node/status``), ``api_version`` and both parts of
        ``kind`` may be ``*``. An exact ``v1`` is the core group only. The result is empty if none
        is served; that answer is cached for some seconds only.
        """

    async def of_resource(self, group: str, version: str, plural: str) -> Kind | None:
        """Return the kind behind a resource name, None if it is not served."""

    async def named(self, api_version: str, name: str) -> Kind | None:
        """Return the kind with a name as ``kubectl`` accepts it, None if it is not served.

        Args:
            api_version: Empty for the preferred version of the first group that has it.
            name: A kind, a plural, a singular or a short name, in any case.
        """


class MergeKeys(Protocol):
    """Merge keys of lists, for strategic merge patches."""

    async def merge_keys(self, api_version: str) -> KeyTable:
        """Return the keys for objects of a group version; none if its schema cannot be read."""


class Reader(Protocol):
    """Live reads; objects are plain dicts that the caller must not change."""

    def acting_as(self, account: ServiceAccount | None) -> "Reader":
        """Return a reader that impersonates an account; None returns this one."""

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """Return an object, or its subresource if the kind has one.

        Raises:
            NotFound: There is no such object.
            NoKindMatch: The cluster does not serve the kind, or not any more.
        """

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

        It may have fewer items than ``limit`` although more follow, if they are large.
        ``labels`` and ``fields`` are selectors in the API's text form.
        """


class History(Protocol):
    """Evidence in the API server's watch history of objects that may be gone."""

    async def stored(
        self, kind: Kind, namespace: str, name: str, uid: str, since: str
    ) -> bool | None:
        """Return whether an object was stored after a resourceVersion, None if that is unknown.

        The version may come from another kind, if both are kept in the same storage.
        """


class Loader(Protocol):
    """Reads the data of context entries."""

    async def load(self, load: Load) -> Any:
        """Return the decoded data that an entry requests.

        Raises:
            NotFound: It does not exist; the rule cannot be evaluated.
            Invalid: It may not be requested, or the answer is unusable.
        """


def kind_of(load: ObjectLoad, served: Iterable[Kind]) -> Kind:
    """Return the kind of a requested object.

    Raises:
        NoKindMatch: It is not among the served kinds.
        Invalid: It is cluster-scoped, and the policy may only read in its own namespace.
    """
    named = (item for item in served if item.kind == load.kind and not item.subresource)
    kind = next(named, None)
    if kind is None:
        raise NoKindMatch(f"the cluster serves no {load.kind} of {load.api_version}", status=404)
    if load.confined and not kind.namespaced:
        raise Invalid(
            f"a {load.kind} is in no namespace, and the policy does not leave its own", status=400
        )
    return kind


class RuleLoader(Loader, Protocol):
    """Reads the data of context entries for the rules of all policies."""

    def acting_as(self, account: ServiceAccount | None) -> Loader:
        """Return a loader that impersonates an account, as `Reader.acting_as` does."""


class Writer(Protocol):
    """Guarded writes of targets."""

    def acting_as(self, account: ServiceAccount | None) -> "Writer":
        """Return a writer that impersonates an account, as `Reader.acting_as` does."""

    async def change(
        self, kind: Kind, before: Object, after: Object, *, manager: str = FIELD_MANAGER
    ) -> Object:
        """Write the smallest change from one object to the other; return the new object.

        It succeeds only if the stored object still has the resourceVersion of ``before``.
        If ``patch`` is not granted but ``update`` is, the whole object is replaced. The API server
        records the field manager as the owner of the changed fields.

        Raises:
            Conflict: The object changed since it was read.
            NotFound: It was deleted.
            Forbidden: Neither verb is granted; the error names the missing one.
            Invalid: The content is refused.
            Denied: Another admission webhook refused it.
        """


class Propagation(StrEnum):
    """What happens to the objects that a deleted one owns."""

    FOREGROUND = "Foreground"
    BACKGROUND = "Background"
    ORPHAN = "Orphan"


class Operations(Protocol):
    """Writes as hooks formulate them, not guarded by a resourceVersion."""

    async def create(self, kind: Kind, obj: Object) -> Object:
        """Create an object; return it as the API server stored it.

        Raises:
            AlreadyExists: An object of that name exists.
            Unavailable: It is unknown whether the object was stored.
        """

    async def merge_patch(self, kind: Kind, namespace: str, name: str, patch: Object) -> Object:
        """Apply a merge patch, to the subresource if the kind has one; return the object."""

    async def json_patch(self, kind: Kind, namespace: str, name: str, patch: list[Any]) -> Object:
        """Apply a JSON patch, as `merge_patch`.

        Raises:
            Invalid: A step of it does not apply.
            Unavailable: It is unknown whether it was applied.
        """

    async def delete(
        self, kind: Kind, namespace: str, name: str, propagation: Propagation
    ) -> None:
        """Delete an object; with foreground propagation, return once it is gone.

        Raises:
            NotFound: There is no such object.
            Unfinished: It still exists after twenty seconds of foreground deletion.
        """
