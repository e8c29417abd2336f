"""An outage of the admission server: only writes of objects that policies match are refused."""

import pytest

from devcluster.programs import ADMISSION
from reconciler.api.meta import Object
from reconciler.errors import ClusterError
from tests.faults.rig import Rig, config_map, rule, target

pytestmark = pytest.mark.cluster


async def test_a_policy_on_one_object_does_not_block_other_objects(rig: Rig) -> None:
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

    # A policy can be deleted without the admission server.
    await rig.delete("ClusterPolicy", place, "")

    async def still_refused() -> bool:
        return await rig.refused(config_map(place, "trigger", v="2"))

    await rig.settle(still_refused, within=15)


async def test_a_policy_on_labels_in_a_namespace_does_not_block_other_objects(rig: Rig) -> None:
    place, label = rig.namespace, {"reload": "yes"}
    patch = {"data": {"got": "{{ request.object.data.v }}"}}
    picky = rule(place, [target(place, "target")], patch)
    picky["match"]["any"][0]["resources"] |= {"names": ["*"], "selector": {"matchLabels": label}}
    # This rule matches all namespaces, so the webhook has to cover all of them too.
    other = rule(place, [target(place, "target")], patch, name="other", kinds=["Pod"])
    del other["match"]["any"][0]["resources"]["namespaces"]
    await rig.apply(picky, other)

    def labelled(namespace: str, name: str, **labels: str) -> Object:
        made = config_map(namespace, name, v="1")
        return {**made, "metadata": {**made["metadata"], "labels": labels}}

    await rig.create_all([config_map(place, "target"), labelled(place, "plain")])
    await rig.create(labelled(place, "one", **label))
    await rig.applied({"target": {"got": "1"}}, within=15)

    await rig.kill(ADMISSION)
    try:
        assert not await rig.refused(labelled(place, "two", reload="no"))
        assert not await rig.refused(labelled("default", place, **label))
        await rig.merge("ConfigMap", "plain", {"data": {"v": "2"}})
        assert await rig.refused(labelled(place, "three", **label))
        with pytest.raises(ClusterError):
            await rig.merge("ConfigMap", "plain", {"metadata": {"labels": label}})
        # The webhook is matched against the new object, which no longer has the label.
        await rig.merge("ConfigMap", "one", {"metadata": {"labels": {"reload": None}}})
    finally:
        await rig.delete("ConfigMap", place, "default")
