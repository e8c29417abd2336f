"""The control plane of the tests: it serves, runs beside others, and leaves no process behind."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from devcluster import state
from devcluster.binaries import Binaries
from devcluster.cluster import Cluster, ControlPlane, Options
from devcluster.state import process_mark
from devcluster.waiting import wait_until
from reconciler.errors import ClusterError

_COMMAND = f"{sys.executable} -m reconciler.cli.main"
_PARENT = """
import sys
from devcluster.cluster import ControlPlane
plane = ControlPlane.start()
print(plane.directory)
print(plane.supervision.pid, *plane.supervision.pids.values(), flush=True)
sys.stdin.read()
"""


def test_the_administrator_is_kubernetes_admin(control_plane: Cluster) -> None:
    who = json.loads(control_plane.kubectl("auth", "whoami", "-o", "json"))
    assert who["status"]["userInfo"]["username"] == "kubernetes-admin"
    assert "system:masters" in who["status"]["userInfo"]["groups"]


def test_a_service_account_has_a_kubeconfig_of_its_own(
    control_plane: Cluster, namespace: str
) -> None:
    path = control_plane.service_account_kubeconfig(namespace, "default")
    who = control_plane.kubectl("auth", "whoami", "-o", "json", kubeconfig=path)
    username = json.loads(who)["status"]["userInfo"]["username"]
    assert username == f"system:serviceaccount:{namespace}:default"
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(ClusterError, match="Forbidden"):
        control_plane.kubectl("get", "secrets", "-n", namespace, kubeconfig=path)


def test_a_failed_kubectl_call_is_reported_with_its_output(control_plane: Cluster) -> None:
    with pytest.raises(ClusterError, match=r'kubectl get configmap absent: .*"absent" not found'):
        control_plane.kubectl("get", "configmap", "absent")


def test_kubectl_reads_objects_from_standard_input(control_plane: Cluster, namespace: str) -> None:
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    control_plane.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(manifest))
    assert control_plane.kubectl("get", "configmap", "a", "-n", namespace, "-o", "name")


def test_the_manifests_are_installed_without_workloads(installed_cluster: Cluster) -> None:
    kinds = installed_cluster.kubectl("api-resources", "--api-group=kyverno.io", "-o", "name")
    assert "updaterequests.kyverno.io" in kinds.split()
    accounts = installed_cluster.kubectl("get", "serviceaccounts", "-n", "kyverno", "-o", "name")
    assert "serviceaccount/kyverno-background-controller" in accounts.split()
    assert not installed_cluster.kubectl("get", "deployments", "-n", "kyverno", "-o", "name")


@pytest.fixture
def plane(control_plane: Cluster) -> ControlPlane:
    """The shared control plane; the test is skipped if an external cluster is used."""
    if not isinstance(control_plane, ControlPlane):
        pytest.skip("RETROFIT_CONTROL_PLANE names a cluster, not programs to start")
    return control_plane


def test_two_control_planes_run_side_by_side(
    plane: ControlPlane, binaries: Binaries, record_property: Callable[[str, object], None]
) -> None:
    record_property("start_seconds", plane.start_seconds)
    with ControlPlane.start(Options(binaries=binaries)) as other:
        other.kubectl("create", "namespace", "only-there")
        here = plane.kubectl("get", "namespaces", "-o", "name")
        assert "namespace/only-there" not in here.split()
        assert plane.server != other.server
        assert other.audit_log is None
    assert not other.directory.exists()
    assert plane.ready()


def test_the_audit_log_names_the_user_and_omits_the_content(plane: ControlPlane) -> None:
    log = plane.audit_log
    assert log
    plane.kubectl("create", "namespace", "audited")
    event = wait_until(
        lambda: next((line for line in log.read_text().splitlines() if '"audited"' in line), None),
        within=10.0,
        what="the audit log holds the request",
    )
    assert json.loads(event)["user"]["username"] == "kubernetes-admin"
    assert "requestObject" not in json.loads(event)


def test_a_killed_api_server_comes_back_with_its_data(own_control_plane: ControlPlane) -> None:
    own_control_plane.kubectl("create", "namespace", "kept")
    server = own_control_plane.server
    own_control_plane.kill_apiserver()
    assert not own_control_plane.ready()
    own_control_plane.start_apiserver()
    assert own_control_plane.server == server
    assert own_control_plane.kubectl("get", "namespace", "kept", "-o", "name")


def test_kill_9_of_the_parent_leaves_no_process(binaries: Binaries | Path) -> None:
    if isinstance(binaries, Path):
        pytest.skip("RETROFIT_CONTROL_PLANE names a cluster, not programs to start")
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout
        folder = Path(parent.stdout.readline().strip())
        pids = [int(word) for word in parent.stdout.readline().split()]
        marks = {pid: process_mark(pid) for pid in pids}
        assert len(pids) == 4
        assert all(marks.values())
        os.kill(parent.pid, signal.SIGKILL)
    wait_until(
        lambda: not [pid for pid, mark in marks.items() if process_mark(pid) == mark],
        within=15.0,
        what="the control plane ended with its parent",
    )
    assert not folder.exists()


def test_up_leaves_a_cluster_running_until_down(binaries: Binaries | Path, tmp_path: Path) -> None:
    if isinstance(binaries, Path):
        pytest.skip("RETROFIT_CONTROL_PLANE names a cluster, not programs to start")
    folder = tmp_path / "a folder"
    up = _retrofit("dev", "up", "--cluster-only", "--audit-log", "--dir", str(folder))
    assert up.stdout == (
        f"export KUBECONFIG='{folder}/kubeconfig'\nexport PATH='{folder}/bin':\"$PATH\"\n"
    ), up.stderr
    try:
        again = _retrofit("dev", "up", "--cluster-only", "--dir", str(folder))
        assert again.stdout == up.stdout
        status = _retrofit("dev", "status", "--dir", str(folder))
        assert status.returncode == 0, status.stdout
        assert "kube-controller-manager" in status.stdout
        cluster = Cluster.connect(folder / "kubeconfig", tmp_path, binaries.command("kubectl"))
        assert cluster.kubectl("get", "namespace", "default", "-o", "name")
        there = state.load(folder)
        assert there
        assert there.cluster
        os.kill(there.cluster.members[0].pid, signal.SIGKILL)
        wait_until(
            lambda: _retrofit("dev", "status", "--dir", str(folder)).returncode == 1,
            within=10.0,
            what="the status shows a part that ended",
        )
    finally:
        down = _retrofit("dev", "down", "--dir", str(folder))
    assert down.returncode == 0, down.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["audit.log", "lock", "logs"]


def test_a_shell_uses_a_cluster_until_it_is_down(
    binaries: Binaries | Path, tmp_path: Path
) -> None:
    if isinstance(binaries, Path):
        pytest.skip("RETROFIT_CONTROL_PLANE names a cluster, not programs to start")
    (tmp_path / "elsewhere").mkdir()
    script = f"""set -eu
    eval "$({_COMMAND} dev up --cluster-only)"
    kubectl get namespace default -o name
    retrofit --version
    kubectl retrofit --version
    cd elsewhere
    retrofit dev status > status
    eval "$(retrofit dev down)"
    echo "${{KUBECONFIG-none}}" "$(echo "$PATH" | grep -c {tmp_path})"
    {_COMMAND} dev down
    """
    environ = {"PATH": "/usr/bin:/bin", "HOME": os.environ["HOME"]}
    environ |= {key: value for key, value in os.environ.items() if key.startswith("RETROFIT_")}
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found, own, plugin, forgotten = done.stdout.splitlines()
    assert found == "namespace/default"
    assert own == plugin.replace("kubectl-", "")
    assert forgotten == "none 0"
    assert f"KUBECONFIG names the cluster in {tmp_path}/.retrofit" in done.stderr
    assert done.stderr.endswith(f"Nothing runs in {tmp_path}/elsewhere/.retrofit\n")


def test_up_restarts_only_the_programs_that_ended(
    binaries: Binaries | Path, tmp_path: Path
) -> None:
    if isinstance(binaries, Path):
        pytest.skip("RETROFIT_CONTROL_PLANE names a cluster, not programs to start")
    up = ("dev", "up", "--dir", str(tmp_path))
    try:
        assert _retrofit(*up, "--overlay", "default").returncode == 0
        before = state.load(tmp_path)
        assert before
        programs = before.programs
        assert programs
        os.kill(programs.members[0].pid, signal.SIGKILL)
        wait_until(lambda: not programs.complete(), within=10.0, what="one program has ended")
        again = _retrofit(*up)
        assert again.returncode == 0
        assert "(overlay default)" in again.stderr
        after = state.load(tmp_path)
        assert after
        assert after.cluster == before.cluster
        assert after.programs
        assert after.programs.complete()
        assert _retrofit("dev", "status", "--dir", str(tmp_path)).returncode == 0
    finally:
        assert _retrofit("dev", "down", "--dir", str(tmp_path)).returncode == 0


def _retrofit(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from reconciler.cli.main import main; main()", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)
