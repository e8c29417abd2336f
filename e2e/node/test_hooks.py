"""Executables as hooks on a real node, installed as documented for shell-operator users."""

import json
import os
import shlex
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from devcluster.cluster import Cluster
from devcluster.waiting import wait_until
from e2e.node.images import ROOT
from e2e.node.machine import process_of
from e2e.node.pages import ANSWERS, HOOKS, blocks, hooks_overlay
from reconciler.errors import ClusterError

NAMESPACE = hooks_overlay()["namespace"]
HERE = ("-n", NAMESPACE)
EXAMPLE = "example-hooks"
"""The namespace in the page about answering the API server."""
ROLLOUT = 240.0
BUSYBOX = ("--image=busybox:1.35", "--restart=Never", "--", "sleep", "3600")

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def installed(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The image with hooks, installed with the commands of both pages and removed at the end."""
    folder = tmp_path_factory.mktemp("hooks").resolve()
    overlay = hooks_overlay()
    overlay["resources"] = [os.path.relpath(ROOT / item, folder) for item in overlay["resources"]]
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    answers = [text.replace(EXAMPLE, NAMESPACE) for text in blocks(ANSWERS, "Install", "sh")]
    steps = blocks(HOOKS, "3. Install it", "sh") + answers
    made = [
        [str(folder) if word == "." else word for word in shlex.split(line)[1:]]
        for line in "".join(steps).splitlines()
    ]
    for words in made:
        cluster.kubectl(*words)
    cluster.kubectl("rollout", "status", *HERE, "deployment/retrofit-hooks", within=ROLLOUT)
    yield
    cluster.kubectl("delete", "namespace", NAMESPACE, within=ROLLOUT)
    for words in made:
        if words[:2] in (["create", "clusterrole"], ["create", "clusterrolebinding"]):
            cluster.kubectl("delete", words[1], words[2])
    for words in reversed(made):
        if words[0] == "apply" and Path(words[-1]) != folder:
            cluster.kubectl("delete", "--ignore-not-found", *words[1:], within=ROLLOUT)


def said(cluster: Cluster, line: str) -> Callable[[], bool]:
    """Return a function that returns whether the log of the program's container has a line."""

    def is_there() -> bool:
        try:
            return line in cluster.kubectl("logs", *HERE, "deployment/retrofit-hooks")
        except ClusterError:
            # Between the end of one container and the start of the next, there is no log.
            return False

    return is_there


def container(cluster: Cluster) -> dict[str, object]:
    text = cluster.kubectl("get", "pods", *HERE, "-l", COMPONENT, "-o", "json")
    (pod,) = json.loads(text)["items"]
    (found,) = pod["status"]["containerStatuses"]
    return dict(found)


COMPONENT = "app.kubernetes.io/component=retrofit-hooks"


@pytest.mark.usefixtures("installed")
def test_a_hook_receives_the_event_of_a_pod(cluster: Cluster) -> None:
    ready = "jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}"
    wait_until(
        lambda: cluster.kubectl("get", "hooks", *HERE, "-o", ready).split() == ["True"] * 2,
        within=60.0,
        what="the hooks are Ready",
    )
    cluster.kubectl("run", "web", *HERE, *BUSYBOX)
    wait_until(said(cluster, "Pod web added"), within=30.0, what="the hook saw the Pod")


@pytest.mark.usefixtures("installed")
def test_the_api_server_calls_a_hook_that_refuses_an_object(cluster: Cluster) -> None:
    def put(name: str, word: str) -> str:
        obj = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "default", "labels": {"hook": "yes"}},
            "data": {"word": word},
        }
        try:
            return cluster.kubectl("create", "-f", "-", stdin=json.dumps(obj))
        except ClusterError as error:
            return str(error)

    def is_refused() -> bool:
        answer = put("blue", "green")
        assert "created" not in answer, "the hook is Ready, and nobody asked it"
        return "denied the request: it is to be called as its word" in answer

    # The node gets the endpoint of the Service a moment after the program is ready.
    wait_until(is_refused, within=30.0, what="the hook refuses what it is to refuse")
    assert "created" in put("blue", "blue")
    cluster.kubectl("delete", "configmap", "blue", "-n", "default")


@pytest.mark.usefixtures("installed")
def test_events_during_a_downtime_are_delivered_after_the_restart(cluster: Cluster) -> None:
    old = container(cluster)
    os.kill(process_of(str(old["containerID"]).rpartition("/")[2]), signal.SIGKILL)
    cluster.kubectl("run", "late", *HERE, *BUSYBOX)
    cluster.kubectl("delete", "pod", "web", *HERE, "--now", "--wait=false")
    for line in ("Pod late added", "Pod web deleted"):
        wait_until(said(cluster, line), within=90.0, what=f"a hook says: {line}")
    new = container(cluster)
    assert new["containerID"] != old["containerID"]
    # The earlier event was delivered before the kill and is not delivered again.
    assert not said(cluster, "Pod web added")()
