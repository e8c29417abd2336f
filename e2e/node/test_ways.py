"""More ways to install, one after another, on the node that the scenes left without traces."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.chart import CHART
from devcluster.cluster import Cluster
from devcluster.helm import locate_helm
from devcluster.waiting import wait_until
from e2e.node.conftest import ACCOUNTS, Facts, applied, opened
from e2e.node.images import ROOT
from e2e.node.stream import ADMITTED, MARK, NAMESPACE, POLICY, ROLE, Stream
from e2e.node.test_scenes import (
    ADMISSION,
    KYVERNO,
    ROLLOUT,
    UNINSTALL,
    component,
    outside,
    pods,
    rolled_out,
    run_commands,
)
from reconciler.errors import ClusterError
from reconciler.installation import BESIDE

OVERLAYS = ROOT / "manifests/overlays"
BEFORE = ROOT / "tests/integration/upgrade/0.1.0.jsonl"
STANDINS = str(ROOT / "tests/integration/standins.yaml")
"""The CRDs of cert-manager and the Prometheus operator, for which no controller runs here."""
RELEASE = ("kube-retrofit", f"--namespace={BESIDE.namespace}")
PAGE = f"/api/v1/namespaces/{BESIDE.namespace}/pods/{{}}:8080/proxy/api/board"

Streams = Callable[..., Stream]

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def clean(cluster: Cluster) -> set[str]:
    """The cluster-scoped objects, including the namespace and the role of the stream."""
    text = yaml.safe_dump(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    )
    cluster.kubectl("apply", "-f", "-", stdin=text)
    cluster.kubectl("apply", "-f", "-", stdin=ROLE)
    return outside(cluster)


@pytest.fixture
def triggers(facts: Facts, request: pytest.FixtureRequest) -> Streams:
    request.getfixturevalue("clean")
    return partial(opened, request.config, facts)


def policy(rules: slice = slice(None)) -> str:
    """Return the policy of the stream, with some of its rules."""
    found = yaml.safe_load(POLICY)
    found["spec"]["rules"] = found["spec"]["rules"][rules]
    return yaml.safe_dump(found)


def ready(cluster: Cluster, name: str = "clusterpolicy/stream") -> None:
    cluster.kubectl("wait", "--for=condition=Ready", "--timeout=60s", name)


def apply(cluster: Cluster, overlay: str) -> None:
    cluster.kubectl("apply", "--server-side", "-k", str(OVERLAYS / overlay))


def apply_image(cluster: Cluster, facts: Facts, overlay: str, image: str) -> None:
    """Apply an overlay as `kustomize edit set image` would change it."""
    text = cluster.kubectl("kustomize", str(OVERLAYS / overlay))
    assert facts.image in text
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=text.replace(facts.image, image))


def upgrade_through(
    cluster: Cluster, facts: Facts, overlays: Sequence[str], running: Stream, namespace: str
) -> None:
    """Apply overlays one after another, each with another image than the one before."""
    for overlay, image in zip(overlays, cycle((facts.upgrade, facts.image)), strict=False):
        apply_image(cluster, facts, overlay, image)
        cluster.kubectl("rollout", "status", "-n", namespace, "deployment", within=ROLLOUT)
        alone(cluster, image, namespace)
        running.wait(5, within=30.0)


def remove(cluster: Cluster, overlays: Sequence[str]) -> None:
    """Delete the objects of overlays that were applied one after another."""
    found: dict[tuple[str, str, str, str], Any] = {}
    for overlay in overlays:
        text = cluster.kubectl("kustomize", str(OVERLAYS / overlay))
        for item in yaml.safe_load_all(text):
            meta = item["metadata"]
            place = item["apiVersion"], item["kind"], meta.get("namespace", ""), meta["name"]
            found.setdefault(place, item)
    items = yaml.safe_dump_all(found.values())
    cluster.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=items, within=ROLLOUT)


def alone(cluster: Cluster, image: str, namespace: str) -> None:
    """Wait until the programs run this image and no other."""

    def only() -> bool:
        found = pods(cluster, "app.kubernetes.io/component", namespace)
        return {item["spec"]["containers"][0]["image"] for item in found.values()} == {image}

    wait_until(only, within=60.0, what=f"only Pods of {image} are left")


def test_an_upgrade_from_0_1_0_loses_no_trigger(
    cluster: Cluster, facts: Facts, triggers: Streams
) -> None:
    if not facts.older:
        pytest.skip("this checkout has no history to build 0.1.0 of")
    items = [json.loads(line) for line in BEFORE.read_text().splitlines()]
    first = [item for item in items if item["kind"] in {"CustomResourceDefinition", "Namespace"}]
    for part in (first, items):
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": part})
        cluster.kubectl("apply", "--server-side", "-f", "-", stdin=text)
    rolled_out(cluster)
    for name in ACCOUNTS:
        for pod in pods(cluster, component(name)).values():
            assert pod["spec"]["containers"][0]["image"] == facts.older
    # Version 0.1.0 does not support rules that change the trigger itself.
    applied(cluster, policy(slice(1)))
    ready(cluster)
    with triggers("upgrade from 0.1.0", marks=frozenset({MARK})) as running:
        running.wait(10, within=30.0)
        apply(cluster, "default")
        rolled_out(cluster)
        running.wait(10, within=30.0)
    assert (running.row.refused, running.row.lost) == (0, 0)
    for name in ACCOUNTS:
        for pod in pods(cluster, component(name)).values():
            assert pod["spec"]["containers"][0]["image"] == facts.image
    ready(cluster)


def test_only_one_of_three_replicas_can_be_evicted_at_a_time(
    cluster: Cluster, triggers: Streams
) -> None:
    apply(cluster, "high-availability")
    rolled_out(cluster)
    applied(cluster, POLICY)
    ready(cluster)
    for name in ACCOUNTS:
        assert len(pods(cluster, component(name))) == 3
    first, second, _ = sorted(pods(cluster, component(ADMISSION)))
    with triggers("one of three replicas evicted") as running:
        running.wait(10, within=30.0)
        evict(cluster, first)
        with pytest.raises(ClusterError, match="disruption budget"):
            evict(cluster, second)
        rolled_out(cluster)
        running.wait(10, within=30.0)
    assert (running.row.refused, running.row.lost) == (0, 0)


def evict(cluster: Cluster, pod: str) -> None:
    wanted = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": "kyverno"},
    }
    path = f"/api/v1/namespaces/kyverno/pods/{pod}/eviction"
    cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(wanted))


def test_a_change_from_three_replicas_to_one_loses_no_trigger(
    cluster: Cluster, triggers: Streams
) -> None:
    with triggers("three replicas become one") as running:
        running.wait(10, within=30.0)
        apply(cluster, "single-replica")
        cluster.kubectl("delete", "poddisruptionbudgets", *KYVERNO, "--all")

        def alone() -> bool:
            return all(len(pods(cluster, component(name))) == 1 for name in ACCOUNTS)

        wait_until(alone, within=60.0, what="one replica of each is left")
        rolled_out(cluster)
        running.wait(10, within=30.0)
    assert (running.row.refused, running.row.lost) == (0, 0)


def test_profiles_for_other_products_are_installed_upgraded_and_removed(
    cluster: Cluster, facts: Facts, triggers: Streams, clean: set[str]
) -> None:
    profiles = ("tenants", "monitoring", "cert-manager")
    cluster.kubectl("apply", "--server-side", "-f", STANDINS)
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", STANDINS)
    apply(cluster, "default")
    rolled_out(cluster)
    applied(cluster, POLICY)
    ready(cluster)
    with triggers("three more profiles") as running:
        upgrade_through(cluster, facts, profiles, running, "kyverno")
    assert (running.row.refused, running.row.lost) == (0, 0)
    cluster.kubectl("delete", "cpol", "--all")
    remove(cluster, profiles)
    cluster.kubectl("delete", "-f", STANDINS)
    wait_until(
        lambda: outside(cluster) <= clean, within=60.0, what="only what was there before is left"
    )


def test_overlays_beside_kyverno_are_installed_upgraded_and_removed(
    cluster: Cluster, facts: Facts, triggers: Streams
) -> None:
    profiles = ("tenants", "monitoring", "cert-manager", "high-availability", "single-replica")
    cluster.kubectl("apply", "--server-side", "-f", STANDINS)
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", STANDINS)
    apply(cluster, "default")
    rolled_out(cluster)
    applied(cluster, POLICY)
    ready(cluster)
    overlays = ("beside-kyverno", *(f"{profile}-beside" for profile in profiles))
    with triggers("overlays beside it", 2.0) as running:
        upgrade_through(cluster, facts, overlays, running, BESIDE.namespace)
    assert (running.row.refused, running.row.lost) == (0, 0)
    cluster.kubectl("delete", "cpol", "--all")
    remove(cluster, overlays)
    apply(cluster, "default")
    cluster.kubectl("delete", "-f", STANDINS)


def test_a_chart_beside_kyverno_is_installed_upgraded_and_uninstalled(
    cluster: Cluster, facts: Facts, triggers: Streams, tmp_path: Path
) -> None:
    program = locate_helm(os.environ)
    if program is None:
        pytest.skip("no Helm on this machine: run `make helm`")
    folders = {f"HELM_{name}_HOME": str(tmp_path / name) for name in ("CONFIG", "CACHE", "DATA")}

    def helm(*words: str) -> None:
        done = subprocess.run(
            [program, *words, f"--kubeconfig={cluster.kubeconfig}"],
            env={**os.environ, **folders},
            capture_output=True,
            text=True,
            timeout=ROLLOUT,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    apply(cluster, "default")
    rolled_out(cluster)
    applied(cluster, POLICY)
    ready(cluster)
    values = ("--set=besideKyverno=true", "--set=ui=true", "--wait", "--timeout=3m")
    helm("install", *RELEASE, str(CHART), "--create-namespace", *values)
    role, moved = (migrated(text) for text in (ROLE, policy(slice(1))))
    cluster.kubectl("apply", "-f", "-", stdin=role.replace("e2e:stream", "e2e:beside"))
    # A mark other than that of the installation in the place of a Kyverno.
    applied(cluster, moved.replace(MARK, "example.com/beside"))
    ready(cluster, "rcpol/stream")
    marks = frozenset({MARK, ADMITTED, "example.com/beside"})
    with triggers("chart beside it upgraded", 2.0, marks) as running:
        running.wait(10, within=30.0)
        single = f"--values={CHART}/profiles/single-replica.yaml"
        tag = facts.upgrade.rpartition(":")[2]
        helm("upgrade", *RELEASE, str(CHART), *values, single, f"--set=image.tag={tag}")
        running.wait(10, within=30.0)
    assert (running.row.refused, running.row.lost) == (0, 0)

    def shown() -> bool:
        found = pods(cluster, "app.kubernetes.io/component=ui", BESIDE.namespace)
        if len(found) != 1:
            return False
        try:
            board = json.loads(cluster.kubectl("get", "--raw", PAGE.format(*found)))
        except ClusterError:
            return False
        policies = [item["policy"] for item in board["policies"]]
        return policies == ["stream"] and board["leader"]["fresh"]

    # The upgrade ended the Pod that held the Lease, so a new leader is needed first.
    wait_until(shown, within=60.0, what="the page shows the policy and who leads")
    cluster.kubectl("delete", "rcpol", "--all")
    helm("uninstall", *RELEASE, "--wait")
    cluster.kubectl("delete", "namespace", BESIDE.namespace, within=ROLLOUT)
    cluster.kubectl("delete", "-k", str(ROOT / "crds/beside"), within=ROLLOUT)
    with triggers("the other one is uninstalled") as running:
        running.wait(5, within=30.0)
    assert (running.row.refused, running.row.lost) == (0, 0)


def migrated(text: str) -> str:
    program = str(Path(sys.executable).with_name("retrofit"))
    done = subprocess.run(
        [program, "migrate", "-"], input=text, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_uninstalling_leaves_only_what_was_there_before(cluster: Cluster, clean: set[str]) -> None:
    run_commands(cluster, UNINSTALL, "1. Delete the policies")
    run_commands(cluster, UNINSTALL, "2. Delete the installation")
    cluster.kubectl("delete", "clusterrole", "e2e:stream", "e2e:beside", "--ignore-not-found")
    wait_until(
        lambda: outside(cluster) <= clean, within=60.0, what="only what was there before is left"
    )
