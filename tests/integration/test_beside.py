"""Two installations and a living Kyverno in one cluster: none touches what the others have."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from devcluster.binaries import Binaries
from devcluster.cluster import ControlPlane
from devcluster.install import install
from devcluster.programs import Programs, start_programs
from devcluster.waiting import wait_until
from reconciler.api.kinds import kinds_of
from reconciler.cli.main import retrofit
from reconciler.cli.manifests import find_manifests
from reconciler.installation import BESIDE, REPLACING, Installation
from tests.conformance.chainsaw.neighbour import calls, is_of_kyverno, living_kyverno, stored
from tests.usedrights import audited

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

WITHIN = 60.0
POLICY = """\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: spread}
spec:
  rules:
    - name: label
      match: {any: [{resources: {kinds: [ConfigMap], names: [trigger-*]}}]}
      mutate:
        targets: [{apiVersion: v1, kind: ConfigMap, namespace: shop, name: target}]
        patchStrategicMerge:
          metadata: {annotations: {from: "{{ request.object.metadata.name }}"}}
    - name: before-it-is-stored
      match: {any: [{resources: {kinds: [ConfigMap], names: [trigger-*]}}]}
      mutate: {patchStrategicMerge: {metadata: {labels: {changed: "yes"}}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: kyverno:maps
  labels: {rbac.kyverno.io/aggregate-to-background-controller: "true"}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list, patch, update]}]
"""
TYPED = {
    "cpol": REPLACING,
    "clusterpolicies": REPLACING,
    "clusterpolicy": REPLACING,
    "ClusterPolicy": REPLACING,
    "rcpol": BESIDE,
    "retrofitclusterpolicies": BESIDE,
}
"""What people type, and of which group it is to be."""


@pytest.fixture(scope="module")
def plane(binaries: Binaries | Path) -> Iterator[ControlPlane]:
    """A control plane with what a Kyverno has, and the namespace of the tests."""
    if isinstance(binaries, Path):
        pytest.skip("RETROFIT_CONTROL_PLANE names a cluster, which gets no second installation")
    with audited(binaries) as found, living_kyverno(found):
        found.kubectl("create", "namespace", "shop")
        found.kubectl("create", "configmap", "-n", "shop", "target")
        yield found


@pytest.fixture(scope="module")
def beside(plane: ControlPlane) -> Iterator[Programs]:
    """The programs beside it, with the policy as `retrofit migrate` makes it."""
    settings = install(plane, "beside-kyverno")
    result = CliRunner().invoke(retrofit, ["migrate", "-"], input=POLICY)
    assert result.exit_code == 0, result.output
    with start_programs(plane, settings=settings) as programs:
        role, policy = result.stdout.split("---\n")[::-1]
        plane.kubectl("apply", "-f", "-", stdin=role)
        plane.kubectl("apply", "-f", "-", stdin=policy)
        plane.kubectl("wait", "--for=condition=Ready", "--timeout=60s", "rcpol/spread")
        yield programs


def from_(plane: ControlPlane) -> str:
    found = json.loads(plane.kubectl("get", "configmap", "target", "-n", "shop", "-o", "json"))
    return str((found["metadata"].get("annotations") or {}).get("from", ""))


def trigger(plane: ControlPlane, name: str) -> None:
    plane.kubectl("create", "configmap", "-n", "shop", name)
    wait_until(lambda: from_(plane) == name, within=WITHIN, what=f"{name} changed its target")


def names(plane: ControlPlane, installation: Installation) -> list[str]:
    """Return the names of the policies of a group."""
    kind = kinds_of(installation).cluster_policies
    items = json.loads(plane.kubectl("get", kind.resource, "-o", "json"))["items"]
    return [item["metadata"]["name"] for item in items]


def test_a_moved_policy_works_and_nothing_of_kyverno_is_touched(
    plane: ControlPlane, beside: Programs
) -> None:
    before = stored(plane)
    trigger(plane, "trigger-1")
    assert "changed: " in plane.kubectl("get", "cm", "trigger-1", "-n", "shop", "-o", "yaml")
    (done,) = json.loads(plane.kubectl("get", "rur", "-A", "-o", "json"))["items"]
    assert done["metadata"]["namespace"] == BESIDE.namespace
    assert done["spec"]["policyRef"]["apiVersion"] == "kube-retrofit.dev/v1"
    assert stored(plane) == before
    made: list[Any] = list(calls(plane))
    assert len(made) > 20
    assert [call for call in made if is_of_kyverno(call[2])] == []


@pytest.mark.parametrize("word", TYPED)
def test_words_that_people_type_mean_what_they_meant(
    plane: ControlPlane, beside: Programs, word: str
) -> None:
    found = json.loads(plane.kubectl("get", word, "-o", "json"))["items"]
    assert {item["apiVersion"] for item in found} == {f"{TYPED[word].group}/v1"}


def test_the_desk_asks_about_the_group_that_it_is_told(
    plane: ControlPlane, beside: Programs
) -> None:
    def asked(*arguments: str) -> str:
        result = CliRunner().invoke(
            retrofit, [*arguments, "--kubeconfig", str(plane.kubeconfig)], env={"COLUMNS": "300"}
        )
        assert result.exit_code == 0, result.output
        return result.stdout

    assert "spread" in asked("status", "--policy-group", BESIDE.group)
    assert "theirs" in asked("preview", "theirs", "--policy-group", REPLACING.group)
    assert "spread" in asked("preview", "clusterpolicy/spread", "--policy-group", BESIDE.group)


def test_a_move_shows_what_it_would_change(
    plane: ControlPlane, beside: Programs, tmp_path: Path
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.replace("name: spread", "name: theirs"))
    result = CliRunner().invoke(
        retrofit, ["migrate", str(file), "--preview", "--kubeconfig", str(plane.kubeconfig)]
    )
    assert result.exit_code == 0, result.output
    assert "ClusterPolicy theirs of kyverno.io is stored" in result.stderr
    assert "objects looked at, " in result.stdout


def test_uninstalling_one_leaves_the_other(plane: ControlPlane, beside: Programs) -> None:
    """An installation in the place of a Kyverno comes and goes; the one beside it goes on."""
    folder = find_manifests() / "manifests/overlays/default"
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(folder))
    plane.kubectl("delete", "--wait=true", "--timeout=90s", "-k", str(folder))
    trigger(plane, "trigger-2")
    left = plane.kubectl("get", "validatingwebhookconfigurations", "-o", "name").split()
    assert {name.partition("/")[2] for name in left} == {
        "kube-retrofit-beside-policy",
        "kube-retrofit-beside-resource",
    }
    assert names(plane, BESIDE) == ["spread"]
