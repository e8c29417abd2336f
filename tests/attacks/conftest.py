"""Fixtures: rigs for an attacked and a neighbouring tenant, a peer, and the users' roles."""

import contextlib
import uuid
from collections.abc import AsyncIterator

import pytest

from devcluster.install import NAMESPACE
from devcluster.parts import HOST
from devcluster.programs import Programs
from reconciler.api.meta import Object
from reconciler.errors import NotFound
from reconciler.kube.client import connect
from tests.attacks.roles import Neighbour, Peer, Roles, names, rights
from tests.faults.rig import Rig, open_rig, rule, target


@pytest.fixture
async def rig(live_programs: Programs) -> AsyncIterator[Rig]:
    """A rig for the attacked namespace, with the rights of the cluster's administrator."""
    name = f"attack-{uuid.uuid4().hex[:8]}"
    async with open_rig(live_programs.cluster, live_programs, name) as rig:
        await asked_about_policies(rig)
        yield rig


async def asked_about_policies(rig: Rig) -> None:
    """Wait until the webhook reviews policies, which takes a moment after the programs' start."""
    made = rule(rig.namespace, [target(NAMESPACE, "x")], {"data": {"got": "it"}})
    policy: Object = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": f"{rig.namespace}-first"},
        "spec": {"rules": [made]},
    }

    async def missing() -> str:
        if await rig.refused(policy):
            return ""
        await rig.delete("ClusterPolicy", policy["metadata"]["name"], "")
        return "policies are stored unasked"

    await rig.settle(missing, within=30.0)


@pytest.fixture
async def neighbour(live_programs: Programs) -> AsyncIterator[Neighbour]:
    """Another tenant, who is not part of the attack."""
    name = f"neighbour-{uuid.uuid4().hex[:8]}"
    async with open_rig(live_programs.cluster, live_programs, name) as rig:
        yield Neighbour(rig=rig)


@pytest.fixture
def peer(live_programs: Programs) -> Peer:
    """A Pod without credentials that can reach the webhook's port."""
    return Peer(url=f"https://{HOST}:{live_programs.webhook_port}")


@pytest.fixture
async def roles(rig: Rig) -> AsyncIterator[Roles]:
    """The four users who have rights in the attacked namespace."""
    users = names(rig.namespace)
    given = rights(rig.namespace, users)
    for item in given:
        await rig.learn(item["apiVersion"], item["kind"])
    async with contextlib.AsyncExitStack() as stack:
        for item in given:
            await rig.create(item)
            meta = item["metadata"]
            stack.push_async_callback(
                _remove, rig, item["kind"], meta["name"], meta.get("namespace", "")
            )
        people = {}
        for role, user in users.items():
            client = await connect(str(rig.cluster.kubeconfig), user=user)
            stack.push_async_callback(client.close)
            people[role.replace("-", "_")] = Rig(rig.cluster, rig.programs, client, rig.namespace)
        yield Roles(users=users, **people)


async def _remove(rig: Rig, kind: str, name: str, namespace: str) -> None:
    with contextlib.suppress(NotFound):
        await rig.delete(kind, name, namespace)
