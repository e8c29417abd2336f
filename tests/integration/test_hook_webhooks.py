"""Hooks behind webhooks, in a process with only the rights of its ServiceAccount."""

import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from devcluster.cluster import Cluster
from devcluster.parts import HOST, free_ports
from reconciler.errors import ClusterError
from tests.architecture.conftest import ROOT
from tests.integration.test_hook_executables import Runner, ready, runner
from tests.linux import linux

__all__ = ["runner"]

pytestmark = [linux, pytest.mark.cluster]

VALIDATING = """#!/bin/bash
if [[ $1 == "--config" ]] ; then
  cat <<EOF
configVersion: v1
kubernetes:
- name: limits
  kind: ConfigMap
  nameSelector: {matchNames: [limits]}
  namespace: {nameSelector: {matchNames: [NAMESPACE-asked]}}
  executeHookOnSynchronization: false
  executeHookOnEvent: []
kubernetesValidating:
- name: FAILURE.NAMESPACE.example.com
  failurePolicy: FAILURE_POLICY
  includeSnapshotsFrom: [limits]
  timeoutSeconds: 5
  labelSelector: {matchLabels: {hook: "yes"}}
  namespace: {labelSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE-asked}}}
  rules:
  - {apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE, UPDATE]}
EOF
  exit
fi
field() { jq -r "$1" "$BINDING_CONTEXT_PATH"; }
word=$(field '.[0].review.request.object.data.word')
limit=$(field '.[0].snapshots.limits[0].object.data.longest // "none"')
case $word in
  crash) echo "token=abc" >&2; exit 3 ;;
  silent) exit 0 ;;
  cut) echo '{"allowed": tr' > "$VALIDATING_RESPONSE_PATH"; exit 0 ;;
  slow) sleep 60 ;;
esac
if [[ $limit != none && ${#word} -gt $limit ]]; then
  echo '{"allowed": false, "message": "'"$word"' is longer than '"$limit"'"}'
else
  echo '{"allowed": true, "warnings": ["'"$word"' was looked at"]}'
fi > "$VALIDATING_RESPONSE_PATH"
"""
MUTATING = """#!/bin/bash
if [[ $1 == "--config" ]] ; then
  cat <<EOF
configVersion: v1
kubernetesMutating:
- name: team.NAMESPACE.example.com
  namespace: {labelSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE-asked}}}
  rules:
  - {apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}
  matchConditions: [{name: wants, expression: "'wants' in object.data"}]
EOF
  exit
fi
patch=$(jq -c '[{op: "add", path: "/data/team", value: .[0].review.request.object.data.wants}]' \\
  "$BINDING_CONTEXT_PATH" | base64 -w0)
echo '{"allowed": true, "patch": "'"$patch"'"}' > "$ADMISSION_RESPONSE_PATH"
"""
CONVERTING = """#!/bin/bash
if [[ $1 == "--config" ]] ; then
  cat <<EOF
configVersion: v1
kubernetesCustomResourceConversion:
- name: up
  crdName: crontabs.NAMESPACE.example.com
  conversions:
  - {fromVersion: v1alpha1, toVersion: v1beta1}
  - {fromVersion: v1beta1, toVersion: v1}
  - {fromVersion: v1, toVersion: v1alpha1}
EOF
  exit
fi
step=$(jq -r '.[0] | .fromVersion + " " + .toVersion' "$BINDING_CONTEXT_PATH")
case $step in
  "v1alpha1 v1beta1") change='.spec.cron = (.spec.cron | join(" "))' ;;
  "v1beta1 v1") change='.spec.schedule = .spec.cron | del(.spec.cron)' ;;
  "v1 v1alpha1") change='.spec.cron = (.spec.schedule | split(" ")) | del(.spec.schedule)' ;;
esac
broken='.[0].review.request.objects | any(.spec.broken)'
if [[ $(jq "$broken" "$BINDING_CONTEXT_PATH") == true ]]; then
  echo '{"failedMessage": "it is broken"}' > "$CONVERSION_RESPONSE_PATH"; exit
fi
jq "{convertedObjects: [.[0].review.request.objects[] | $change
  | .apiVersion = \\"NAMESPACE.example.com/${step#* }\\"]}" \\
  "$BINDING_CONTEXT_PATH" > "$CONVERSION_RESPONSE_PATH"
"""


class Asked:
    """The hooks program with its webhooks, and a namespace for the objects under review."""

    def __init__(self, runner: Runner) -> None:
        self.runner, self.cluster = runner, runner.cluster
        self.namespace = f"{runner.namespace}-asked"
        self.name = f"{runner.namespace}-webhooks"
        self.admission, self.conversion = free_ports(2)

    def start(self) -> None:
        self.runner.start(
            f"--validating-webhook-configuration-name={self.name}",
            f"--validating-webhook-listen-address={HOST}",
            f"--validating-webhook-listen-port={self.admission}",
            f"--validating-webhook-url=https://{HOST}:{self.admission}",
            f"--conversion-webhook-listen-address={HOST}",
            f"--conversion-webhook-listen-port={self.conversion}",
            f"--conversion-webhook-url=https://{HOST}:{self.conversion}",
        )

    def ready(self, *names: str) -> None:
        def all_are() -> bool:
            return all(ready(self.runner.hook(name)) == "True" for name in names)

        self.runner.settle(all_are, "the hooks are Ready")

    def put(self, word: str, *, name: str = "it", **data: str) -> str:
        """Create a ConfigMap with kubectl, and return the output or the error."""
        obj = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": self.namespace, "labels": {"hook": "yes"}},
            "data": {"word": word, **data},
        }
        return self.warn("create", "--warnings-as-errors", "-f", "-", stdin=json.dumps(obj))

    def warn(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl, and return its output, or the error if it fails."""
        try:
            return self.cluster.kubectl(*words, stdin=stdin)
        except ClusterError as error:
            return str(error)

    def words(self) -> set[str]:
        """Return the words in the stored ConfigMaps."""
        said = self.warn("get", "configmaps", "-n", self.namespace, "-l", "hook", "-o", "json")
        return {item["data"]["word"] for item in json.loads(said)["items"]}

    def configuration(self, kind: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(
                self.cluster.kubectl("get", kind, self.name, "-o", "json")
            )
        except ClusterError:
            return {}
        return found


@pytest.fixture
def asked(runner: Runner) -> Iterator[Asked]:
    cluster, own = runner.cluster, runner.namespace
    made = Asked(runner)
    cluster.kubectl("create", "namespace", made.namespace)
    rights = (ROOT / "manifests/hooks/webhooks/webhooks.yaml").read_text()
    # Two programs in one cluster need configurations with different names.
    rights = rights.replace("shell-operator-hooks", made.name)
    cluster.kubectl("apply", "-n", own, "-f", "-", stdin=rights)
    bind(cluster, own, made.name)
    yield made
    runner.stop()
    for kind in ("validating", "mutating"):
        name = f"{kind}webhookconfiguration/{made.name}"
        cluster.kubectl("delete", name, "--ignore-not-found")


def bind(cluster: Cluster, namespace: str, role: str) -> None:
    account = f"--serviceaccount={namespace}:retrofit-hooks"
    words = (f"{role}-hooks", f"--clusterrole={role}", account)
    cluster.kubectl("create", "clusterrolebinding", *words)


def validating(failure: str) -> str:
    return VALIDATING.replace("FAILURE_POLICY", failure).replace("FAILURE", failure.lower())


def test_a_validating_hook_allows_and_refuses_objects(asked: Asked) -> None:
    asked.runner.put("fail.sh", validating("Fail"))
    asked.start()
    asked.ready("fail.sh")
    assert "Warning: short was looked at" in asked.put("short", name="a")
    asked.cluster.kubectl(
        "create", "configmap", "limits", "-n", asked.namespace, "--from-literal=longest=6"
    )
    asked.runner.settle(lambda: "is longer than 6" in asked.put("quite-long"), "the snapshot came")
    said = asked.put("quite-long")
    name = f"fail.{asked.runner.namespace}.example.com"
    assert f'admission webhook "{name}" denied the request: quite-long is longer than 6' in said

    # The caller sees why the hook failed, but nothing of its output.
    said = asked.put("crash")
    assert "hook fail.sh failed (exit 3)" in said
    assert "token" not in said
    assert asked.runner.said("hook failed", reason="exit 3: token=abc")
    assert "gave no valid answer: $VALIDATING_RESPONSE_PATH: is empty" in asked.put("silent")
    assert "gave no valid answer: $VALIDATING_RESPONSE_PATH: is not JSON" in asked.put("cut")
    assert "took longer than" in asked.put("slow")
    assert asked.words() == {"short"}
    # No call of a webhook is recorded as an UpdateRequest.
    assert asked.runner.get("updaterequests")["items"] == []


def test_a_failed_hook_under_ignore_only_warns_but_an_invalid_answer_refuses(asked: Asked) -> None:
    asked.runner.put("ignore.sh", validating("Ignore"))
    asked.start()
    asked.ready("ignore.sh")
    assert "Warning: not reviewed: hook ignore.sh failed (exit 3)" in asked.put("crash", name="a")
    assert "took longer than" in asked.put("slow", name="b")
    # The hook exits with 0 and writes no answer, which is not an approval.
    assert "gave no valid answer" in asked.put("silent", name="c")
    assert asked.words() == {"crash", "slow"}


def test_a_mutating_hook_changes_the_stored_object(asked: Asked) -> None:
    asked.runner.put("team.sh", MUTATING)
    asked.start()
    asked.ready("team.sh")
    assert "created" in asked.put("x", wants="blue")
    found = json.loads(asked.warn("get", "configmap", "it", "-n", asked.namespace, "-o", "json"))
    assert found["data"] == {"word": "x", "wants": "blue", "team": "blue"}


def test_configurations_are_restored_and_removed_with_their_hooks(asked: Asked) -> None:
    asked.runner.put("fail.sh", validating("Fail"))
    asked.runner.put("team.sh", MUTATING)
    asked.start()
    asked.ready("fail.sh", "team.sh")
    kind = "validatingwebhookconfiguration"
    before = asked.configuration(kind)["webhooks"]
    exclusion = before[0]["namespaceSelector"]["matchExpressions"][0]
    assert {"kube-system", asked.runner.namespace} <= set(exclusion["values"])
    asked.cluster.kubectl("delete", kind, asked.name)
    asked.runner.settle(lambda: bool(asked.configuration(kind)), "it is there again")
    edit = json.dumps({"webhooks": []})
    asked.cluster.kubectl("patch", kind, asked.name, "--type=merge", "-p", edit)
    asked.runner.settle(
        lambda: asked.configuration(kind).get("webhooks") == before, "it is as it was"
    )
    asked.runner.stop(signal.SIGKILL)
    asked.runner.put("fail.sh", "#!/bin/sh\nexit 1\n")
    asked.start()
    asked.runner.settle(
        lambda: ready(asked.runner.hook("fail.sh")) == "False", "the executable is refused"
    )
    asked.ready("team.sh")
    assert "failed calling webhook" in asked.put("short")
    asked.runner.stop(signal.SIGKILL)
    (asked.runner.hooks / "fail.sh").unlink()
    asked.start()
    asked.runner.settle(lambda: not asked.configuration(kind), "it is gone")
    asked.ready("team.sh")
    assert asked.configuration("mutatingwebhookconfiguration")


def test_leases_are_stored_while_a_hook_on_all_resources_is_down(asked: Asked) -> None:
    everything = validating("Fail").replace('apiGroups: [""]', 'apiGroups: ["*"]')
    everything = everything.replace("resources: [configmaps]", "resources: ['*']")
    everything = everything.replace('  labelSelector: {matchLabels: {hook: "yes"}}\n', "")
    asked.runner.put("fail.sh", everything)
    asked.start()
    asked.ready("fail.sh")
    asked.runner.stop(signal.SIGKILL)
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "node", "namespace": asked.namespace},
        "spec": {"holderIdentity": "node"},
    }
    assert "failed calling webhook" in asked.put("short")
    assert "created" in asked.warn("create", "-f", "-", stdin=json.dumps(lease))


def test_a_webhook_that_the_api_server_refuses_does_not_block_others(asked: Asked) -> None:
    asked.runner.put("fail.sh", validating("Fail"))
    asked.runner.put(
        "bad.sh",
        validating("Ignore").replace(
            "  timeoutSeconds",
            '  matchConditions: [{name: bad, expression: "(("}]\n  timeoutSeconds',
        ),
    )
    asked.start()
    asked.ready("fail.sh")

    def refused() -> bool:
        hook = asked.runner.hook("bad.sh")
        return ready(hook) == "False" and "the API server refuses it" in hook["status"]["message"]

    asked.runner.settle(refused, "the other one says why")
    assert "is longer" not in asked.put("fine")


BAD = '[{name: bad, expression: "(("}]'
CRONTABS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: crontabs.NAMESPACE.example.com}
spec:
  group: NAMESPACE.example.com
  scope: Namespaced
  names: {kind: CronTab, listKind: CronTabList, plural: crontabs, singular: crontab}
  versions:
    - {name: v1alpha1, served: true, storage: false, schema: &any {openAPIV3Schema: &open
        {type: object, x-kubernetes-preserve-unknown-fields: true}}}
    - {name: v1beta1, served: true, storage: false, schema: *any}
    - {name: v1, served: true, storage: true, schema: *any}
"""


def test_a_hook_converts_objects_along_the_shortest_path(asked: Asked) -> None:
    own = asked.runner.namespace
    group, definition = f"{own}.example.com", f"crontabs.{own}.example.com"
    asked.cluster.kubectl("apply", "-f", "-", stdin=CRONTABS.replace("NAMESPACE", own))
    asked.cluster.kubectl(
        "create", "clusterrole", f"{own}-crd", "--verb=get,patch",
        "--resource=customresourcedefinitions", f"--resource-name={definition}",
    )  # fmt: skip
    bind(asked.cluster, own, f"{own}-crd")
    asked.runner.put("convert.sh", CONVERTING)
    asked.start()
    asked.ready("convert.sh")

    def make(name: str, **spec: object) -> str:
        obj = {
            "apiVersion": f"{group}/v1alpha1",
            "kind": "CronTab",
            "metadata": {"name": name, "namespace": asked.namespace},
            "spec": spec,
        }
        return asked.warn("create", "-f", "-", stdin=json.dumps(obj))

    def read(name: str, version: str) -> dict[str, Any]:
        resource = f"crontabs.{version}.{group}/{name}"
        found = json.loads(asked.warn("get", resource, "-n", asked.namespace, "-o", "json"))
        spec: dict[str, Any] = found["spec"]
        return spec

    asked.runner.settle(lambda: "created" in make("a", cron=["*", "5"]), "it is converted")
    assert read("a", "v1") == {"schedule": "* 5"}
    assert read("a", "v1alpha1") == {"cron": ["*", "5"]}
    assert read("a", "v1beta1") == {"cron": "* 5"}
    assert "it is broken" in make("b", broken=True, cron=[])
    asked.cluster.kubectl("delete", "crd", definition)
