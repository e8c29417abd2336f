"""The cluster of the chainsaw tests, with everything installed and both programs running."""

import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest
import yaml

from devcluster.cluster import Cluster, ControlPlane
from devcluster.install import install
from devcluster.programs import ADMISSION, CONTROLLER, Programs, start_programs
from devcluster.supervision import last_lines
from reconciler.api.kinds import kinds_of
from reconciler.errors import ClusterError
from tests.conformance.chainsaw.cluster import ApiServer
from tests.conformance.chainsaw.model import Test
from tests.conformance.chainsaw.operations import Failure
from tests.conformance.chainsaw.runner import run
from tests.conformance.chainsaw.shell import Shell
from tests.conformance.kubeconfig import Access, read

NODE = "kind-control-plane"
TOOLS = ("curl", "jq", "openssl")
# The folders of tests that need pods bound to a node, as patterns.
SCHEDULED = ("library/other/add-node-labels-pod/*",)
_LOG_LINES = 25
_NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": NODE,
        "labels": {
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": NODE,
            "kubernetes.io/os": "linux",
        },
    },
}

# The status that a kubelet would write: pods are bound only to a Ready node with free capacity.
_READY = {
    "status": {
        "capacity": {"cpu": "8", "memory": "16Gi", "pods": "110"},
        "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "MadeByHand"}],
    }
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The cluster, programs and tools that a test needs.

    Attributes:
        requests: The resource name by which kubectl finds the programs' UpdateRequests.
    """

    cluster: Cluster
    programs: Programs
    access: Access
    shell: Shell
    requests: str

    def describe(self) -> str:
        """Return the requests that are stored and the ends of both logs."""
        try:
            requests = self.cluster.kubectl("get", self.requests, "-A", "-o", "wide") or "(none)"
        except ClusterError as error:
            requests = str(error)
        parts = [f"UpdateRequests:\n{requests}"]
        for name in (ADMISSION, CONTROLLER):
            log = self.programs.logs / f"{name}.log"
            parts.append(f"{log}:\n{last_lines(log, _LOG_LINES)}")
        return "\n".join(parts)

    async def play(self, test: Test, case: str) -> None:
        """Run a chainsaw test, and fail the calling pytest test with the message of a failure."""
        problem = ""
        async with ApiServer(self.access) as server:
            try:
                with self.scheduling(case):
                    await run(test, server, self.shell, self.describe)
            except Failure as failure:
                problem = str(failure)
        if problem:
            pytest.fail(problem, pytrace=False)

    @contextmanager
    def scheduling(self, case: str) -> Iterator[None]:
        """Schedule pods to NODE while a test needs it, which a real cluster does by itself."""
        wanted = any(PurePosixPath(case).match(pattern) for pattern in SCHEDULED)
        if not wanted or not isinstance(self.cluster, ControlPlane):
            yield
            return
        kubectl = self.cluster.kubectl
        kubectl("patch", "node", NODE, "--subresource=status", "-p", json.dumps(_READY))
        # Every new node gets a taint, which the node lifecycle controller would remove.
        kubectl("patch", "node", NODE, "--type=merge", "-p", '{"spec": {"taints": null}}')
        with self.cluster.scheduler():
            yield


@contextmanager
def prepare(
    cluster: Cluster, kubectl: tuple[str, ...], folder: Path, overlay: str = "conformance"
) -> Iterator[Environment]:
    """Install everything, start the programs, and stop them afterwards.

    Args:
        cluster: A cluster that only this suite uses.
        kubectl: The kubectl command of the control plane.
        folder: The folder for commands that tests find on their PATH.
        overlay: The name of the manifests to install.
    """
    settings = install(cluster, overlay)
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(_NODE))
    with start_programs(cluster, settings=settings) as programs:
        yield Environment(
            cluster=cluster,
            programs=programs,
            access=read(cluster.kubeconfig),
            shell=make_shell(cluster, kubectl, folder),
            requests=kinds_of(settings[CONTROLLER].installation).requests.resource,
        )


def make_shell(cluster: Cluster, kubectl: tuple[str, ...], folder: Path) -> Shell:
    """Return a shell that runs scripts as the administrator, with the commands that tests use."""
    _command(folder / "kubectl", kubectl)
    # Some tests of the library call `kyverno jp query`.
    _command(folder / "kyverno", (sys.executable, "-m", "reconciler.cli.main"))
    variables = {
        "KUBECONFIG": str(cluster.kubeconfig),
        # kubectl must not use the cached discovery of another cluster on the same port.
        "KUBECACHEDIR": str(folder / "kubectl-cache"),
        "KUBERC": "off",
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
    }
    return Shell(environment=variables)


def missing_tools(folder: Path) -> list[str]:
    """Return the TOOLS that the files of a test name and that this machine lacks."""
    texts = [
        path.read_text(errors="replace")
        for path in folder.iterdir()
        if path.suffix == ".sh" or path.name == "chainsaw-test.yaml"
    ]
    words = {word for text in texts for word in text.replace("|", " ").replace("$(", " ").split()}
    return [tool for tool in TOOLS if tool in words and shutil.which(tool) is None]


def copy_tree(source: Path, target: Path) -> None:
    """Copy a group of tests with write permission for scripts, which the data may lack."""
    shutil.copytree(source, target)
    for path in (target, *target.rglob("*")):
        path.chmod(path.stat().st_mode | 0o600)


def _command(path: Path, argv: tuple[str, ...]) -> None:
    path.write_text(f'#!/bin/sh\nexec {shlex.join(argv)} "$@"\n')
    path.chmod(0o755)
