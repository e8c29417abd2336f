"""Fixtures of the end-to-end tests: a cluster that runs kube-retrofit, and a user of it."""

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster.binaries import Binaries, locate, read_source
from devcluster.cluster import Cluster, ControlPlane, Options
from devcluster.install import install
from devcluster.programs import start_programs
from e2e.person import Person
from reconciler.errors import InvalidSetting

_WEBHOOKS = (
    "validatingwebhookconfigurations,mutatingwebhookconfigurations",
    "--selector=app.kubernetes.io/managed-by=kube-retrofit",
)


@pytest.fixture(scope="session")
def machine() -> Binaries | Path:
    """The control plane's binaries, or the kubeconfig that RETROFIT_CONTROL_PLANE names."""
    try:
        found = locate(os.environ, read_source())
    except InvalidSetting as error:
        pytest.fail(str(error), pytrace=False)
    if found is None:
        pytest.fail("no control plane on this machine: run `make control-plane`", pytrace=False)
    return found


@pytest.fixture(scope="session")
def cluster(
    machine: Binaries | Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A cluster with both programs running; an existing cluster with webhooks is used as it is."""
    with contextlib.ExitStack() as stack:
        if isinstance(machine, Path):
            there = Cluster.connect(machine, tmp_path_factory.mktemp("cluster"))
            if there.kubectl("get", *_WEBHOOKS, "-o", "name"):
                yield there
                return
            # Once the programs have ended, their webhooks would refuse every policy.
            stack.callback(there.kubectl, "delete", *_WEBHOOKS)
        else:
            there = stack.enter_context(ControlPlane.start(Options(binaries=machine)))
        settings = install(there, "demo")
        stack.enter_context(start_programs(there, settings=settings))
        yield there


@pytest.fixture
def person(cluster: Cluster) -> Iterator[Person]:
    """A user with kubectl and a namespace; what they created is deleted at the end."""
    name = f"e2e-{uuid.uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", name)
    someone = Person(cluster, name)
    try:
        yield someone
    finally:
        someone.leave()
