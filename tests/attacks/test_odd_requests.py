"""Requests of any shape that the CRD accepts: none stops the processing of others."""

import contextlib
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from devcluster.install import NAMESPACE
from devcluster.programs import CONTROLLER
from reconciler.api.meta import Object
from reconciler.errors import ClusterError
from reconciler.kube.client import connect
from tests.attacks.roles import Neighbour, Roles
from tests.attacks.vitals import endure
from tests.faults.rig import CONTROLLER_USER, Rig, config_map, rule, target
from tests.fuzz.fuzzing import samples
from tests.fuzz.pipeline import REQUESTS_OF_ANY_SHAPE
from tests.linux import linux

pytestmark = [linux, pytest.mark.cluster, pytest.mark.timeout(300)]

COUNT = 300
ADMISSION_USER = "system:serviceaccount:kyverno:kyverno-admission-controller"
# Fields that only the programs may set, and the one for a sweep of all triggers.
OURS = frozenset({"recorded", "recordedSecret", "context", "source", "sweep"})


def requests(place: str, mark: str) -> list[Object]:
    """Return random requests, many of them for the rule of the attacked namespace."""
    found = samples(REQUESTS_OF_ANY_SHAPE, COUNT)
    for number, item in enumerate(found):
        item["metadata"]["name"] = f"ur-{place}-{mark}-{number}"
        if item["spec"].get("policy") == "p":
            item["spec"] |= {"policy": place, "rule": "rule"}
    return found


@pytest.fixture
async def accounts(rig: Rig) -> AsyncIterator[dict[str, Rig]]:
    """A rig per program that acts as the program's account."""
    users = {"admission": ADMISSION_USER, "controller": CONTROLLER_USER}
    async with contextlib.AsyncExitStack() as stack:
        found = {}
        for name, user in users.items():
            client = await connect(str(rig.cluster.kubeconfig), user=user)
            stack.push_async_callback(client.close)
            found[name] = Rig(rig.cluster, rig.programs, client, rig.namespace)
        yield found


async def store(item: Object, author: Rig, controller: Rig) -> str:
    """Store a request and its status, and return which of the two were accepted."""
    status = item.pop("status", None)
    try:
        await author.create(item)
    except ClusterError:
        return "refused"
    if status is None:
        return "without status"
    place = {"namespace": NAMESPACE, "subresource": "status"}
    try:
        await controller.merge(
            "UpdateRequest", item["metadata"]["name"], {"status": status}, **place
        )
    except ClusterError:
        return "status refused"
    return "with status"


async def test_requests_of_any_shape_do_not_stop_other_requests(
    rig: Rig, roles: Roles, accounts: dict[str, Rig], neighbour: Neighbour
) -> None:
    place, stored = rig.namespace, Counter[str]()
    await rig.create(config_map(place, "x"))
    await rig.apply(rule(place, [target(place, "x")], {"data": {"got": "it"}}))
    pid = rig.programs.supervision.pids[CONTROLLER]

    async def attack(mark: str) -> None:
        for number, item in enumerate(requests(place, mark)):
            author = accounts["admission"]
            if number % 2:
                author = roles.request_operator
                item["spec"] = {k: v for k, v in item["spec"].items() if k not in OURS}
            stored[await store(item, author, accounts["controller"])] += 1

    try:
        await endure(f"{COUNT} requests of any shape", rig, neighbour, attack)
        faults = [
            item["metadata"]["name"]
            for item in await rig.items("UpdateRequest", NAMESPACE)
            if (item.get("status") or {}).get("reason") == "InternalError"
        ]
    finally:
        for item in await rig.items("UpdateRequest", NAMESPACE):
            if item["metadata"]["name"].startswith(f"ur-{place}-"):
                await rig.delete("UpdateRequest", item["metadata"]["name"], NAMESPACE)
    print(dict(stored))  # noqa: T201 - how much of it was an attack
    assert faults == []
    assert stored["with status"] > COUNT // 20
    assert stored["without status"] > COUNT // 20
    assert rig.programs.supervision.pids[CONTROLLER] == pid
    assert rig.programs.supervision.exit_code(CONTROLLER) is None
