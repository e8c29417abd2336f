"""The output of the programs when their environment is wrong or incomplete at the start."""

import functools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from devcluster.binaries import Binaries
from devcluster.cluster import ControlPlane
from devcluster.install import install
from devcluster.parts import HOST, free_ports
from devcluster.programs import answers
from devcluster.waiting import wait_until
from tests.usedrights import audited

MODULES = {"controller": "reconciler", "admission": "admission.main"}
ACCOUNTS = {
    "controller": "kube-retrofit-controller",
    "admission": "kyverno-admission-controller",
}
BOTH = pytest.mark.parametrize("program", ["controller", "admission"])
NAMESPACES = ("unshare", "--user", "--map-root-user", "--mount")
# As in a container: the ServiceAccount's files, and a user without an entry in passwd.
POD = """
mount -t tmpfs none /run
mkdir -p /run/secrets/kubernetes.io/serviceaccount
cp "$POD_FILES"/* /run/secrets/kubernetes.io/serviceaccount
exec unshare --user --map-user=65532 --map-group=65532 -- "$@"
"""
NAMES = ("LOGNAME", "USER", "LNAME", "USERNAME")


@dataclass(kw_only=True)
class Started:
    """A running program whose output is kept in a log file."""

    process: subprocess.Popen[bytes]
    log: Path
    metrics: int

    @property
    def said(self) -> str:
        """The output of the program so far."""
        return self.log.read_text()

    def says(self, text: str, within: float = 60.0) -> None:
        """Wait until the program has printed a text."""

        def heard() -> bool:
            return text in self.said

        try:
            wait_until(heard, within=within, what=f"it says {text!r}")
        except Exception as error:
            raise AssertionError(f"it never says {text!r} but:\n{self.said}") from error

    def fails(self, within: float = 60.0) -> str:
        """Wait until the program exits with code 1, and return its output."""
        assert self.process.wait(within) == 1, self.said
        assert "Traceback" not in self.said
        return self.said

    def runs(self) -> None:
        """Assert that the program still runs and has printed no traceback."""
        assert self.process.poll() is None, self.said
        assert "Traceback" not in self.said


@dataclass(kw_only=True)
class Starter:
    """Starts programs and kills them.

    Attributes:
        before: The prefix of every command line.
    """

    folder: Path
    started: list[Started] = field(default_factory=list)
    before: tuple[str, ...] = ()

    def __call__(self, program: str, *flags: str, **env: str) -> Started:
        """Start a program with flags that override those of the starter."""
        port, metrics = free_ports(2)
        own = [f"--bind-address={HOST}", f"--metrics-port={metrics}"]
        if program == "admission":
            own.append(f"--port={port}")
        log = self.folder / f"{program}-{len(self.started)}.log"
        # The configuration of this machine's own clusters must not leak in.
        foreign = {"KUBECONFIG", *(NAMES if self.before else ())}
        kept = {key: value for key, value in os.environ.items() if key not in foreign}
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*self.before, sys.executable, "-m", MODULES[program], *own, *flags],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**kept, "HOME": str(self.folder), **env},
            )
        one = Started(process=process, log=log, metrics=metrics)
        self.started.append(one)
        return one

    def end(self) -> None:
        """Kill all started programs."""
        for one in self.started:
            one.process.send_signal(signal.SIGKILL)
            one.process.wait(10)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    """A starter whose programs are killed after the test."""
    starter = Starter(folder=tmp_path)
    yield starter
    starter.end()


@pytest.fixture(scope="module")
def empty(binaries: Binaries | Path) -> Iterator[ControlPlane]:
    """A control plane of this module, in which nothing is installed at first."""
    if isinstance(binaries, Path):
        pytest.skip("RETROFIT_CONTROL_PLANE names a cluster, which is not empty")
    with audited(binaries) as plane:
        yield plane


@pytest.fixture(scope="module")
def installed(empty: ControlPlane) -> ControlPlane:
    """The same control plane, installed; the test that needs it empty comes earlier."""
    install(empty, "default")
    return empty


def kubeconfig(folder: Path, server: str, token: str = "none", ca: Path | None = None) -> str:
    """Write a kubeconfig and return the flag that names it."""
    cluster = {"server": server} | ({"certificate-authority": str(ca)} if ca else {})
    path = folder / "kubeconfig"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    path.write_text(json.dumps(content))
    return f"--kubeconfig={path}"


@BOTH
def test_a_flag_with_a_bad_value_is_a_usage_error(start: Starter, program: str) -> None:
    process = start(program, "--log-level=loud").process
    assert process.wait(60) == 2
    said = start.started[0].said
    assert "--log-level" in said
    assert "'debug', 'info', 'warning', 'error'" in said
    assert "Traceback" not in said


def test_an_invalid_duration_is_refused_with_examples(start: Starter) -> None:
    one = start("controller", "--retain-completed=10")
    assert one.process.wait(60) == 2
    assert "'10' is not a duration: write it as 500ms, 30s, 10m, 24h or 1h30m" in one.said


def test_contradictory_lease_settings_are_refused(start: Starter) -> None:
    for name, value in (("RETROFIT_LEASE_RENEW", "20s"), ("RETROFIT_LEASE_RETRY", "0")):
        assert start("controller", **{name: value}).fails() == (
            "Error: --lease-retry must be shorter than --lease-renew, and --lease-renew shorter"
            " than --lease-duration; none of them may be 0\n"
        )


@BOTH
def test_a_missing_kubeconfig_is_an_error_of_one_line(start: Starter, program: str) -> None:
    said = start(program, "--kubeconfig=/nowhere/kubeconfig").fails()
    assert len(said.splitlines()) == 1
    assert said.startswith("Error: ")
    assert "/nowhere/kubeconfig" in said


@BOTH
def test_a_malformed_kubeconfig_is_an_error_with_its_path(
    start: Starter, program: str, tmp_path: Path
) -> None:
    path = tmp_path / "broken"
    path.write_text("clusters: [}")
    said = start(program, f"--kubeconfig={path}").fails()
    assert said.startswith("Error: ")
    assert str(path) in said


@BOTH
def test_a_start_without_any_cluster_is_an_error_that_names_the_flag(
    start: Starter, program: str
) -> None:
    said = start(program).fails()
    assert said.startswith("Error: ")
    assert "--kubeconfig" in said


@BOTH
def test_a_port_in_use_is_an_error_that_names_the_flag(
    start: Starter, program: str, tmp_path: Path
) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        flag = kubeconfig(tmp_path, "https://127.0.0.1:1")
        said = start(program, flag, f"--metrics-port={port}").fails()
        assert len(said.splitlines()) == 1
        assert f"{port}" in said
        assert "--metrics-port" in said
        if program == "admission":
            said = start(program, flag, f"--port={port}").fails()
            assert f"{port}" in said
            assert "--port" in said


@pytest.mark.cluster
def test_both_programs_wait_until_the_crds_are_applied(
    start: Starter, empty: ControlPlane
) -> None:
    programs = [start(program, f"--kubeconfig={empty.kubeconfig}") for program in MODULES]
    for one in programs:
        one.says("clusterpolicies.kyverno.io: apply crds/ (kubectl apply -k crds)")
        one.says("trying again in")
        one.runs()
        assert not ready(one)
    install(empty, "default")
    for one in programs:
        wait_until(functools.partial(ready, one), within=40, what="it is ready")
        one.runs()


@pytest.mark.cluster
@BOTH
def test_a_wrong_token_is_an_error_of_one_line(
    start: Starter, program: str, installed: ControlPlane, tmp_path: Path
) -> None:
    flag = kubeconfig(tmp_path, installed.server, "wrong", installed.credentials.ca)
    said = start(program, flag).fails()
    assert len(said.splitlines()) == 1
    assert said.startswith("Error: ")
    assert "the token is expired or wrong: renew it" in said


@pytest.mark.cluster
@BOTH
def test_a_program_without_rights_waits_and_names_the_right_to_grant(
    start: Starter, program: str, installed: ControlPlane
) -> None:
    account = installed.service_account_kubeconfig("default", "default")
    one = start(program, f"--kubeconfig={account}")
    one.says("no right to list clusterpolicies.kyverno.io: apply manifests/")
    one.says("or grant it to the program's ServiceAccount; trying again in")
    one.runs()
    assert not ready(one)


@pytest.mark.cluster
def test_a_controller_that_may_not_hold_the_lease_names_the_right_to_grant(
    start: Starter, installed: ControlPlane
) -> None:
    # An account with the controller's rights except those in the namespace of the programs.
    role, account = "--clusterrole=kube-retrofit:controller", "default:leaseless"
    installed.kubectl("create", "serviceaccount", "leaseless", "--namespace=default")
    installed.kubectl(
        "create", "clusterrolebinding", "leaseless", role, f"--serviceaccount={account}"
    )
    kubeconfig = installed.service_account_kubeconfig("default", "leaseless")
    one = start("controller", f"--kubeconfig={kubeconfig}")
    one.says("cannot hold the Lease")
    one.says("get leases.coordination.k8s.io kyverno/kube-retrofit-controller")
    one.says("grant: get leases.coordination.k8s.io in namespace kyverno")
    one.runs()


@pytest.mark.cluster
def test_both_programs_wait_until_the_api_server_answers(
    start: Starter, installed: ControlPlane
) -> None:
    flags = {
        program: f"--kubeconfig={installed.service_account_kubeconfig('kyverno', account)}"
        for program, account in ACCOUNTS.items()
    }
    installed.kill_apiserver()
    try:
        programs = [start(program, flag) for program, flag in flags.items()]
        for one in programs:
            one.says(f"the API server at {installed.server} does not answer (connection refused)")
            one.says("trying again in")
            assert not ready(one)
            one.runs()
        impatient = start("controller", flags["controller"], "--startup-timeout=1s")
        assert "does not answer" in impatient.fails().splitlines()[-1]
    finally:
        installed.start_apiserver()
    for one in programs:
        wait_until(functools.partial(ready, one), within=40, what="it is ready")
        one.runs()


@pytest.mark.cluster
@BOTH
def test_a_program_becomes_ready_with_the_environment_of_a_pod(
    start: Starter, program: str, installed: ControlPlane, tmp_path: Path
) -> None:
    host, _, port = installed.server.removeprefix("https://").partition(":")
    account = ACCOUNTS[program]
    files = tmp_path / "account"
    files.mkdir()
    token = installed.kubectl("create", "token", account, "-n", "kyverno", "--duration=10m")
    (files / "token").write_text(token.strip())
    (files / "ca.crt").write_bytes(installed.credentials.ca.read_bytes())
    if subprocess.run([*NAMESPACES, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespaces here: the user of a container cannot be had")
    start.before = (*NAMESPACES, "sh", "-ec", POD, "sh")
    service = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    one = start(program, **service, POD_FILES=str(files))
    wait_until(lambda: ready(one) or one.process.poll() is not None, within=40, what="it is ready")
    assert ready(one), one.said
    one.runs()


def ready(one: Started) -> bool:
    """Return whether the readiness probe of a program succeeds."""
    return answers(f"http://{HOST}:{one.metrics}/readyz")
