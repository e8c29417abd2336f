"""`retrofit version` against a real API server."""

import json

import pytest
from click.testing import CliRunner

from devcluster.cluster import Cluster
from reconciler.cli.main import retrofit

pytestmark = pytest.mark.cluster

DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {
        "name": "kyverno-background-controller",
        "labels": {"app.kubernetes.io/part-of": "kyverno"},
    },
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "x"}},
        "template": {
            "metadata": {"labels": {"app": "x"}},
            "spec": {"containers": [{"name": "c", "image": "registry.example/retrofit:1.2.3"}]},
        },
    },
}


def test_version_shows_the_api_server_and_the_images_of_the_programs(
    control_plane: Cluster, namespace: str
) -> None:
    words = ["version", "--kubeconfig", str(control_plane.kubeconfig), "-n", namespace]
    server = json.loads(control_plane.kubectl("get", "--raw", "/version"))["gitVersion"]
    before = CliRunner().invoke(retrofit, words)
    assert before.exit_code == 0, before.output
    assert f"Kubernetes  {server}\n" in before.stdout
    assert f"no Deployment of kube-retrofit in namespace {namespace}" in before.stdout
    control_plane.kubectl("create", "-n", namespace, "-f", "-", stdin=json.dumps(DEPLOYMENT))
    found = json.loads(CliRunner().invoke(retrofit, [*words, "-o", "json"]).stdout)
    assert found["server"] == {"version": server}
    assert found["programs"] == [
        {
            "name": "kyverno-background-controller",
            "images": ["registry.example/retrofit:1.2.3"],
            "ready": 0,
            "replicas": 2,
        }
    ]


def test_version_names_the_right_that_it_lacks(control_plane: Cluster) -> None:
    words = ["version", "--kubeconfig", str(control_plane.kubeconfig), "--as", "nobody"]
    done = CliRunner().invoke(retrofit, words)
    assert done.exit_code == 2
    assert "you may not list deployments.apps" in done.stderr
