"""The page of `retrofit ui` in a cluster, with the ServiceAccount of its component."""

import asyncio
import json
from dataclasses import asdict
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from devcluster.install import NAMESPACE
from reconciler.cli.desk.live import Address
from reconciler.cli.ui.server import application
from reconciler.cli.work.place import workplace
from tests.architecture.conftest import ROOT
from tests.faults.rig import Rig, config_map, rule, target

pytestmark = pytest.mark.cluster

COMPONENT = ROOT / "manifests/components/ui/ui.yaml"
ACCOUNT = "kube-retrofit-ui"
GOT = {"data": {"got": "{{ request.object.metadata.name }}"}}


def allowed(rig: Rig) -> set[str]:
    """Return the resources on which the account has rights in `NAMESPACE`."""
    user = f"--as=system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
    text = rig.cluster.kubectl("auth", "can-i", "--list", "--no-headers", "-n", NAMESPACE, user)
    kinds = {line.split()[0] for line in text.splitlines()}
    # Every user may review their own rights and read some non-resource paths.
    return {kind for kind in kinds if kind[0] != "[" and "selfsubject" not in kind}


async def test_the_account_of_the_ui_has_the_rights_that_it_needs_and_no_more(rig: Rig) -> None:
    place = rig.namespace
    kubectl = rig.cluster.kubectl
    await asyncio.to_thread(kubectl, "apply", "-f", str(COMPONENT))
    try:
        await rig.create(config_map(place, "target"))
        await rig.apply(rule(place, [target(place, "target")], GOT))
        await rig.create(config_map(place, "trigger-1"))
        await rig.finish()
        (request,) = await rig.requests()
        file = await asyncio.to_thread(rig.cluster.service_account_kubeconfig, NAMESPACE, ACCOUNT)
        address = asdict(Address(kubeconfig=str(file)))
        async with (
            workplace(**address, requests_namespace=NAMESPACE) as cluster,
            TestClient(TestServer(application(cluster))) as page,
        ):

            async def get(path: str) -> Any:
                answer = await page.get(path)
                assert answer.status == 200, await answer.text()
                return await answer.json()

            async def missing() -> str:
                board = await get("/api/board")
                (own,) = [item for item in board["policies"] if item["policy"] == place]
                fresh = board["leader"]["fresh"] and board["admission"]["fresh"]
                return "" if own["patched"] == 1 and fresh else json.dumps(board)

            await rig.settle(missing, within=20.0)
            listed = await get(f"/api/requests?policy={place}&state=Completed")
            assert [item["name"] for item in listed["requests"]] == [request.name]
            shown = await get(f"/api/requests/{request.name}")
            assert [item["outcome"] for item in shown["targets"]] == ["Patched"]
        assert await asyncio.to_thread(allowed, rig) == {
            "clusterpolicies.kyverno.io",
            "policies.kyverno.io",
            "modrules.api.kubemod.io",
            "overridepolicies.policy.kcloudlabs.io",
            "clusteroverridepolicies.policy.kcloudlabs.io",
            "clustervalidatepolicies.policy.kcloudlabs.io",
            "updaterequests.kyverno.io",
            "leases.coordination.k8s.io",
        }
    finally:
        await asyncio.to_thread(kubectl, "delete", "-f", str(COMPONENT), "--wait=false")
