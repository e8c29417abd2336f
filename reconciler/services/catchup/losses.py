"""Writes into a policy's status which triggers it lost, so that users can see it."""

from reconciler.api.meta import Object
from reconciler.api.policystatus import LostSpan, add_lost
from reconciler.errors import Conflict, NotFound
from reconciler.services.catchup.recovery import Loss
from reconciler.services.ports.policies import Policies

_ATTEMPTS = 10


async def store_loss(policies: Policies, loss: Loss) -> None:
    """Add a loss to a policy's status, in place of one with the same start.

    Raises:
        ClusterError: The status could not be stored.
    """
    outage = loss.outage
    span = LostSpan(since=outage.since, until=outage.until, reason=outage.cause, rules=loss.rules)
    for left in reversed(range(_ATTEMPTS)):
        try:
            policy = await policies.get(loss.policy)
        except NotFound:
            return
        if policy["metadata"].get("uid") != loss.uid:
            return
        status: Object = {"mutateExisting": {"lost": add_lost(policy, span)}}
        try:
            await policies.write_status(policy, status)
        except Conflict:
            # The status also contains figures, which are written every second.
            if not left:
                raise
        else:
            return
