"""The attackers' roles grant only the rights of their work, so a successful attack is a bug."""

import pytest

from devcluster.install import NAMESPACE
from reconciler.errors import Forbidden
from tests.attacks.roles import Roles
from tests.faults.rig import Rig, config_map

pytestmark = pytest.mark.cluster


async def test_each_role_grants_only_the_rights_of_its_work(rig: Rig, roles: Roles) -> None:
    place = rig.namespace
    await roles.namespace_admin.create(config_map(place, "own"))
    for person in (roles.policy_writer, roles.cluster_policy_writer, roles.request_operator):
        with pytest.raises(Forbidden):
            await person.create(config_map(place, "theirs"))
        with pytest.raises(Forbidden):
            await person.items("Secret", place)
    assert await roles.policy_writer.items("Policy", place) == []
    assert await roles.request_operator.items("UpdateRequest", NAMESPACE) is not None
    for person in (roles.namespace_admin, roles.policy_writer, roles.request_operator):
        with pytest.raises(Forbidden):
            await person.items("ClusterPolicy", "")
    assert await roles.cluster_policy_writer.items("ClusterPolicy", "") == []
    with pytest.raises(Forbidden):
        await roles.namespace_admin.items("Secret", NAMESPACE)
