"""The image in a cluster with nodes: it is built, loaded into kind, installed and used."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from devcluster.cluster import Cluster
from e2e.person import Person

ROOT = Path(__file__).parents[1]
IMAGE = "ghcr.io/kube-retrofit/kube-retrofit:0.2.0"
POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: $ns-copy}
spec:
  rules:
    - name: copy
      match:
        any:
          - resources: {kinds: [ConfigMap], names: [trigger], namespaces: [$ns]}
      mutate:
        targets:
          - {apiVersion: v1, kind: ConfigMap, namespace: "{{ request.namespace }}", name: target}
        patchStrategicMerge: {data: {copied: "{{ request.object.data.value }}"}}
"""

pytestmark = pytest.mark.timeout(1800)


def engine_answers() -> bool:
    docker = shutil.which("docker")
    if not docker:
        return False
    asked = subprocess.run([docker, "info"], capture_output=True, check=False, timeout=60)
    return asked.returncode == 0


@pytest.fixture(scope="module")
def kind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    if not engine_answers():
        pytest.skip("no container engine answers on this machine: kind needs docker")
    subprocess.run(["docker", "build", "--tag", IMAGE, str(ROOT)], check=True)
    # By name, because the fixture creates a cluster, which must not happen without an engine.
    nodes: Any = request.getfixturevalue("kind_cluster")
    nodes.load_docker_image(IMAGE)
    nodes.ensure_kubectl()
    return Cluster.connect(
        Path(nodes.kubeconfig_path).absolute(),
        tmp_path_factory.mktemp("kind"),
        (str(Path(nodes.kubectl_path).absolute()),),
    )


def test_the_installed_programs_apply_a_policy(kind: Cluster) -> None:
    kind.kubectl("apply", "-k", str(ROOT / "crds"))
    kind.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
    kind.kubectl("apply", "-k", str(ROOT / "manifests" / "overlays" / "demo"))
    kind.kubectl(
        *("wait", "--for=condition=Available", "--timeout=180s", "-n", "kyverno"),
        *("deployment", "--all"),
        within=200.0,
    )
    kind.kubectl("create", "namespace", "e2e-kind")
    person = Person(kind, "e2e-kind")
    try:
        kind.kubectl("create", "configmap", "target", "-n", "e2e-kind")
        policy = person.apply_policy(POLICY)
        kind.kubectl("create", "configmap", "trigger", "-n", "e2e-kind", "--from-literal=value=1")
        assert person.row(person.request(policy))["PATCHED"] == "1/1"
        assert person.get("configmap", "target")["data"] == {"copied": "1"}
    finally:
        person.leave()
