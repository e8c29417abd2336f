"""Fixtures of the scenes: the node's cluster, a stream of triggers, and a row of the table."""

import json
import os
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from devcluster.cluster import Cluster
from devcluster.waiting import wait_until
from e2e.node.__main__ import FACTS
from e2e.node.stream import MARKS, NAMESPACE, POLICY, ROLE, Row, Stream
from e2e.node.tokens import ShortTokens
from reconciler.errors import ClusterError

ACCOUNTS = {
    "kyverno-admission-controller": "kyverno-admission-controller",
    "kyverno-background-controller": "kube-retrofit-controller",
}
"""The ServiceAccount that each Deployment runs as."""
_ROWS = pytest.StashKey[list[Row]]()


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The facts about the node that ``e2e.node.__main__`` passes in a file.

    Attributes:
        upgrade: The image under another tag.
        older: The image of an earlier version; empty if it cannot be built.
    """

    kubeconfig: Path
    kubectl: tuple[str, ...]
    service_account_key: Path
    image: str
    upgrade: str
    older: str


@pytest.fixture(scope="session")
def facts() -> Facts:
    place = os.environ.get(FACTS)
    if not place:
        pytest.fail("there is no node: these are run by `make e2e-node`", pytrace=False)
    said = json.loads(Path(place).read_text())
    return Facts(
        kubeconfig=Path(said["kubeconfig"]),
        kubectl=tuple(said["kubectl"]),
        service_account_key=Path(said["service_account_key"]),
        image=said["image"],
        upgrade=said["upgrade"],
        older=said["older"],
    )


@pytest.fixture(scope="session")
def cluster(facts: Facts, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    return Cluster.connect(facts.kubeconfig, tmp_path_factory.mktemp("cluster"), facts.kubectl)


@pytest.fixture(scope="session")
def streaming(cluster: Cluster) -> None:
    """A policy in force that marks every object of the stream."""
    cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.kubectl("apply", "-f", "-", stdin=ROLE)
    applied(cluster, POLICY)
    cluster.kubectl("wait", "--for=condition=Ready", "--timeout=30s", "clusterpolicy/stream")


@pytest.fixture
def stream(facts: Facts, request: pytest.FixtureRequest) -> Callable[..., Stream]:
    """A function that returns a stream, whose counts become a row of the table."""
    request.getfixturevalue("streaming")

    return partial(opened, request.config, facts)


def opened(
    config: pytest.Config,
    facts: Facts,
    scene: str,
    per_second: float = 5.0,
    marks: frozenset[str] = MARKS,
) -> Stream:
    """Return a stream, and add its row to the table."""
    there = Stream(facts.kubeconfig, scene, per_second, marks)
    config.stash.setdefault(_ROWS, []).append(there.row)
    return there


@pytest.fixture(scope="session")
def short_tokens(facts: Facts, cluster: Cluster) -> Iterator[ShortTokens]:
    """Tokens that expire within a minute, for Deployments that are patched to use them."""
    with ShortTokens(cluster, facts.service_account_key, tuple(ACCOUNTS.values())) as tokens:
        yield tokens


def applied(cluster: Cluster, text: str) -> None:
    """Apply a policy; retry until the role that it needs has taken effect."""

    def accepted() -> bool:
        try:
            cluster.kubectl("apply", "-f", "-", stdin=text)
        except ClusterError as error:
            if "kind: ClusterRole" not in str(error):
                raise
            return False
        return True

    wait_until(accepted, within=20.0, what="the policy is accepted")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the state of the programs to the report of a failure; the node is removed later."""
    report = yield
    cluster = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and isinstance(cluster, Cluster):
        report.sections.append(("the programs", _described(cluster)))
    return report


def _described(cluster: Cluster) -> str:
    commands: list[tuple[str, ...]] = [
        ("get", "pods", "-A", "-o", "wide"),
        ("get", "events", "-n", "kube-retrofit"),
    ]
    for name in ACCOUNTS:
        label = f"app.kubernetes.io/component={name.removeprefix('kyverno-')}"
        commands.append(("logs", "-n", "kyverno", "-l", label, "--prefix", "--tail=8"))
    beside = "app.kubernetes.io/part-of=kube-retrofit"
    commands.append(("logs", "-n", "kube-retrofit", "-l", beside, "--prefix", "--tail=8"))
    said = []
    for command in commands:
        try:
            said.append(cluster.kubectl(*command))
        except ClusterError as error:
            said.append(str(error))
    return "\n".join(said)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the table of scenes."""
    rows = config.stash.get(_ROWS, [])
    if not rows:
        return
    write = terminalreporter.write_line
    terminalreporter.section("scenes under a stream of triggers")
    write(f"{'scene':<42}{'accepted':>9}{'refused':>9}{'lost':>6}{'seconds':>9}")
    for row in rows:
        write(f"{row.scene:<42}{row.accepted:>9}{row.refused:>9}{row.lost:>6}{row.seconds:>9.1f}")
        for reason, count in row.reasons.most_common(3):
            write(f"  {count} refused: {reason}")
