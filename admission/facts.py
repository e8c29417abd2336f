"""The data besides policies that decisions depend on, and whether it is current.

A match on outdated data costs a request, which the controller checks again. A mismatch would lose
the trigger: if a watch has been silent for seconds, a decision that depends on its data is left to
the controller, or the data is read.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from admission.informers import replay_all
from admission.roles import CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS, RoleIndex, Roles
from reconciler.api.meta import NAMESPACES
from reconciler.clock import Clock
from reconciler.engine.program import Program
from reconciler.services.catalog.exceptions import ExceptionIndex
from reconciler.services.catalog.settings import Filters
from reconciler.services.ports.objects import Reader

_ROLES: Final = frozenset({"roles", "clusterRoles"})
_READ: Final = 1.0
"""Seconds for which role bindings that were read are reused."""


class Follows(Protocol):
    """Watches the objects of one kind."""

    def fresh(self) -> bool:
        """Return whether the known objects are the stored ones, up to a few seconds of delay."""


@dataclass(slots=True, kw_only=True)
class Facts:
    """The data of the watches, with checks of whether it is current.

    Attributes:
        reader: Reads the role bindings if their watches are silent.
        of_namespaces: Watches namespaces; None if they do not change.
        of_roles: Watch the role bindings.
        of_exceptions: Watch exceptions; none if none are honoured.
    """

    namespaces: Mapping[str, Mapping[str, str]]
    roles: RoleIndex
    reader: Reader
    clock: Clock
    exceptions: ExceptionIndex = field(default_factory=ExceptionIndex)
    of_namespaces: Follows | None = None
    of_roles: tuple[Follows, ...] = ()
    of_exceptions: tuple[Follows, ...] = ()
    _live: RoleIndex = field(default_factory=RoleIndex)
    _read: float = float("-inf")
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    def labels(self, namespace: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace, or None if they are not current."""
        return self.namespaces.get(namespace) if _fresh(self.of_namespaces) else None

    async def labels_of(self, namespace: str) -> Mapping[str, str]:
        """Return the labels of a namespace, read from the API server if they are not current.

        Raises:
            ClusterError: They could not be read.
        """
        known = self.labels(namespace)
        if known is None:
            known = (await self.reader.get(NAMESPACES, "", namespace))["metadata"].get("labels")
        return known or {}

    def excepts(self) -> bool:
        """Return whether the known exceptions are current."""
        return _fresh(*self.of_exceptions)

    def known_roles(
        self, user: Mapping[str, Any], filters: Filters, programs: Iterable[Program]
    ) -> Roles | None:
        """Return the roles of a user, or None if a filter or rule needs them and they are stale.

        Args:
            user: ``userInfo`` of the admission request.
        """
        if not _fresh(*self.of_roles) and (
            filters.asks_for_roles or any(map(self._asks, programs))
        ):
            return None
        return self.roles.of(user)

    async def roles_of(self, user: Mapping[str, Any]) -> Roles:
        """Return the roles of a user, from role bindings read from the API server.

        Raises:
            ClusterError: They could not be read.
        """
        async with self._reading:
            if self.clock.monotonic() - self._read >= _READ:
                self._live = RoleIndex()
                kinds = ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS
                await replay_all(self.reader, kinds, self._live.on_event)
                self._read = self.clock.monotonic()
            return self._live.of(user)

    def _asks(self, program: Program) -> bool:
        reads = program.projection.request
        asks = program.match.needs.user or reads is None or bool(reads & _ROLES)
        return asks or bool(self.exceptions.of(program))


def _fresh(*follow: Follows | None) -> bool:
    return all(item is None or item.fresh() for item in follow)
