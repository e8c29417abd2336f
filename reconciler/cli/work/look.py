"""Reads a snapshot of the activity of policies: their statuses, and two Leases."""

from reconciler.cli.work.board import Board, Holder, board, holder_of
from reconciler.cli.work.place import Workplace, stored_policies, stored_policy
from reconciler.errors import Forbidden, InvalidSetting
from reconciler.kube.lease import LEASE_NAME
from reconciler.kube.leases import ADMISSION_LEASE, KubeLeases


async def look_at(place: Workplace, key: str = "") -> Board:
    """Return the board of all policies, or of one policy, with a handful of calls.

    Raises:
        InvalidSetting: The policy does not exist, or the user may not list policies.
    """
    now = place.live.clock.now()
    if key:
        policies, complete = [await stored_policy(place, key)], True
    else:
        policies, complete = await stored_policies(place)
    if not policies and not complete:
        raise InvalidSetting("you may not list policies: ask for the right, or use --as")
    leases = KubeLeases(place.live.client, place.namespace)
    return board(
        policies,
        now=now,
        complete=complete,
        leader=await _holder(leases, LEASE_NAME, place),
        admission=await _holder(leases, ADMISSION_LEASE, place),
    )


async def _holder(leases: KubeLeases, name: str, place: Workplace) -> Holder | None:
    try:
        return holder_of(await leases.lease(name), place.live.clock.now())
    except Forbidden:
        return None
