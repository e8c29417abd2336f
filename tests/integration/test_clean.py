"""`retrofit clean` after an uninstallation: it removes the project's annotation, nothing else."""

import asyncio
import json

import pytest
from click.testing import CliRunner, Result

from devcluster.cluster import Cluster
from reconciler.api.meta import ANNOTATION_APPLIED
from reconciler.api.updaterequest import render_time
from reconciler.cli.main import retrofit
from reconciler.clock import SystemClock
from reconciler.kube.client import connect
from reconciler.kube.lease import LEASE_NAME
from reconciler.kube.leases import KubeLeases

pytestmark = pytest.mark.cluster


def clean(cluster: Cluster, *words: str, code: int = 0) -> Result:
    shown = ("--kubeconfig", str(cluster.kubeconfig))
    done = CliRunner().invoke(retrofit, ["clean", *words, *shown])
    assert done.exit_code == code, done.stderr + done.stdout
    return done


def marked(cluster: Cluster, namespace: str, kind: str, name: str) -> bool:
    text = cluster.kubectl("get", kind, name, "-n", namespace, "-o", "json")
    return ANNOTATION_APPLIED in (json.loads(text)["metadata"].get("annotations") or {})


@pytest.fixture
def left(control_plane: Cluster, namespace: str) -> str:
    """A namespace with two objects that have an appending rule's annotation, and one without."""
    for kind, name in (("configmap", "one"), ("secret", "two"), ("configmap", "other")):
        words = ("generic", name) if kind == "secret" else (name,)
        control_plane.kubectl("create", kind, *words, "-n", namespace)
    for thing in ("configmap/one", "secret/two"):
        marks = (f"{ANNOTATION_APPLIED}=ur-1", "team=mine")
        control_plane.kubectl("annotate", thing, *marks, "-n", namespace)
    return namespace


def test_clean_shows_the_left_annotations_and_removes_them_with_yes(
    control_plane: Cluster, left: str
) -> None:
    shown = clean(control_plane, "-n", left).stdout.splitlines()
    assert sorted(shown[:-1]) == [f"ConfigMap {left}/one", f"Secret {left}/two"]
    assert "2 objects" in shown[-1]
    assert "nothing was written" in shown[-1]
    assert marked(control_plane, left, "configmap", "one")
    clean(control_plane, "-n", left, "--yes")
    for kind, name in (("configmap", "one"), ("secret", "two")):
        assert not marked(control_plane, left, kind, name)
        text = control_plane.kubectl("get", kind, name, "-n", left, "-o", "json")
        assert json.loads(text)["metadata"]["annotations"]["team"] == "mine"
    again = clean(control_plane, "-n", left, "--yes").stdout
    assert again == f"0 objects with {ANNOTATION_APPLIED}\n"


def test_clean_removes_nothing_while_a_controller_is_running(
    control_plane: Cluster, left: str
) -> None:
    async def lead() -> None:
        client = await connect(str(control_plane.kubeconfig))
        spec = {
            "holderIdentity": "somebody",
            "leaseDurationSeconds": 600,
            "renewTime": render_time(SystemClock().now()),
        }
        await KubeLeases(client, left).put(LEASE_NAME, {"spec": spec})
        await client.close()

    asyncio.run(lead())
    refused = clean(control_plane, "-n", left, "--yes", "--requests-namespace", left, code=2)
    assert "a controller is running" in refused.stderr
    assert marked(control_plane, left, "configmap", "one")


def test_clean_fails_and_names_kinds_that_it_may_not_read(
    control_plane: Cluster, left: str
) -> None:
    done = clean(control_plane, "-n", left, "--as", "nobody", code=1)
    assert "configmaps could not be searched: you may not list configmaps" in done.stderr
    assert "is forbidden" not in done.stderr
