"""An attacker with the admission server's token gains access to no other account."""

import asyncio
import json
import uuid
from typing import Any

import pytest

from devcluster.cluster import Cluster
from devcluster.install import NAMESPACE
from reconciler.api.meta import Object
from reconciler.errors import ClusterError
from reconciler.installation import REPLACING
from reconciler.kube.authority import CA_SECRET, TLS_SECRET
from tests.faults.rig import Rig

pytestmark = pytest.mark.cluster

ADMISSION = f"system:serviceaccount:{NAMESPACE}:kyverno-admission-controller"
CONTROLLER = "kube-retrofit-controller"
TOKEN_TYPE = "kubernetes.io/service-account-token"


def secret_with_a_token(namespace: str, account: str, name: str = "") -> Object:
    """Return a Secret into which Kubernetes would write a token of an account."""
    marks = {"kubernetes.io/service-account.name": account}
    name = name or f"stolen-{uuid.uuid4().hex[:8]}"
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "annotations": marks},
        "type": TOKEN_TYPE,
    }


async def refusal(cluster: Cluster, user: str, obj: Object, *words: str) -> str:
    """Write an object as a user, and return the error with which it is refused."""
    args = ("-f", "-", "--as", user, "--as-group", "system:authenticated")
    with pytest.raises(ClusterError) as refused:
        await asyncio.to_thread(cluster.kubectl, *words, *args, stdin=json.dumps(obj))
    return str(refused.value)


@pytest.mark.parametrize("way", [("create",), ("apply", "--server-side", "--force-conflicts")])
async def test_the_account_obtains_no_token_in_the_namespace_of_kube_retrofit(
    rig: Rig, way: tuple[str, ...]
) -> None:
    for name in ("", "not-yet-there"):
        forged = secret_with_a_token(NAMESPACE, CONTROLLER, name)
        said = await refusal(rig.cluster, ADMISSION, forged, *way)
        assert "forbidden" in said, said


async def test_the_account_obtains_no_token_through_a_certificate_secret(rig: Rig) -> None:
    """A Secret with a nonexistent owner is garbage-collected and could come back as a token."""
    for name in (CA_SECRET, TLS_SECRET):
        before = await rig.get("Secret", name, NAMESPACE)
        forged = secret_with_a_token(NAMESPACE, CONTROLLER, name)
        for way in (("create",), ("replace",), ("apply", "--server-side", "--force-conflicts")):
            await refusal(rig.cluster, ADMISSION, forged, *way)
        after = await rig.get("Secret", name, NAMESPACE)
        assert (after["type"], after["data"]) == (before["type"], before["data"])


async def test_the_account_obtains_no_token_in_the_namespace_of_recorded_fields(rig: Rig) -> None:
    forged = secret_with_a_token(REPLACING.recorded, "default")
    said = await refusal(rig.cluster, ADMISSION, forged, "create")
    assert "a Secret here has type Opaque" in said
    # Other users cannot create one either.
    with pytest.raises(ClusterError, match="a Secret here has type Opaque"):
        await rig.create(forged)


async def test_the_account_cannot_read_recorded_fields(rig: Rig) -> None:
    name = f"recorded-{uuid.uuid4().hex[:8]}"
    meta = {"name": name, "namespace": REPLACING.recorded}
    await rig.create({"apiVersion": "v1", "kind": "Secret", "metadata": meta})
    read = ("get", "secret", "-n", REPLACING.recorded, "--as", ADMISSION)
    for words in ((name,), ()):
        with pytest.raises(ClusterError, match="Forbidden"):
            await asyncio.to_thread(rig.cluster.kubectl, *read, *words)
    await rig.delete("Secret", name, REPLACING.recorded)


@pytest.mark.parametrize("name", [CA_SECRET, TLS_SECRET])
async def test_a_deleted_certificate_secret_is_recreated(rig: Rig, name: str) -> None:
    """The admission server may not create the Secret, so the controller does."""
    old = await rig.get("Secret", name, NAMESPACE)
    await rig.delete("Secret", name, NAMESPACE)

    async def missing() -> Any:
        found = await rig.find("Secret", name, NAMESPACE) or {}
        new = (found.get("metadata") or {}).get("uid") != old["metadata"]["uid"]
        return "" if new and (found.get("data") or {}).get("tls.crt") else found or "nothing"

    await rig.settle(missing, within=30)
