"""Two installations and a live Kyverno in one cluster, which do not touch each other's objects."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp.test_utils import TestClient, TestServer
from click.testing import CliRunner

from devcluster.binaries import Binaries
from devcluster.cluster import ControlPlane
from devcluster.install import install
from devcluster.parts import free_ports
from devcluster.programs import ADMISSION, CONTROLLER, Programs, start_programs
from devcluster.waiting import wait_until
from reconciler.api.kinds import kinds_of
from reconciler.cli.desk.live import Address
from reconciler.cli.main import retrofit
from reconciler.cli.manifests import find_manifests
from reconciler.cli.ui.server import application
from reconciler.cli.work.place import workplace
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
"""Resource names that users type, each with the installation to whose group it resolves."""


@pytest.fixture(scope="module")
def plane(binaries: Binaries | Path) -> Iterator[ControlPlane]:
    """A control plane with the objects of a live Kyverno and the namespace of the tests."""
    if isinstance(binaries, Path):
        pytest.skip("RETROFIT_CONTROL_PLANE names a cluster, which gets no second installation")
    with audited(binaries) as found, living_kyverno(found):
        found.kubectl("create", "namespace", "shop")
        found.kubectl("create", "configmap", "-n", "shop", "target")
        yield found


@pytest.fixture(scope="module")
def scraped() -> dict[str, int]:
    """The secure metrics port of each program, by the program's name."""
    return dict(zip((ADMISSION, CONTROLLER), free_ports(2), strict=True))


@pytest.fixture(scope="module")
def beside(plane: ControlPlane, scraped: dict[str, int]) -> Iterator[Programs]:
    """The programs beside Kyverno, with the policy that `retrofit migrate` generates."""
    settings = install(plane, "beside-kyverno")
    folder = find_manifests() / "manifests/components-beside/metrics-auth"
    plane.kubectl("apply", "-f", str(folder / "rbac.yaml"))
    for name, port in scraped.items():
        flags = (*settings[name].flags, f"--secure-metrics-port={port}")
        settings[name] = replace(settings[name], flags=flags)
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
    """Return the names of the cluster policies in an installation's API group."""
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
def test_resource_names_resolve_to_the_group_of_their_installation(
    plane: ControlPlane, beside: Programs, word: str
) -> None:
    found = json.loads(plane.kubectl("get", word, "-o", "json"))["items"]
    assert {item["apiVersion"] for item in found} == {f"{TYPED[word].group}/v1"}


def test_the_cli_reads_policies_of_the_configured_group(
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


def test_migrate_with_preview_shows_the_changes_of_a_policy(
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


async def test_the_ui_shows_the_installation_beside_kyverno(
    plane: ControlPlane, beside: Programs
) -> None:
    folder = find_manifests() / "manifests/components-beside/ui"
    plane.kubectl("apply", "-f", str(folder / "ui.yaml"))
    (page,) = (
        item
        for item in yaml.safe_load_all((folder / "ui.yaml").read_text())
        if item["kind"] == "Deployment"
    )
    account = page["spec"]["template"]["spec"]["serviceAccountName"]
    (container,) = page["spec"]["template"]["spec"]["containers"]
    file = plane.service_account_kubeconfig(BESIDE.namespace, account)
    flags = dict(text.removeprefix("--").split("=") for text in container["args"])
    address = Address(kubeconfig=str(file), policy_group=flags["policy-group"])
    async with (
        workplace(**asdict(address), requests_namespace=flags["requests-namespace"]) as found,
        TestClient(TestServer(application(found))) as browser,
    ):
        board = await (await browser.get("/api/board")).json()
        assert [item["policy"] for item in board["policies"]] == ["spread"]
        assert board["leader"]["fresh"]
        assert board["admission"]["fresh"]
        assert (await browser.get("/api/requests?policy=spread")).status == 200


@pytest.mark.parametrize("program", [ADMISSION, CONTROLLER])
def test_metrics_are_read_only_with_the_metrics_role(
    plane: ControlPlane, beside: Programs, scraped: dict[str, int], program: str
) -> None:
    insecure = ssl.create_default_context()
    insecure.check_hostname, insecure.verify_mode = False, ssl.CERT_NONE

    def read(token: str) -> str:
        request = urllib.request.Request(
            f"https://127.0.0.1:{scraped[program]}/metrics",
            headers={"Authorization": f"Bearer {token}"},
        )
        try:
            with urllib.request.urlopen(request, context=insecure, timeout=10.0) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as refused:
            return str(refused.code)

    account = f"prometheus-of-{program}"
    plane.kubectl("create", "serviceaccount", account, "-n", "shop")
    token = plane.kubectl("create", "token", account, "-n", "shop").strip()
    assert (read("nobody"), read(token)) == ("401", "403")
    plane.kubectl(
        *("create", "clusterrolebinding", account, f"--serviceaccount=shop:{account}"),
        "--clusterrole=kube-retrofit-beside:metrics-reader",
    )
    # A refusal is cached for ten seconds.
    wait_until(lambda: "retrofit_leader" in read(token), within=WITHIN, what="metrics are read")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(f"{beside.address(program)}/metrics", timeout=10.0)


def test_uninstalling_one_installation_leaves_the_other(
    plane: ControlPlane, beside: Programs
) -> None:
    """The installation beside Kyverno works on while one in Kyverno's place comes and goes."""
    folder = find_manifests() / "manifests/overlays/default"
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(folder))
    plane.kubectl("delete", "--ignore-not-found", "--timeout=90s", "-k", str(folder))
    trigger(plane, "trigger-2")
    left = plane.kubectl("get", "validatingwebhookconfigurations", "-o", "name").split()
    assert {name.partition("/")[2] for name in left} == {
        "kube-retrofit-beside-policy",
        "kube-retrofit-beside-resource",
    }
    assert names(plane, BESIDE) == ["spread"]
