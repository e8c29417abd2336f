"""Requests that a user sets to a final state by hand are processed all the same."""

import pytest

from devcluster.install import NAMESPACE
from devcluster.programs import CONTROLLER
from reconciler.api.updaterequest import State
from tests.faults.rig import Rig

pytestmark = pytest.mark.cluster

COUNT = 12


async def test_requests_set_to_completed_by_hand_are_processed_all_the_same(rig: Rig) -> None:
    triggers = await rig.one_to_one(COUNT)
    await rig.pause()
    await rig.create_all(triggers[: COUNT // 2])
    await _end(rig, COUNT // 2)

    async def untold() -> str:
        found = await rig.requests()
        ended = [item.name for item in found if item.status.state is not State.PENDING]
        return f"{ended} have ended" if ended else ""

    # A running controller notices the edit at once.
    await rig.settle(untold, within=15)
    # A controller that was down finds the edit after its start.
    await rig.kill(CONTROLLER)
    await rig.create_all(triggers[COUNT // 2 :])
    await _end(rig, COUNT)
    await rig.restart(CONTROLLER)
    await rig.settle(untold, within=30)
    await rig.resume()
    wanted = {f"target-{n}": {"got": f"trigger-{n}"} for n in range(COUNT)}
    await rig.applied(wanted, within=30)
    await rig.finish(count=COUNT)
    assert await rig.states() == {State.COMPLETED: COUNT}

    async def no_event() -> str:
        notes = [
            str(item.get("note") or item.get("message"))
            for item in await rig.items("Event", "")
            if (item.get("involvedObject") or {}).get("name") == rig.namespace
        ]
        return "" if any("person set the state" in note for note in notes) else f"{notes}"

    await rig.settle(no_event, within=15)


async def test_a_request_deleted_by_hand_is_not_processed(rig: Rig) -> None:
    triggers = await rig.one_to_one(2)
    await rig.pause()
    await rig.create_all(triggers)
    for item in await rig.requests():
        if item.spec.resource.name == "trigger-0":
            await rig.delete("UpdateRequest", item.name, NAMESPACE)
    await rig.resume()
    await rig.finish()
    await rig.applied({"target-1": {"got": "trigger-1"}}, within=15)
    assert "got" not in await rig.data("target-0")


async def _end(rig: Rig, count: int) -> None:
    found = await rig.requests()
    assert len(found) == count
    for item in found:
        await rig.merge(
            "UpdateRequest",
            item.name,
            {"status": {"state": "Completed", "message": "I say so"}},
            namespace=NAMESPACE,
            subresource="status",
        )
