"""Limits on the access reviews that the validation of one policy may cause.

Each right is an API call, and a policy can name thousands. So the number of rights per policy is
limited, a granted right is not reviewed again for the same policy, and the number of concurrent
reviews of all policies is limited.
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
    """A policy needs more different rights than are reviewed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedAccess:
    """The `Access` port for one validation of one policy.

    Attributes:
        gate: Limits the concurrent reviews of all validations.
    """

    access: Access
    gate: asyncio.Semaphore
    _known: dict[Right, bool] = field(default_factory=dict)
    _calls: list[Right] = field(default_factory=list)

    async def may(self, right: Right) -> bool:
        """Return whether a right is granted; a missing one is reviewed again.

        Raises:
            TooManyRights: The policy needs too many rights.
            ClusterError: The API server could not review the right.
        """
        if self._known.get(right):
            return True
        if right not in self._known and len(self._known) >= MOST_RIGHTS:
            raise TooManyRights(
                f"its rules need more than {MOST_RIGHTS} different rights, too many to check"
                " one by one: split the policy, or name fewer kinds, names and namespaces",
                status=422,
            )
        if right in self._known and len(self._calls) >= MOST_CALLS:
            # The last review of this right denied it.
            return False
        self._known[right] = False
        self._calls.append(right)
        async with self.gate:
            granted = await self.access.may(right)
        self._known[right] = granted
        return granted
