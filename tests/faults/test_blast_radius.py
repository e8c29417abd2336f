"""With admission away only what policies name is held up."""

import pytest

from devcluster.programs import ADMISSION
from tests.faults.rig import Rig, config_map, rule, target

pytestmark = pytest.mark.cluster


async def test_a_policy_on_one_object_holds_up_no_other(rig: Rig) -> None:
    place = rig.namespace
    patch = {"data": {"got": "{{ request.object.data.v }}"}}
    await rig.apply(rule(place, [target(place, "target")], patch, names="trigger"))
    await rig.create_all([config_map(place, "target"), config_map(place, "other", v="1")])
    await rig.create(config_map(place, "trigger", v="1"))
    await rig.applied({"target": {"got": "1"}}, within=15)

    await rig.kill(ADMISSION)
    await rig.create(config_map(place, "another", v="1"))
    await rig.merge("ConfigMap", "other", {"data": {"v": "2"}})
    await rig.delete("ConfigMap", "another")
    generated = config_map(place, "", v="1")
    generated["metadata"] = {"namespace": place, "generateName": "trigger-"}
    await rig.create(generated)
    assert await rig.refused(config_map(place, "trigger-2", v="1")) is False
    await rig.delete("ConfigMap", "trigger")
    assert await rig.refused(config_map(place, "trigger", v="2"))

    # The way out needs no admission server.
    await rig.delete("ClusterPolicy", place, "")

    async def still_refused() -> bool:
        return await rig.refused(config_map(place, "trigger", v="2"))

    await rig.settle(still_refused, within=15)
