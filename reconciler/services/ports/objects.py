"""Objects of any kind: which kinds there are, reads and guarded writes."""

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

    async def named(self, api_version: str, name: str) -> Kind | None:
        """Return the kind that people call so, None where it is not served.

        Args:
            api_version: Empty for the preferred version of the first group that has it.
            name: A kind, a plural, a singular or a short name, in any case.
        """
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
            NotFound: There is no such object.
            NoKindMatch: The cluster does not serve the kind (any more).
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


class Loader(Protocol):
    """Reads for context entries."""

    async def load(self, load: Load) -> Any:
        """Return what an entry asks for, decoded.

        Raises:
            NotFound: There is no such thing; the rule cannot be evaluated.
            Invalid: It may not be asked for, or the answer is unusable.
        """
        ...


def kind_of(load: ObjectLoad, served: Iterable[Kind]) -> Kind:
    """Return the kind of the object that is asked for.

    Raises:
        NoKindMatch: It is not among those that are served.
        Invalid: It is in no namespace, and nothing outside of one may be read.
    """
    for kind in served:
        if kind.kind == load.kind and not kind.subresource:
            break
    else:
        msg = f"the cluster serves no {load.kind} of {load.api_version}"
        raise NoKindMatch(msg, status=404)
    if load.confined and not kind.namespaced:
        msg = f"a {load.kind} is in no namespace, and the policy does not leave its own"
        raise Invalid(msg, status=400)
    return kind


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

    async def change(
        self, kind: Kind, before: Object, after: Object, *, manager: str = FIELD_MANAGER
    ) -> Object:
        """Write the smallest change that leads from one to the other; return the new object.

        It succeeds only if the stored object still has the resourceVersion of ``before``.
        Where ``patch`` is not granted but ``update`` is, the whole object is put. The API server
        notes the changed fields under the name of the manager.

        Raises:
            Conflict: The object changed since it was read.
            NotFound: It was deleted.
            Forbidden: Neither verb is granted; names the missing one.
            Invalid: The content is refused.
            Denied: Another admission webhook refused it.
        """
        ...


class Propagation(StrEnum):
    """What becomes of the objects that a deleted one owns."""

    FOREGROUND = "Foreground"
    BACKGROUND = "Background"
    ORPHAN = "Orphan"


class Operations(Protocol):
    """Writes in the words of somebody else, without a guard."""

    async def create(self, kind: Kind, obj: Object) -> Object:
        """Store a new object, with what the API server makes of it.

        Raises:
            AlreadyExists: There is one of that name.
            Unavailable: Nobody knows whether it was stored.
        """
        ...

    async def merge_patch(self, kind: Kind, namespace: str, name: str, patch: Object) -> Object:
        """Send a merge patch, of a kind with subresource to that; return the object."""
        ...

    async def json_patch(self, kind: Kind, namespace: str, name: str, patch: list[Any]) -> Object:
        """Send a JSON patch likewise.

        Raises:
            Invalid: A step of it does not fit.
            Unavailable: Nobody knows whether it was applied.
        """
        ...

    async def delete(
        self, kind: Kind, namespace: str, name: str, propagation: Propagation
    ) -> None:
        """Delete an object; in the foreground it is gone afterwards.

        Raises:
            NotFound: There is no such object.
            Unfinished: It is still there, after twenty seconds in the foreground.
        """
        ...
