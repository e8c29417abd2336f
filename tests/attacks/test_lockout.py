"""A rule for all kinds under Fail, without an admission server, does not lock the cluster."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.binaries import Binaries
from devcluster.cluster import ControlPlane, Options
from devcluster.install import install
from devcluster.programs import ADMISSION, CONTROLLER, Programs, start_programs
from devcluster.waiting import wait_until
from reconciler.errors import ClusterError
from tests.architecture.conftest import ROOT
from tests.documents import blocks

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

PAGE = ROOT / "docs/how-to/break-glass.md"
NAME = "note-everything"
KUBELET = ("--as=system:node:node-1", "--as-group=system:nodes")
LEASE = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "node-1", "namespace": "kube-node-lease"},
    "spec": {"holderIdentity": "node-1"},
}
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}}
ACCESS = {
    "apiVersion": "authorization.k8s.io/v1",
    "kind": "SubjectAccessReview",
    "spec": {"user": "jane", "resourceAttributes": {"verb": "get", "resource": "pods"}},
}
TOKEN = {
    "apiVersion": "authentication.k8s.io/v1",
    "kind": "TokenReview",
    "spec": {"token": "of nobody"},
}
# A signing request for an unknown signer, without a certificate request: it is never signed.
SIGNING = {
    "apiVersion": "certificates.k8s.io/v1",
    "kind": "CertificateSigningRequest",
    "metadata": {"name": "node-1"},
    "spec": {"signerName": "example.com/none", "usages": ["client auth"]},
}


def everything(**annotations: str) -> dict[str, Any]:
    """Return the policy from the page, with annotations."""
    (text,) = (item.text for item in blocks(PAGE) if item.kind == "yaml")
    policy: dict[str, Any] = yaml.safe_load(text)
    policy["metadata"]["annotations"] = annotations
    return policy


def commands(*words: str) -> list[str]:
    """Return the arguments of the page's only kubectl command that starts with these words."""
    lines = [line for item in blocks(PAGE) if item.kind == "sh" for line in item.text.splitlines()]
    (line,) = (line for line in lines if line.startswith(" ".join(("kubectl", *words))))
    return shlex.split(line.replace("NAME", NAME))[1:]


@pytest.fixture(scope="module")
def guarded(binaries: Binaries | Path) -> Iterator[tuple[ControlPlane, Programs]]:
    """A control plane for this module alone, with both programs."""
    if isinstance(binaries, Path):
        pytest.skip("RETROFIT_CONTROL_PLANE names a cluster, which no test may break")
    with ControlPlane.start(Options(binaries=binaries)) as plane:
        settings = install(plane, "demo")
        with start_programs(plane, settings=settings) as programs:
            yield plane, programs


@pytest.fixture
def locked(
    guarded: tuple[ControlPlane, Programs], request: pytest.FixtureRequest
) -> tuple[ControlPlane, Programs]:
    """The cluster while a webhook covers all kinds and the admission server is down.

    The parameter is what the policy says in addition.
    """
    plane, programs = guarded
    for name in (ADMISSION, CONTROLLER):
        if programs.supervision.exit_code(name) is not None:
            programs.restart(name)
    policy = everything(**{"kube-retrofit.dev/all-kinds": "fail"})
    policy["spec"] |= getattr(request, "param", {})
    wait_until(lambda: not refusal(plane, policy), within=60, what="the policy is stored")
    plane.kubectl("wait", "--for=condition=Ready", "--timeout=60s", f"cpol/{NAME}")
    programs.kill(ADMISSION)
    wait_until(
        lambda: "failed calling webhook" in refusal(plane, config_map("before")),
        within=60,
        what="a write is refused",
    )
    return plane, programs


def config_map(name: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}


def refusal(plane: ControlPlane, obj: dict[str, Any], *flags: str, verb: str = "apply") -> str:
    """Return why an object was refused, or an empty string if it was not."""
    try:
        plane.kubectl(verb, "-f", "-", *flags, stdin=json.dumps(obj))
    except ClusterError as error:
        return str(error)
    return ""


def free(plane: ControlPlane, name: str) -> None:
    wait_until(
        lambda: not refusal(plane, config_map(name)), within=60, what=f"{name} can be written"
    )


def test_deleting_the_policy_unlocks_the_cluster(locked: tuple[ControlPlane, Programs]) -> None:
    plane, _ = locked
    plane.kubectl(*commands("delete", "clusterpolicy"))
    free(plane, "after-the-deletion")


@pytest.mark.parametrize(
    "locked",
    [{"failurePolicy": None, "webhookConfiguration": {"failurePolicy": "Fail"}}],
    indirect=True,
)
def test_a_failure_policy_in_the_webhook_configuration_can_be_set_to_ignore(
    locked: tuple[ControlPlane, Programs],
) -> None:
    plane, _ = locked
    plane.kubectl(*commands("patch"))
    free(plane, "after-the-patch-of-the-newer-field")
    plane.kubectl(*commands("delete", "clusterpolicy"))


def test_essential_writes_succeed_and_the_commands_of_the_page_unlock_the_cluster(
    locked: tuple[ControlPlane, Programs],
) -> None:
    plane, programs = locked
    alive = {
        "a node": refusal(plane, NODE),
        "its lease": refusal(plane, LEASE, *KUBELET, verb="create"),
        "an access review": refusal(plane, ACCESS, verb="create"),
        "a token review": refusal(plane, TOKEN, verb="create"),
    }
    assert alive == dict.fromkeys(alive, "")
    # The signing request may be refused, but not by a webhook.
    assert "webhook" not in refusal(plane, SIGNING, verb="create")
    assert plane.kubectl("create", "token", "default", "-n", "default")
    plane.kubectl("create", "configmap", "free", "-n", "kube-system")
    plane.kubectl("label", "clusterpolicy", NAME, "team=a")
    # A change of the rules could not be validated, so it is refused.
    changed = everything(**{"kube-retrofit.dev/all-kinds": "fail"})
    changed["spec"]["rules"][0]["name"] = "another"
    assert "failed calling webhook" in refusal(plane, changed)
    limited = {"kube-retrofit.dev/all-kinds": "fail", "kube-retrofit.dev/paused": "true"}
    assert "failed calling webhook" in refusal(plane, everything(**limited))
    plane.kubectl(*commands("patch"))
    free(plane, "after-the-patch")
    plane.kubectl(*commands("delete", "clusterpolicy"))
    free(plane, "after-the-deletion")
    programs.kill(CONTROLLER)
    plane.kubectl(*commands("delete", "validatingwebhookconfigurations"))
    assert not refusal(plane, everything())
