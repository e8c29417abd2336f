"""A user installs kube-retrofit with kubectl, as the manifests are intended to be used."""

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster.binaries import Binaries
from devcluster.cluster import Cluster, ControlPlane, Options
from devcluster.waiting import wait_until
from reconciler.errors import ClusterError

ROOT = Path(__file__).parents[1]
ACCOUNT = "system:serviceaccount:kyverno:kyverno-background-controller"


@pytest.fixture(scope="module")
def empty_cluster(machine: Binaries | Path) -> Iterator[Cluster]:
    if isinstance(machine, Path):
        pytest.skip("RETROFIT_CONTROL_PLANE names a cluster, which has its installation")
    with ControlPlane.start(Options(binaries=machine)) as plane:
        yield plane


def test_the_crds_and_an_overlay_install_kube_retrofit_and_can_be_reapplied(
    empty_cluster: Cluster,
) -> None:
    kubectl = empty_cluster.kubectl
    kubectl("apply", "-k", str(ROOT / "crds"))
    kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
    kubectl("get", "clusterpolicies,policies,updaterequests,policyexceptions,gctxentry", "-A")
    kubectl("apply", "-k", str(ROOT / "manifests" / "overlays" / "demo"))
    deployments = kubectl("get", "deployments", "-n", "kyverno", "-o", "name").split()
    assert deployments == [
        "deployment.apps/kyverno-admission-controller",
        "deployment.apps/kyverno-background-controller",
    ]
    wait_until(
        lambda: _may(empty_cluster, "patch", "deployments.apps"),
        within=20.0,
        what="the controller has the overlay's rights",
    )
    assert not _may(empty_cluster, "patch", "cronjobs.batch")
    assert not _may(empty_cluster, "list", "secrets")
    before = _generations(empty_cluster)
    kubectl("apply", "-k", str(ROOT / "manifests" / "overlays" / "demo"))
    assert _generations(empty_cluster) == before


def _generations(cluster: Cluster) -> str:
    # "configured" is no evidence of a change: kubectl always patches the strategy of a Deployment.
    columns = "KIND:.kind,NAME:.metadata.name,GENERATION:.metadata.generation"
    kinds = "deployments,poddisruptionbudgets,customresourcedefinitions"
    return cluster.kubectl("get", kinds, "-A", "-o", f"custom-columns={columns}")


def _may(cluster: Cluster, verb: str, resource: str) -> bool:
    ask = functools.partial(cluster.kubectl, "auth", "can-i", verb, resource, f"--as={ACCOUNT}")
    try:
        return ask().strip() == "yes"
    except ClusterError:
        # kubectl answers "no" with an exit code other than 0.
        return False
