"""`retrofit-hooks` as a process: its hooks have only the rights of its ServiceAccount."""

import json
import os
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from devcluster.cluster import Cluster
from devcluster.parts import HOST, free_ports
from devcluster.waiting import wait_until
from reconciler.cli.main import retrofit
from reconciler.errors import ClusterError
from reconciler.installation import BESIDE
from tests.architecture.conftest import ROOT
from tests.attacks.test_deep_objects import definition
from tests.faults.rig import SHORT_LEASE
from tests.linux import linux

pytestmark = linux

PODS = """#!/usr/bin/env bash
if [[ $1 == "--config" ]] ; then
  cat <<EOF
configVersion: v1
kubernetes:
- apiVersion: v1
  kind: Pod
  executeHookOnEvent: ["Added"]
EOF
else
  jq -r '.[] | if .type == "Event" then "Pod \\(.object.metadata.name) added"
         else "\\(.objects | length) Pods found" end' "$BINDING_CONTEXT_PATH"
fi
"""
LABELS = """#!/usr/bin/env bash
if [[ $1 == "--config" ]] ; then
  cat <<EOF
configVersion: v1
kubernetes:
- name: labels
  kind: namespace
  jqFilter: .metadata.labels
  executeHookOnSynchronization: false
  executeHookOnEvent: [Modified]
  queue: labels
  labelSelector: {matchLabels: {watched: NAMESPACE}}
EOF
else
  name=$(jq -r .[0].object.metadata.name "$BINDING_CONTEXT_PATH")
  colour=$(jq -r .[0].filterResult.colour "$BINDING_CONTEXT_PATH")
  echo "{\\"name\\": \\"changed\\", \\"add\\": 1}" > "$METRICS_PATH"
  cat > "$KUBERNETES_PATCH_PATH" <<EOF
operation: CreateOrUpdate
object:
  apiVersion: v1
  kind: ConfigMap
  metadata: {name: seen, namespace: NAMESPACE}
  data: {$name: "$colour"}
EOF
fi
"""
CLOCK = """#!/bin/sh
if [ "$1" = --config ]; then
  echo '{"configVersion": "v1",'
  echo ' "schedule": [{"name": "tick", "crontab": "* * * * * *", "queue": "clock"}]}'
else
  kubectl get pods -n NAMESPACE -o name > "$TMPDIR/pods" || exit 1
  echo "ticked with $(wc -l < "$TMPDIR/pods") Pods"
fi
"""
BROKEN = """#!/bin/sh
echo 'configVersion: v1'
echo 'kubernetes: [{kind: Pod, jqFilter: ".a["}]'
"""
COPIES = """#!/bin/bash
if [[ $1 == "--config" ]] ; then
  cat <<EOF
configVersion: v1
kubernetes:
- name: sources
  kind: ConfigMap
  labelSelector: {matchLabels: {copied: "yes"}}
  namespace: {nameSelector: {matchNames: [NAMESPACE]}}
  executeHookOnSynchronization: false
  executeHookOnEvent: [Added, Deleted]
EOF
else
  program='.[] | (if .watchEvent == "Added" then "copy-" else "gone-" end + .object.metadata.name)
    | {operation: "Create", object: {apiVersion: "v1", kind: "ConfigMap",
       metadata: {name: ., namespace: "NAMESPACE"}}}'
  jq -c "$program" "$BINDING_CONTEXT_PATH" > "$KUBERNETES_PATCH_PATH"
fi
"""
WAITS = """#!/bin/bash
if [[ $1 == "--config" ]] ; then
  cat <<EOF
configVersion: v1
kubernetes:
- name: sources
  kind: ConfigMap
  labelSelector: {matchLabels: {copied: "yes"}}
  namespace: {nameSelector: {matchNames: [NAMESPACE]}}
  executeHookOnSynchronization: false
  executeHookOnEvent: [Added]
EOF
else
  kubectl get configmap cured -n NAMESPACE > /dev/null || exit 3
  echo '{operation: CreateIfNotExists, object: {apiVersion: v1, kind: ConfigMap,
    metadata: {name: done, namespace: NAMESPACE}}}' > "$KUBERNETES_PATCH_PATH"
fi
"""
FAILS = """#!/bin/sh
if [ "$1" = --config ]; then
  echo '{"configVersion": "v1", "onStartup": 1}'
else
  echo '{"operation": "MergePatch", "kind": "ConfigMap", "namespace": "NAMESPACE",
    "name": "missing", "mergePatch": {"data": {"a": "b"}}}' > "$KUBERNETES_PATCH_PATH"
fi
"""
GADGETS = """#!/bin/sh
if [ "$1" = --config ]; then
  echo '{"configVersion": "v1", "kubernetes": [{"name": "gadgets", "apiVersion": "GROUP/v1",
    "kind": "Gadget", "namespace": {"nameSelector": {"matchNames": ["NAMESPACE"]}}}]}'
fi
"""
RIGHTS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NAMESPACE}
rules:
- {apiGroups: [""], resources: [pods, namespaces, configmaps], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [configmaps], verbs: [create, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NAMESPACE}
subjects: [{kind: ServiceAccount, name: retrofit-hooks, namespace: NAMESPACE}]
"""


class Runner:
    """The hooks program with the hooks of one test, in a namespace of its own."""

    def __init__(self, cluster: Cluster, namespace: str, folder: Path) -> None:
        self.cluster, self.namespace = cluster, namespace
        self.hooks = folder / "hooks"
        self._folder = folder
        self._starts = 0
        (self.port,) = free_ports(1)
        self.process: subprocess.Popen[bytes] | None = None

    def put(self, name: str, text: str) -> None:
        path = self.hooks / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("NAMESPACE", self.namespace))
        path.chmod(0o755)

    def start(self, *flags: str) -> None:
        account = self.cluster.service_account_kubeconfig(self.namespace, "retrofit-hooks")
        self._starts += 1
        command = [
            str(Path(sys.executable).with_name("retrofit-hooks")),
            "start",
            f"--hooks-dir={self.hooks}",
            f"--tmp-dir={self._folder / 'tmp'}",
            f"--kube-config={account}",
            f"--namespace={self.namespace}",
            f"--listen-address={HOST}",
            f"--listen-port={self.port}",
            "--log-type=json",
            *flags,
        ]
        environment = {**os.environ, "KUBECONFIG": str(account)}
        with self._log().open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def _log(self) -> Path:
        return self._folder / f"log-{self._starts}"

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process is None:
            return 0
        self.process.send_signal(number)
        code = self.process.wait(20)
        self.process = None
        if number == signal.SIGKILL:
            # Otherwise the next process would wait 15 seconds for the Lease to expire.
            self.cluster.kubectl("delete", "lease", "kube-retrofit-hooks", "-n", self.namespace)
        return code

    def lines(self) -> list[dict[str, Any]]:
        found = self._log().read_text().splitlines()
        return [json.loads(line) for line in found if line.startswith("{")]

    def said(self, text: str, **fields: str) -> bool:
        return any(
            line["message"] == text and fields.items() <= line.items() for line in self.lines()
        )

    def page(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{HOST}:{self.port}{path}", timeout=5) as answer:
            return str(answer.read().decode())

    def get(self, kind: str, name: str = "") -> dict[str, Any]:
        words = [kind, *([name] if name else []), "-n", self.namespace, "-o", "json"]
        found: dict[str, Any] = json.loads(self.cluster.kubectl("get", *words))
        return found

    def hook(self, name: str) -> dict[str, Any]:
        try:
            return self.get("hooks", name)
        except ClusterError:
            return {}

    def settle(self, condition: Any, what: str) -> None:
        try:
            wait_until(condition, within=40.0, what=what)
        except Exception:
            sys.stderr.write(self._log().read_text()[-6000:])
            words = ["get", "hooks,updaterequests", "-n", self.namespace, "-o", "yaml"]
            sys.stderr.write(self.cluster.kubectl(*words))
            raise

    def make_sources(self, numbers: range) -> None:
        meta = {"namespace": self.namespace, "labels": {"copied": "yes"}}
        made = [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {**meta, "name": f"source-{number}"},
            }
            for number in numbers
        ]
        self.cluster.kubectl("create", "-f", "-", stdin=json.dumps(_list(made)))

    def maps(self) -> set[str]:
        return {item["metadata"]["name"] for item in self.get("configmaps")["items"]}

    def make_pod(self, name: str) -> None:
        self.cluster.kubectl("run", name, "--image=none", "-n", self.namespace, "--restart=Never")


def _list(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": items}


def ready(hook: dict[str, Any]) -> str:
    conditions = hook.get("status", {}).get("conditions", [])
    return next((item["status"] for item in conditions if item["type"] == "Ready"), "")


@pytest.fixture
def runner(
    installed_cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Runner]:
    """The hooks program with its rights; a parameter selects another folder of manifests."""
    cluster, namespace = installed_cluster, f"hooks-{uuid.uuid4().hex[:8]}"
    cluster.kubectl("apply", "-k", str(ROOT / "crds/hooks"))
    cluster.kubectl("create", "namespace", namespace)
    cluster.kubectl("wait", "--for=create", "serviceaccount/default", "-n", namespace)
    rights = ROOT / "manifests" / getattr(request, "param", "hooks") / "rbac.yaml"
    cluster.kubectl("apply", "-n", namespace, "-f", str(rights))
    cluster.kubectl("apply", "-f", "-", stdin=RIGHTS.replace("NAMESPACE", namespace))
    made = Runner(cluster, namespace, tmp_path)
    made.hooks.mkdir()
    yield made
    made.stop()


def test_the_hooks_of_an_image_run_with_their_own_rights(runner: Runner) -> None:
    runner.put("pods-hook.sh", PODS)
    runner.put("002/labels.sh", LABELS)
    runner.put("clock.sh", CLOCK)
    runner.put("broken.sh", BROKEN)
    runner.start()
    runner.settle(lambda: ready(runner.hook("pods-hook.sh")) == "True", "the hook is Ready")
    runner.make_pod("web")
    fields = {"hook": "pods-hook.sh", "binding": "kubernetes", "output": "stdout"}
    runner.settle(lambda: runner.said("Pod web added", **fields), "the hook saw the Pod")

    name = f"{runner.namespace}-watched"
    runner.cluster.kubectl("create", "namespace", name)
    runner.cluster.kubectl("label", "namespace", name, f"watched={runner.namespace}")
    runner.cluster.kubectl("label", "namespace", name, "colour=red")
    runner.settle(lambda: seen(runner) == {name: "red"}, "the label arrived in the ConfigMap")

    # kubectl in a hook has the rights of the program's account.
    runner.settle(lambda: runner.said("ticked with 1 Pods", hook="clock.sh"), "the clock ticks")

    broken = runner.hook("broken.sh")
    assert ready(broken) == "False"
    assert "kubernetes[0].jqFilter" in broken["status"]["message"]
    assert runner.hook("002.labels.sh")["spec"]["executable"] == "002/labels.sh"

    assert 'changed{hook="002/labels.sh"}' in runner.page("/metrics/hooks")
    metrics = runner.page("/metrics")
    assert 'shell_operator_hook_run_success_total{binding="labels"' in metrics
    assert "shell_operator_live_ticks" in metrics
    assert runner.page("/readyz").endswith("ready\n")
    assert runner.stop() == 0


def seen(runner: Runner) -> dict[str, str]:
    try:
        found: dict[str, str] = runner.get("configmap", "seen")["data"]
    except ClusterError:
        return {}
    return found


def test_a_failed_operation_is_logged_and_counted_as_a_failure_of_its_hook(runner: Runner) -> None:
    runner.put("fails.sh", FAILS)
    runner.start()
    labels = {"hook": "fails.sh", "binding": "onStartup", "queue": "main"}
    runner.settle(lambda: runner.said("hook failed", **labels), "the failure is in the log")
    (line,) = [line for line in runner.lines() if line["message"] == "hook failed"][:1]
    assert 'configmaps "missing" not found' in line["reason"]
    metrics = runner.page("/metrics")
    shown = ",".join(f'{name}="{value}"' for name, value in sorted(labels.items()))
    assert f"shell_operator_hook_run_errors_total{{{shown}}} " in metrics
    assert f"shell_operator_hook_run_success_total{{{shown}}} " not in metrics


def test_a_killed_program_neither_loses_nor_doubles_events(runner: Runner) -> None:
    runner.put("copies.sh", COPIES)
    runner.start(*SHORT_LEASE)
    runner.settle(lambda: ready(runner.hook("copies.sh")) == "True", "the hook is Ready")
    for part in range(2):
        runner.make_sources(range(part * 10, part * 10 + 10))
        if part:
            wanted = f"copy-source-{part * 10}"
            runner.settle(lambda wanted=wanted: wanted in runner.maps(), "the hook is at work")
        runner.stop(signal.SIGKILL)
        if part:
            runner.cluster.kubectl("delete", "configmap", f"source-{part}", "-n", runner.namespace)
        runner.start(*SHORT_LEASE)
    answers = {f"copy-source-{number}" for number in range(20)} | {"gone-source-1"}
    runner.settle(lambda: answers <= runner.maps(), "every event was answered")
    assert {name for name in runner.maps() if name.startswith(("copy-", "gone-"))} == answers
    runner.settle(lambda: runner.hook("copies.sh")["status"]["waiting"] == 0, "nothing waits")
    runner.settle(lambda: not runner.hook("copies.sh")["status"]["message"], "it is at work again")


def test_metrics_are_read_only_with_the_metrics_role(runner: Runner) -> None:
    own, cluster = runner.namespace, runner.cluster
    rights = ("create", "clusterrolebinding", f"{own}-metrics")
    account = f"--serviceaccount={own}:retrofit-hooks"
    cluster.kubectl(*rights, "--clusterrole=system:auth-delegator", account)
    cluster.kubectl("create", "clusterrole", f"{own}-reads", "--verb=get",
                    "--non-resource-url=/metrics")  # fmt: skip
    for name in ("reader", "stranger"):
        cluster.kubectl("create", "serviceaccount", name, "-n", own)
    reader = f"--serviceaccount={own}:reader"
    cluster.kubectl(
        "create", "clusterrolebinding", f"{own}-reads", f"--clusterrole={own}-reads", reader
    )
    (port,) = free_ports(1)
    runner.put("pods-hook.sh", PODS)
    runner.start(f"--secure-metrics-port={port}")
    runner.settle(lambda: ready(runner.hook("pods-hook.sh")) == "True", "the hook is Ready")
    insecure = ssl.create_default_context()
    insecure.check_hostname, insecure.verify_mode = False, ssl.CERT_NONE

    def status(address: str, token: str) -> int:
        header = {"Authorization": f"Bearer {token}"}
        asked = urllib.request.Request(address, headers=header)
        try:
            with urllib.request.urlopen(asked, context=insecure, timeout=10.0) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as refused:
            return refused.code

    tokens = [
        "nobody",
        *(cluster.kubectl("create", "token", name, "-n", own).strip()
          for name in ("stranger", "reader")),
    ]  # fmt: skip
    for path in ("/metrics", "/metrics/hooks"):
        secure = f"https://{HOST}:{port}{path}"
        assert [status(secure, token) for token in tokens] == [401, 403, 200]
        # The port without TLS refuses even the token that has the right.
        assert status(f"http://{HOST}:{runner.port}{path}", tokens[-1]) == 403
    assert runner.page("/readyz").endswith("ready\n")


def retry(runner: Runner, *words: str) -> str:
    """Run `retrofit retry`, and return its output."""
    address = ("--kubeconfig", str(runner.cluster.kubeconfig))
    where = ("--requests-namespace", runner.namespace)
    done = CliRunner().invoke(retrofit, ["retry", *words, *where, *address])
    assert done.exit_code == 0, done.stderr + done.stdout
    return done.stdout


def test_retry_runs_a_blocked_queue_before_its_next_scheduled_attempt(runner: Runner) -> None:
    runner.put("waits.sh", WAITS)
    runner.start()
    runner.settle(lambda: ready(runner.hook("waits.sh")) == "True", "the hook is Ready")
    runner.make_sources(range(1))
    runner.settle(lambda: runner.hook("waits.sh")["status"]["runs"] >= 3, "the pause is long")
    (waiting,) = runner.get("updaterequests")["items"]
    runner.cluster.kubectl("create", "configmap", "cured", "-n", runner.namespace)
    said = retry(runner, waiting["metadata"]["name"])
    assert "tried at once: 1 waiting request" in said
    runner.settle(lambda: "done" in runner.maps(), "the run went well")
    # The run came before the time of the scheduled attempt.
    (made,) = [
        item for item in runner.get("configmaps")["items"] if item["metadata"]["name"] == "done"
    ]
    assert made["metadata"]["creationTimestamp"] < waiting["status"]["nextAttemptTime"]
    runner.settle(lambda: not runner.hook("waits.sh")["status"]["message"], "nothing is held up")


def test_requests_of_a_refused_executable_wait_until_it_is_accepted_again(runner: Runner) -> None:
    runner.put("waits.sh", WAITS)
    runner.start()
    runner.settle(lambda: ready(runner.hook("waits.sh")) == "True", "the hook is Ready")
    runner.make_sources(range(1))
    runner.settle(lambda: runner.hook("waits.sh")["status"]["failed"] >= 1, "a run failed")
    runner.stop()

    runner.cluster.kubectl("create", "configmap", "cured", "-n", runner.namespace)
    runner.put("waits.sh", BROKEN)
    runner.put("copies.sh", COPIES)
    runner.start()
    runner.settle(lambda: ready(runner.hook("waits.sh")) == "False", "the hook is refused")
    runner.settle(lambda: ready(runner.hook("copies.sh")) == "True", "the other hook is Ready")
    runner.make_sources(range(1, 2))
    behind = f"waits behind Hook {runner.namespace}/waits.sh: it is invalid, or"
    runner.settle(
        lambda: runner.hook("copies.sh")["status"]["message"].startswith(behind),
        "the other hook says what it waits for",
    )
    runner.stop()

    # A volume with the wrong mode is no reason to give up its work either.
    (runner.hooks / "waits.sh").chmod(0o644)
    runner.start()
    said = "it is not executable; chmod +x makes it a hook"
    runner.settle(lambda: runner.hook("waits.sh")["status"]["message"] == said, "it is said")
    runner.stop()

    runner.put("waits.sh", WAITS)
    runner.start()
    runner.settle(lambda: {"done", "copy-source-1"} <= runner.maps(), "both hooks ran")


@pytest.fixture
def gadgets(runner: Runner) -> Iterator[str]:
    """The API group of a kind without a schema, which the program may read."""
    group, role = f"{runner.namespace}.example", f"{runner.namespace}-gadgets"
    kubectl = runner.cluster.kubectl
    kubectl("create", "-f", "-", stdin=json.dumps(definition(group)))
    kubectl("wait", "--for=condition=Established", f"crd/gadgets.{group}")
    reads = ("--verb=list,watch", f"--resource=gadgets.{group}")
    kubectl("create", "role", role, "-n", runner.namespace, *reads)
    account = f"--serviceaccount={runner.namespace}:retrofit-hooks"
    kubectl("create", "rolebinding", role, "-n", runner.namespace, f"--role={role}", account)
    yield group
    runner.stop()
    kubectl("delete", "crd", f"gadgets.{group}", "--wait=false")


def test_an_object_that_is_nested_too_deeply_is_named_in_the_log(
    runner: Runner, gadgets: str
) -> None:
    runner.put("gadgets.sh", GADGETS.replace("GROUP", gadgets))
    runner.start()
    runner.settle(lambda: ready(runner.hook("gadgets.sh")) == "True", "the hook is Ready")
    meta = {"name": "evil", "namespace": runner.namespace}
    made = {"apiVersion": f"{gadgets}/v1", "kind": "Gadget", "metadata": meta, "spec": "DEEP"}
    text = json.dumps(made).replace('"DEEP"', '{"a":' * 3000 + "1" + "}" * 3000)
    runner.cluster.kubectl("create", "--validate=false", "-f", "-", stdin=text)
    said = f"the event of {runner.namespace}/evil is left out, because it is nested too deeply"
    runner.settle(
        lambda: any(said in line["message"] for line in runner.lines()), "the object is named"
    )


@pytest.fixture
def other_group(installed_cluster: Cluster) -> Iterator[None]:
    """The CRDs of the installation beside a Kyverno."""
    folder = str(ROOT / "crds/beside")
    installed_cluster.kubectl("apply", "-k", folder)
    yield
    installed_cluster.kubectl("delete", "-k", folder, "--wait=false")


@pytest.mark.usefixtures("other_group")
@pytest.mark.parametrize("runner", ["hooks-beside"], indirect=True)
def test_beside_a_kyverno_hooks_create_requests_of_their_own_group(runner: Runner) -> None:
    runner.put("copies.sh", COPIES)
    runner.start(f"--policy-group={BESIDE.group}")
    runner.settle(lambda: ready(runner.hook("copies.sh")) == "True", "the hook is Ready")
    runner.make_sources(range(2))
    answers = {"copy-source-0", "copy-source-1"}
    runner.settle(lambda: answers <= runner.maps(), "every event was answered")
    assert runner.get("retrofitupdaterequests")["items"]
    assert not runner.get("updaterequests.kyverno.io")["items"]
    assert runner.stop() == 0


STARTS = """#!/bin/sh
if [ "$1" = --config ]; then
  echo '{"configVersion": "v1", "onStartup": ORDER, "kubernetes": [{"kind": "Pod",
    "namespace": {"nameSelector": {"matchNames": ["NAMESPACE"]}}}]}'
else
  echo "runs for $(jq -r '.[0] | .type // .binding' "$BINDING_CONTEXT_PATH")"
fi
"""


def test_hooks_run_at_the_start_by_number_then_by_path(runner: Runner) -> None:
    starts = ["third.sh", "folder/hook.sh", "B.sh", "a.sh"]
    for name, order in zip(starts, (-1, 2, 10, 10), strict=True):
        runner.put(name, STARTS.replace("ORDER", str(order)))
    runner.start()

    def ran(context: str) -> list[str]:
        said = f"runs for {context}"
        return [line["hook"] for line in runner.lines() if line["message"] == said]

    runner.settle(lambda: len(ran("Synchronization")) == len(starts), "all hooks have run")
    assert ran("onStartup") == starts
    runs = [line["message"] for line in runner.lines() if line["message"].startswith("runs for")]
    assert runs == sorted(runs, key="runs for Synchronization".__eq__)
