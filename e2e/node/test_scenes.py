"""The life of an installation on a real node, from install to uninstall, in this order."""

import json
import os
import shlex
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from devcluster.cluster import Cluster
from devcluster.waiting import pause, wait_until
from e2e.node.conftest import ACCOUNTS, Facts, applied
from e2e.node.images import ROOT
from e2e.node.machine import process_of
from e2e.node.pages import blocks
from e2e.node.stream import MARK, Stream
from e2e.node.tokens import LIFE, ShortTokens, patch_of
from reconciler.api.meta import Object
from reconciler.errors import ClusterError
from tests.conformance import data
from tests.conformance.chainsaw import loader
from tests.conformance.chainsaw.cluster import ApiServer
from tests.conformance.chainsaw.environment import copy_tree, make_shell
from tests.conformance.chainsaw.operations import Failure
from tests.conformance.chainsaw.runner import run
from tests.conformance.kubeconfig import read

README = ROOT / "README.md"
CALLERS = ROOT / "manifests/components/client-certificate"
UNINSTALL = ROOT / "docs/how-to/uninstall.md"
ADMISSION, CONTROLLER = ACCOUNTS
CONTAINERS = {ADMISSION: "admission", CONTROLLER: "controller"}
KYVERNO = ("-n", "kyverno")
ROLLOUT = 240.0
# Cluster-scoped kinds whose objects kube-retrofit or its users install, create or keep.
GLOBAL = (
    "customresourcedefinitions,clusterroles,clusterrolebindings,namespaces,priorityclasses,"
    "validatingwebhookconfigurations,mutatingwebhookconfigurations"
)
REPORTS = {
    f"customresourcedefinition.apiextensions.k8s.io/{name}.wgpolicyk8s.io"
    for name in ("policyreports", "clusterpolicyreports")
}
SHOP = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, labels: {reload-on: web-settings}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: web, image: "busybox:1.35", command: [sleep, "3600"]}]
"""
LIBRARY = ("refresh-volumes-in-pods", "scale-deployment-zero")

Streams = Callable[..., Stream]

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="session")
def before(cluster: Cluster) -> set[str]:
    """The cluster-scoped objects before the installation."""
    return outside(cluster)


def outside(cluster: Cluster) -> set[str]:
    return set(cluster.kubectl("get", GLOBAL, "-o", "name").split())


def run_commands(cluster: Cluster, document: Path, heading: str) -> None:
    """Run the lines of a section that start with kubectl, as they are printed."""
    lines = "".join(blocks(document, heading, "sh")).splitlines()
    commands = [shlex.split(line, comments=True) for line in lines if line.startswith("kubectl ")]
    assert commands, f"{document.name}, {heading}: no command"
    for command in commands:
        if command[1] == "retrofit":
            # The program that kubectl would run as a plugin.
            program = Path(sys.executable).with_name("retrofit")
            address = ("--kubeconfig", str(cluster.kubeconfig))
            subprocess.run([program, *command[2:], *address], check=True, timeout=ROLLOUT)
        else:
            cluster.kubectl(*command[1:], within=ROLLOUT)


def rolled_out(cluster: Cluster) -> None:
    names = (f"deployment/{name}" for name in ACCOUNTS)
    cluster.kubectl("rollout", "status", *KYVERNO, *names, within=ROLLOUT)


def pods(cluster: Cluster, label: str, namespace: str = "kyverno") -> dict[str, Object]:
    """Return the pods that are not being deleted, by name."""
    text = cluster.kubectl("get", "pods", "-n", namespace, "-l", label, "-o", "json")
    return {
        pod["metadata"]["name"]: pod
        for pod in json.loads(text)["items"]
        if "deletionTimestamp" not in pod["metadata"]
    }


def component(name: str) -> str:
    return f"app.kubernetes.io/component={name.removeprefix('kyverno-')}"


def test_install_as_readme_says(cluster: Cluster, before: set[str]) -> None:
    assert before
    run_commands(cluster, README, "Install it in a cluster")
    for name in ACCOUNTS:
        for pod in pods(cluster, component(name)).values():
            assert pod["status"]["containerStatuses"][0]["restartCount"] == 0


def test_the_first_policy_is_reviewed_right_after_the_installation(cluster: Cluster) -> None:
    # This is directly after the installation: no call of the webhook may fail.
    (policy,) = blocks(README, "Write a first policy", "yaml")
    with pytest.raises(ClusterError, match="deployments") as refused:
        cluster.kubectl("apply", "-f", "-", stdin=policy)
    assert "failed calling webhook" not in str(refused.value)
    (role,) = blocks(README, "Grant the rights", "yaml")
    cluster.kubectl("apply", "-f", "-", stdin=role)
    applied(cluster, policy)
    name = yaml.safe_load(policy)["metadata"]["name"]
    cluster.kubectl("wait", "--for=condition=Ready", "--timeout=30s", f"clusterpolicy/{name}")


def test_a_changed_configmap_replaces_pods(cluster: Cluster) -> None:
    cluster.kubectl("create", "namespace", "shop")
    cluster.kubectl("create", "configmap", "web-settings", "-n", "shop", "--from-literal=a=1")
    cluster.kubectl("apply", "-f", "-", stdin=SHOP)
    cluster.kubectl("rollout", "status", "-n", "shop", "deployment/web", within=90.0)
    old = set(pods(cluster, "app=web", "shop"))
    change = '{"data": {"a": "2"}}'
    cluster.kubectl("patch", "configmap", "web-settings", "-n", "shop", "-p", change)

    def replaced() -> bool:
        there = pods(cluster, "app=web", "shop")
        running = [pod for pod in there.values() if pod["status"]["phase"] == "Running"]
        return len(running) == 2 and not old & set(there)

    wait_until(replaced, within=90.0, what="both pods are replaced")
    label = "kube-retrofit.dev/policy=reload-web"
    text = cluster.kubectl("get", "ur", *KYVERNO, "-l", label, "-o", "json")
    (state,) = {item["status"]["state"] for item in json.loads(text)["items"]}
    assert state == "Completed"


def test_no_trigger_is_lost_during_a_rolling_restart(cluster: Cluster, stream: Streams) -> None:
    with stream("rolling restart of both", 50.0) as running:
        running.wait(10, within=30.0)
        names = (f"deployment/{name}" for name in ACCOUNTS)
        cluster.kubectl("rollout", "restart", *KYVERNO, *names)
        rolled_out(cluster)
        running.wait(10, within=30.0)
    assert (running.row.refused, running.row.lost) == (0, 0)


def test_callers_without_a_client_certificate_are_refused(
    cluster: Cluster, stream: Streams, tmp_path: Path
) -> None:
    overlay = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(ROOT / "manifests/overlays/default", tmp_path.resolve())],
        "components": [os.path.relpath(CALLERS, tmp_path.resolve())],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    with stream("callers need a certificate") as running:
        cluster.kubectl("apply", "--server-side", "-k", str(tmp_path))
        rolled_out(cluster)
        running.wait(10, within=30.0)
    assert (running.row.refused, running.row.lost) == (0, 0)
    place = "jsonpath={.spec.clusterIP}"
    address = cluster.kubectl("get", "service", "kyverno-svc", *KYVERNO, "-o", place)
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    forged = urllib.request.Request(
        f"https://{address}/policies",
        data=b"{}",
        headers={"Content-Type": "application/json"},
    )
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(forged, context=trust, timeout=10.0)


def test_no_trigger_is_lost_during_an_upgrade_to_another_tag(
    cluster: Cluster, facts: Facts, stream: Streams, short_tokens: ShortTokens, tmp_path: Path
) -> None:
    assert short_tokens.first
    image, _, tag = facts.upgrade.rpartition(":")
    patches = [
        {"patch": yaml.safe_dump(patch_of(name, container, ACCOUNTS[name]))}
        for name, container in CONTAINERS.items()
    ]
    overlay = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(ROOT / "manifests/overlays/default", tmp_path.resolve())],
        "images": [{"name": image, "newTag": tag}],
        "components": [os.path.relpath(CALLERS, tmp_path.resolve())],
        # The pods of the following scenes have tokens that expire soon.
        "patches": patches,
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    with stream("upgrade to another tag") as running:
        running.wait(10, within=30.0)
        cluster.kubectl("apply", "--server-side", "-k", str(tmp_path))
        rolled_out(cluster)
        running.wait(10, within=30.0)
    assert (running.row.refused, running.row.lost) == (0, 0)
    for name in ACCOUNTS:
        for pod in pods(cluster, component(name)).values():
            assert pod["spec"]["containers"][0]["image"] == facts.upgrade


def test_no_trigger_is_lost_when_tokens_expire(
    cluster: Cluster, stream: Streams, short_tokens: ShortTokens
) -> None:
    with stream("ServiceAccount tokens expire") as running:
        # By then, the tokens with which the pods started and their successors have expired.
        pause(LIFE + 10.0)
    assert (running.row.refused, running.row.lost) == (0, 0)
    for token in short_tokens.first:
        with pytest.raises(ClusterError, match=r"Unauthorized|logged in"):
            cluster.kubectl("auth", "whoami", f"--token={token}")
    for name in ACCOUNTS:
        for pod in pods(cluster, component(name)).values():
            assert pod["status"]["containerStatuses"][0]["restartCount"] == 0


def holder(cluster: Cluster) -> str:
    """Return the Lease's holder identity, which starts with the name of the leader's pod."""
    path = "jsonpath={.spec.holderIdentity}"
    return cluster.kubectl("get", "lease", "kube-retrofit-controller", *KYVERNO, "-o", path)


def leader(cluster: Cluster) -> str:
    """Return the name of the leader's pod."""
    return holder(cluster).partition("_")[0]


def kill(pod: Object) -> None:
    """Kill the first container of a pod with SIGKILL."""
    container = pod["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
    os.kill(process_of(container), signal.SIGKILL)


def test_no_trigger_is_lost_when_the_leader_is_deleted(cluster: Cluster, stream: Streams) -> None:
    with stream("leader deleted") as running:
        running.wait(10, within=30.0)
        old = leader(cluster)
        cluster.kubectl("delete", "pod", old, *KYVERNO, "--wait=false")
        wait_until(lambda: leader(cluster) not in {"", old}, within=60.0, what="another leads")
        running.wait(20, within=30.0)
    assert (running.row.refused, running.row.lost) == (0, 0)


def test_no_accepted_trigger_is_lost_when_an_admission_process_is_killed(
    cluster: Cluster, stream: Streams
) -> None:
    rolled_out(cluster)
    with stream("admission process killed with -9") as running:
        running.wait(10, within=30.0)
        _, pod = min(pods(cluster, component(ADMISSION)).items())
        kill(pod)
        running.wait(50, within=60.0)
    # The API server calls a webhook once: requests that this process was handling are refused.
    assert running.row.lost == 0
    assert running.row.refused < running.row.accepted / 10
    rolled_out(cluster)


def test_a_killed_leader_leads_again_as_soon_as_its_container_is_restarted(
    cluster: Cluster, stream: Streams
) -> None:
    with stream("leader process killed with -9") as running:
        running.wait(10, within=30.0)
        old = holder(cluster)
        kill(pods(cluster, component(CONTROLLER))[leader(cluster)])
        wait_until(lambda: holder(cluster) != old, within=60.0, what="another process leads")
        running.wait(10, within=30.0)
    # The other pod would have had to wait until the Lease expires.
    assert leader(cluster) == old.partition("_")[0]
    assert (running.row.refused, running.row.lost) == (0, 0)
    rolled_out(cluster)


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the commands that the library's test cases find on their PATH."""
    return tmp_path_factory.mktemp("bin")


@pytest.mark.parametrize("name", LIBRARY)
async def test_policies_of_the_library_pass_their_tests(
    name: str, cluster: Cluster, facts: Facts, tools: Path, tmp_path: Path
) -> None:
    case = Path("library/other") / name / ".chainsaw-test"
    if not (data.root() / case).is_dir():
        assert not data.required(), f"CONFORMANCE_REQUIRED=1, but there is no {case}"
        pytest.skip(f"conformance data absent: no {case}; set CONFORMANCE_DATA")
    copy_tree(data.root() / "library", tmp_path / "library")
    shell = make_shell(cluster, facts.kubectl, tools)
    test = loader.load(tmp_path / case, tmp_path)
    # A script starts five programs, on two cores that the whole node uses too.
    timeouts = replace(test.configuration.timeouts, exec=30.0)
    test = replace(test, configuration=replace(test.configuration, timeouts=timeouts))
    try:
        async with ApiServer(read(facts.kubeconfig)) as server:
            await run(
                test,
                server,
                shell,
                lambda: cluster.kubectl("get", "events", "-A"),
            )
    except Failure as failure:
        pytest.fail(str(failure), pytrace=False)


def test_uninstalling_leaves_only_the_objects_that_the_page_then_removes(
    cluster: Cluster, before: set[str], short_tokens: ShortTokens
) -> None:
    # The annotation of a rule that does not converge, after a last request that did not end.
    key = "kube-retrofit.dev/applied"
    cluster.kubectl("annotate", "deployment", "web", "-n", "shop", f"{key}=ur-of-old")
    run_commands(cluster, UNINSTALL, "1. Delete the policies")
    # The Secrets of the tokens are deleted with the namespace.
    short_tokens.close()
    run_commands(cluster, UNINSTALL, "2. Delete the installation")
    own = {"namespace/shop", "namespace/stream"}
    roles = {
        f"clusterrole.rbac.authorization.k8s.io/{name}"
        for name in ("retrofit:deployments", "e2e:stream")
    }

    def left() -> set[str]:
        return outside(cluster) - before - own

    wait_until(lambda: left() <= REPORTS | roles, within=60.0, what="the rest is gone")
    assert REPORTS | roles <= left()
    run_commands(cluster, UNINSTALL, "3. Remove the rest")
    wait_until(lambda: not left(), within=30.0, what="nothing is left")
    text = cluster.kubectl("get", "deployment,configmap", "-A", "-o", "json")
    assert key not in text
    assert MARK in text
