"""An in-memory cluster with faults and a history, for tests only."""

from dataclasses import replace
from typing import Any

from typing_extensions import override

from reconciler.api.meta import FIELD_MANAGER, Kind, Object
from reconciler.clock import Clock
from reconciler.engine.patch.diff import equal
from reconciler.errors import Denied, Forbidden, Gone
from reconciler.memory.cluster import Key, MemoryCluster
from reconciler.services.ports.objects import Page


class RiggedCluster(MemoryCluster):
    """A cluster that refuses what a test forbids, and knows what was stored before.

    Attributes:
        writes: Number of changes that were sent and stored.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self.writes = 0
        self._past: dict[tuple[str, ...], int] = {}
        self._epoch = 0
        self._forbidden: set[tuple[str, str]] = set()
        self._denials: dict[str, str] = {}

    def forbid(self, verb: str, resource: str) -> None:
        """Revoke a right; the resource has the form ``deployments.apps/scale``."""
        self._forbidden.add((verb, resource))

    def permit(self, verb: str, resource: str) -> None:
        """Grant a revoked right again."""
        self._forbidden.discard((verb, resource))

    def deny(self, resource: str, message: str) -> None:
        """Deny writes of a resource as an admission webhook does; an empty message ends that."""
        self._denials[resource] = message

    def compact(self) -> None:
        """Make all continue tokens expire."""
        self._epoch += 1

    @override
    def create(self, kind: Kind, obj: Object) -> Object:
        self._check("create", kind)
        return super().create(kind, obj)

    @override
    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        self._check("get", kind, namespace)
        return await super().get(kind, namespace, name)

    @override
    async def list_page(self, kind: Kind, *, token: str = "", **options: Any) -> Page:
        self._check("list", kind, options.get("namespace", ""))
        epoch, _, last = token.partition("|")
        if token and epoch != str(self._epoch):
            raise Gone("the continue token is too old: list again", status=410)
        page = await super().list_page(kind, token=last, **options)
        return replace(page, token=f"{self._epoch}|{page.token}") if page.token else page

    @override
    async def change(
        self, kind: Kind, before: Object, after: Object, *, manager: str = FIELD_MANAGER
    ) -> Object:
        changes = not equal(before, after)
        if changes:
            verb = "update" if ("patch", kind.resource) in self._forbidden else "patch"
            granted = (verb, kind.resource) not in self._forbidden
            namespace = str(before["metadata"].get("namespace", ""))
            self._check(verb if granted else "patch", kind, namespace)
        stored = await super().change(kind, before, after, manager=manager)
        self.writes += changes
        return stored

    async def stored(
        self, kind: Kind, namespace: str, name: str, uid: str, since: str
    ) -> bool | None:
        """Return whether an object was stored after a resourceVersion, None where unknown."""
        self._check("watch", kind, namespace)
        place = namespace if kind.namespaced else ""
        return self._past.get((kind.group, kind.plural, place, name, uid), 0) > int(since)

    @override
    def _remove(self, key: Key) -> Object:
        gone = super()._remove(key)
        self._past[*key, str(gone["metadata"].get("uid", ""))] = self._version
        return gone

    def _check(self, verb: str, kind: Kind, namespace: str = "") -> None:
        if self.serves(kind) and (verb, kind.resource) in self._forbidden:
            place = f" in namespace {namespace}" if namespace else ""
            permission = f"{verb} {kind.resource}{place}"
            raise Forbidden(f"{kind.resource}: grant: {permission}", permission=permission)
        if verb in {"create", "patch", "update"} and (said := self._denials.get(kind.resource)):
            raise Denied(said, status=403)
