"""How often one policy may ask the API server what the controller is allowed to do.

Each right is a call, and a policy can name thousands. So a policy may ask about so many rights,
what was granted is not asked again for the same policy, and all policies together ask so many
questions at a time.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from reconciler.api.rights import Right
from reconciler.errors import Invalid
from reconciler.services.ports.access import Access

MOST_RIGHTS: Final = 300
MOST_CALLS: Final = 2 * MOST_RIGHTS
TOGETHER: Final = 32


class TooManyRights(Invalid):
    """A policy needs more different rights than are asked about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedAccess:
    """The `Access` port for one check of one policy.

    Attributes:
        access: Is asked.
        gate: Of all checks.
    """

    access: Access
    gate: asyncio.Semaphore
    _known: dict[Right, bool] = field(default_factory=dict)
    _calls: list[Right] = field(default_factory=list)

    async def may(self, right: Right) -> bool:
        """Return whether a right is granted; one that is missing is asked for again.

        Raises:
            TooManyRights: The policy asks about too many.
            ClusterError: The API server could not be asked.
        """
        if self._known.get(right):
            return True
        if right not in self._known and len(self._known) >= MOST_RIGHTS:
            msg = (
                f"its rules need more than {MOST_RIGHTS} different rights, which are not asked for"
                " one by one: split the policy, or name fewer kinds, names and namespaces"
            )
            raise TooManyRights(msg, status=422)
        if right in self._known and len(self._calls) >= MOST_CALLS:
            # It was missing when it was asked for last.
            return False
        self._known[right] = False
        self._calls.append(right)
        async with self.gate:
            granted = await self.access.may(right)
        self._known[right] = granted
        return granted
