"""The CRDs on a real API server: no written field is lost, and invalid objects are refused."""

import copy
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.cluster import Cluster
from devcluster.waiting import wait_until
from reconciler.cli.lint.schema import crd_findings
from reconciler.errors import ClusterError

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
CRDS = ROOT / "crds"
CONFORMANCE = Path(os.environ.get("CONFORMANCE_DATA", ROOT.parent / "shared" / "conformance"))
NAMES = (
    *("clusterpolicies", "policies", "updaterequests", "policyexceptions"),
    "globalcontextentries",
)
STORED = {
    ("kyverno.io/v1", "ClusterPolicy"),
    ("kyverno.io/v2beta1", "ClusterPolicy"),
    ("kyverno.io/v1", "Policy"),
    ("kyverno.io/v2beta1", "Policy"),
    ("kyverno.io/v2", "PolicyException"),
    ("kyverno.io/v2beta1", "PolicyException"),
}
RULE = {
    "name": "stamp",
    "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
    "mutate": {
        "targets": [{"apiVersion": "v1", "kind": "Secret", "namespace": "a", "name": "b"}],
        "patchStrategicMerge": {"metadata": {"labels": {"stamped": "yes"}}},
    },
}


def read_crd(name: str) -> Any:
    return yaml.safe_load((CRDS / f"{name}.yaml").read_text())


def spec_schema(name: str, version: str) -> Any:
    versions = {item["name"]: item for item in read_crd(name)["spec"]["versions"]}
    return versions[version]["schema"]["openAPIV3Schema"]["properties"]["spec"]


def policy(**fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "stamp-secrets"},
        "spec": {"rules": [RULE]} | fields,
    }


def rule(**fields: Any) -> dict[str, Any]:
    return policy(rules=[RULE | fields])


def exception(version: str) -> dict[str, Any]:
    return {
        "apiVersion": f"kyverno.io/{version}",
        "kind": "PolicyException",
        "metadata": {"name": "legacy", "namespace": "default"},
        "spec": {
            "background": False,
            "match": {"all": [{"resources": {"kinds": ["ConfigMap"], "names": ["legacy-*"]}}]},
            "conditions": {"any": [{"key": "{{ a }}", "operator": "AnyIn", "value": [1, "2"]}]},
            "exceptions": [{"policyName": "stamp-secrets", "ruleNames": ["sta*"], "later": 1}],
            "podSecurity": [{"controlName": "Capabilities", "images": ["nginx*"]}],
            "later": {"kept": True},
        },
    }


def entry(version: str = "v2", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"kyverno.io/{version}",
        "kind": "GlobalContextEntry",
        "metadata": {"name": "teams"},
        "spec": spec,
    }


def request(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kyverno.io/v2",
        "kind": "UpdateRequest",
        "metadata": {"name": name},
        "spec": {
            "requestType": "mutate",
            "policy": "staging/stamp-secrets",
            "policyRef": {
                "apiVersion": "kyverno.io/v1",
                "kind": "Policy",
                "namespace": "staging",
                "name": "stamp-secrets",
            },
            "rule": "stamp",
            "resource": {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "namespace": "staging",
                "name": "settings",
                "uid": "0f1d",
            },
            "context": {
                "userInfo": {"userInfo": {"username": "ann", "extra": {"scopes": ["x"]}}},
                "admissionRequestInfo": {
                    "operation": "UPDATE",
                    "admissionRequest": {"kind": {"kind": "ConfigMap"}, "dryRun": False},
                },
            },
            "source": "admission",
            "trigger": {"resourceVersion": "12", "digest": "abc", "terminating": True},
            "policyUID": "77aa",
            "policyGeneration": 4,
            "sequence": 3,
            "recorded": {"oldObject": {"data": {"color": "red", "sizes": [1, {"b": None}]}}},
        }
        | fields,
    }


def lost(written: Any, stored: Any, path: str = "") -> list[str]:
    """Return the paths of written values that are not stored; the server may add fields."""
    if isinstance(written, dict) and isinstance(stored, dict):
        return [
            found
            for key, value in written.items()
            for found in (
                lost(value, stored[key], f"{path}.{key}") if key in stored else [f"{path}.{key}"]
            )
        ]
    if isinstance(written, list) and isinstance(stored, list) and len(written) == len(stored):
        pairs = enumerate(zip(written, stored, strict=True))
        return [found for n, (a, b) in pairs for found in lost(a, b, f"{path}[{n}]")]
    return [] if written == stored else [path]


def read_back(cluster: Cluster, *objects: dict[str, Any]) -> list[Any]:
    """Return the objects as the API server would store them, in the same order."""
    text = "\n---\n".join(json.dumps(item) for item in objects)
    out = cluster.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=text)
    # kubectl prints one JSON document per object, one after the other.
    decoder, found = json.JSONDecoder(), list[Any]()
    while out := out.lstrip():
        value, end = decoder.raw_decode(out)
        found.append(value)
        out = out[end:]
    return found


@pytest.fixture(scope="module")
def cluster(installed_cluster: Cluster) -> Cluster:
    return installed_cluster


@dataclass(frozen=True)
class Requests:
    """One unprocessed and one completed UpdateRequest, in a namespace of their own."""

    cluster: Cluster
    namespace: str

    def kubectl(self, *args: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl(*args, "-n", self.namespace, stdin=stdin)

    def patch_status(self, name: str, status: dict[str, Any]) -> None:
        patch = json.dumps({"status": status})
        self.kubectl("patch", "ur", name, "--subresource=status", "--type=merge", "-p", patch)

    def patch_spec(self, patch: dict[str, Any]) -> None:
        self.kubectl(
            "patch", "ur", "ur-waiting", "--type=merge", "-p", json.dumps({"spec": patch})
        )


@pytest.fixture(scope="module")
def requests(cluster: Cluster, module_namespace: str) -> Requests:
    """UpdateRequests for tests that do not change them."""
    return create_requests(cluster, module_namespace)


@pytest.fixture
def own_requests(cluster: Cluster, namespace: str) -> Requests:
    """UpdateRequests for a test that changes them."""
    return create_requests(cluster, namespace)


def create_requests(cluster: Cluster, namespace: str) -> Requests:
    requests = Requests(cluster, namespace)
    for item in (request("ur-waiting"), request("ur-done", rule="other")):
        requests.kubectl("create", "-f", "-", stdin=json.dumps(item))
    status = {
        "state": "Completed",
        "message": "3 of 4 secrets patched",
        "attempts": 2,
        "nextAttemptTime": "2031-01-01T00:00:00Z",
        "summary": "3/4",
        "removeAfter": "2031-01-01T00:10Z",
    }
    requests.patch_status("ur-done", status)
    return requests


@pytest.mark.parametrize("name", NAMES)
def test_schema_is_structural(cluster: Cluster, name: str) -> None:
    crd = json.loads(cluster.kubectl("get", "crd", f"{name}.kyverno.io", "-o", "json"))
    conditions = {item["type"]: item["status"] for item in crd["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}


def test_cluster_wide_and_namespaced_policies_have_one_schema() -> None:
    cluster_wide, namespaced = read_crd("clusterpolicies"), read_crd("policies")
    assert cluster_wide["spec"]["versions"] == namespaced["spec"]["versions"]


@pytest.mark.parametrize(
    ("name", "versions"),
    [
        ("clusterpolicies", {"v1": True, "v2beta1": True}),
        ("policies", {"v1": True, "v2beta1": True}),
        ("updaterequests", {"v2": True, "v1beta1": False}),
        ("policyexceptions", {"v2": True, "v2beta1": True, "v2alpha1": False}),
        ("globalcontextentries", {"v2beta1": True, "v2": True, "v2alpha1": True}),
    ],
)
def test_versions_that_a_cluster_may_have_stored_are_kept(
    name: str, versions: dict[str, bool]
) -> None:
    spec = read_crd(name)["spec"]
    assert {item["name"]: item["served"] for item in spec["versions"]} == versions
    assert [item["name"] for item in spec["versions"] if item["storage"]] == [next(iter(versions))]


def test_every_policy_of_the_suite_is_stored_without_loss(cluster: Cluster) -> None:
    if not CONFORMANCE.is_dir():
        absent = pytest.fail if os.environ.get("CONFORMANCE_REQUIRED") == "1" else pytest.skip
        absent(f"no conformance data at {CONFORMANCE}: set CONFORMANCE_DATA to its folder")
    found, written = [], []
    for file in sorted(CONFORMANCE.rglob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            if not isinstance(document, dict) or not (document.get("spec") or {}).get("rules"):
                continue
            if (document.get("apiVersion"), document.get("kind")) in STORED:
                found.append(file)
                written.append(copy.deepcopy(document))
    assert len(found) > 100
    for number, item in enumerate(written):
        item.pop("status", None)  # written through its own subresource
        item["metadata"] |= {"name": f"case-{number}", "namespace": "default"}
        if item["kind"] == "ClusterPolicy":
            del item["metadata"]["namespace"]
    stored = read_back(cluster, *written)
    losses = {
        str(file): missing
        for file, a, b in zip(found, written, stored, strict=True)
        if (missing := lost(a, b))
    }
    assert losses == {}


@pytest.mark.parametrize("kind", ["ClusterPolicy", "Policy"])
@pytest.mark.parametrize("version", ["v1", "v2beta1"])
def test_unknown_fields_are_kept_for_the_webhook_to_refuse(
    cluster: Cluster, kind: str, version: str
) -> None:
    unknown = {"surprise": {"deep": [1, {"er": None}]}}
    entry = {
        "name": "entry",
        "variable": {"value": 1} | unknown,
        "apiCall": {"urlPath": "/", "service": {"url": "u"} | unknown} | unknown,
        "configMap": {"name": "c"} | unknown,
    } | unknown
    selector = {"matchLabels": {"a": "b"}} | unknown
    resources = {"kinds": ["Pod"], "selector": selector, "namespaceSelector": selector} | unknown
    block = {"any": [{"resources": resources} | unknown]} | unknown
    target = {"kind": "Pod", "selector": selector, "context": [entry]} | unknown
    each = {"list": "a", "context": [entry], "foreach": [{"list": "b"} | unknown]} | unknown
    mutate = {"targets": [target], "foreach": [each]} | unknown
    written = policy(
        rules=[
            {
                "name": "r",
                "match": block,
                "exclude": block,
                "context": [entry],
                "preconditions": {"any": []} | unknown,
                "mutate": mutate,
                "validate": unknown,
                "generate": unknown,
                "verifyImages": [unknown],
            }
            | unknown
        ],
        webhookConfiguration={"timeoutSeconds": 5} | unknown,
        **unknown,
    )
    written |= {"apiVersion": f"kyverno.io/{version}", "kind": kind}
    if kind == "Policy":
        written["metadata"] = {"name": "p", "namespace": "default"}
    [stored] = read_back(cluster, written)
    assert lost(written, stored) == []


@pytest.mark.parametrize("version", ["v2", "v2beta1"])
def test_exceptions_are_stored_without_loss(cluster: Cluster, version: str) -> None:
    [stored] = read_back(cluster, exception(version))
    assert lost(exception(version), stored) == []


@pytest.mark.parametrize("version", ["v2", "v2beta1", "v2alpha1"])
def test_entries_are_stored_without_loss_in_every_version(cluster: Cluster, version: str) -> None:
    header = {"key": "k", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    service = {"url": "https://teams.platform.svc/", "caBundleFrom": {"a": 1}, "headers": [header]}
    call = {
        "service": service,
        "method": "POST",
        "data": [{"key": "of", "value": {"deep": [1, None]}}],
        "refreshInterval": "30s",
        "retryLimit": 5,
        "later": 1,
    }
    projections = [{"name": "names", "jmesPath": "[].name", "later": 1}]
    written = entry(version, apiCall=call, projections=projections, later={"kept": True})
    resource = entry(version, kubernetesResource={"version": "v1", "resource": "pods", "later": 1})
    for item in (written, resource):
        [stored] = read_back(cluster, item)
        assert lost(item, stored) == []


def test_an_entry_has_the_defaults_of_the_reference(cluster: Cluster) -> None:
    [stored] = read_back(cluster, entry(apiCall={"urlPath": "/version"}))
    call = stored["spec"]["apiCall"]
    assert (call["method"], call["refreshInterval"], call["retryLimit"]) == ("GET", "10m", 3)


def test_kubectl_shows_the_columns_of_an_entry(cluster: Cluster) -> None:
    made = entry("v2alpha1", apiCall={"urlPath": "/version", "refreshInterval": "30s"})
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(made))
    ready = {"type": "Ready", "status": "False", "reason": "Failed", "message": "no_answer"}
    patch = json.dumps({"status": {"conditions": [ready]}})
    how = ("--subresource=status", "--type=merge", "-p", patch)
    cluster.kubectl("patch", "gctxentry", "teams", *how)
    try:
        wide = cluster.kubectl("get", "gctxentry", "teams", "-o", "wide").splitlines()
        by_category = cluster.kubectl("get", "kyverno", "-A")
    finally:
        cluster.kubectl("delete", "gctxentry", "teams")
    assert wide[0].split() == [
        "NAME",
        "READY",
        "REFRESH",
        "INTERVAL",
        "LAST",
        "REFRESH",
        "AGE",
        "MESSAGE",
    ]
    assert wide[1].split()[:3] == ["teams", "False", "30s"]
    assert wide[1].endswith("no_answer")
    assert "globalcontextentry.kyverno.io/teams" in by_category


def test_requests_are_stored_without_loss(cluster: Cluster) -> None:
    written = request("ur-whole", recordedSecret="ur-whole-recorded", sweep={"over": ["a"]})
    [stored] = read_back(cluster, written)
    assert lost(written, stored) == []


def test_absent_admission_and_background_fields_are_stored_as_true(cluster: Cluster) -> None:
    [stored] = read_back(cluster, policy())
    assert stored["spec"]["admission"] is True
    assert stored["spec"]["background"] is True


@pytest.mark.parametrize("kind", ["ClusterPolicy", "Policy"])
def test_applied_rules_are_stored_unchanged_and_applying_again_is_a_no_op(
    cluster: Cluster, namespace: str, kind: str
) -> None:
    call = {"name": "c", "apiCall": {"urlPath": "/version"}}
    written = policy(rules=[RULE | {"context": [call]}])
    written["kind"] = kind
    if kind == "Policy":
        written["metadata"]["namespace"] = namespace
    versions = []
    try:
        for _ in range(2):
            text = json.dumps(written)
            how = ("--server-side", "--field-manager=gitops", "-o", "json", "-f", "-")
            stored = json.loads(cluster.kubectl("apply", *how, stdin=text))
            versions.append(stored["metadata"]["resourceVersion"])
            assert stored["spec"]["rules"] == written["spec"]["rules"]
        assert versions[0] == versions[1]
    finally:
        cluster.kubectl(
            "delete", kind, "stamp-secrets", *(("-n", namespace) if kind == "Policy" else ())
        )


def test_kubectl_explains_the_fields_of_a_status(cluster: Cluster) -> None:
    def explained() -> str:
        return cluster.kubectl("explain", "ur.status.targets.outcome")

    wait_until(lambda: "How the work on the target ended" in explained(), within=30.0, what="docs")
    assert "<empty>" not in cluster.kubectl("explain", "cpol")


@pytest.mark.parametrize(
    ("written", "where"),
    [
        (policy(applyRules="Some"), "spec.applyRules"),
        (policy(webhookTimeoutSeconds=31), "spec.webhookTimeoutSeconds"),
        (policy(webhookConfiguration={"failurePolicy": "Maybe"}), "failurePolicy"),
        (rule(name="r" * 64), "spec.rules[0].name"),
        (rule(match={"any": [], "all": []}), "spec.rules[0].match"),
        (rule(exclude={"any": [], "all": []}), "spec.rules[0].exclude"),
        (rule(match={"any": [{"resources": {"operations": ["PATCH"]}}]}), "operations[0]"),
        (rule(context=[{"variable": {"value": 1}}]), "spec.rules[0].context[0].name"),
        (rule(mutate={"targets": {}}), "spec.rules[0].mutate.targets"),
        (rule(mutate={"patchesJson6902": []}), "spec.rules[0].mutate.patchesJson6902"),
        (rule(mutate={"foreach": [{"order": "Sideways"}]}), "foreach[0].order"),
        ({**policy(), "spec": None}, "spec"),
        (entry(), "exactly one of kubernetesResource and apiCall"),
        (entry(apiCall={}, kubernetesResource={}), "exactly one of kubernetesResource"),
        (entry(apiCall={"retryLimit": 0}), "spec.apiCall.retryLimit"),
    ],
    ids=lambda value: value.replace("spec.", "") if isinstance(value, str) else "",
)
def test_a_value_of_the_wrong_shape_is_refused_with_its_path(
    cluster: Cluster, written: dict[str, Any], where: str
) -> None:
    with pytest.raises(ClusterError) as refused:
        read_back(cluster, written)
    assert where in str(refused.value)


def test_kubectl_shows_the_columns_of_a_policy(cluster: Cluster) -> None:
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(policy(failurePolicy="Fail")))
    ready = {"type": "Ready", "status": "True", "reason": "Succeeded", "message": "in_force"}
    status = {
        "conditions": [ready],
        "rulecount": {"validate": 0, "mutate": 1, "generate": 2, "verifyimages": 3},
        "phases": ["admission", "triggered"],
        "mutateExisting": {
            "pending": 4,
            "patched": 5,
            "failed": 6,
            "triggers": 7,
            "unchanged": 8,
            "lastError": "none",
            "lastRun": "2026-01-01T00:00:00Z",
            "message": "4_wait",
        },
    }
    patch = json.dumps({"status": status})
    how = ("--subresource=status", "--type=merge", "-p", patch)
    cluster.kubectl("patch", "cpol", "stamp-secrets", *how)
    try:
        short = cluster.kubectl("get", "cpol", "stamp-secrets").splitlines()
        wide = cluster.kubectl("get", "cpol", "stamp-secrets", "-o", "wide").splitlines()
        by_category = cluster.kubectl("get", "kyverno", "-A")
    finally:
        cluster.kubectl("delete", "cpol", "stamp-secrets")
    assert short[0].split() == [
        "NAME",
        "READY",
        "REASON",
        "PENDING",
        "PATCHED",
        "FAILED",
        "AGE",
    ]
    assert short[1].split()[:-1] == ["stamp-secrets", "True", "Succeeded", *"456"]
    header = (
        "FAILURE POLICY VALIDATE MUTATE GENERATE VERIFY IMAGES ADMISSION BACKGROUND PHASES MESSAGE"
        " TRIGGERS UNCHANGED LAST RUN OUTCOME"
    )
    assert wide[0].split()[7:] == header.split()
    *shown, last_run, outcome = wide[1].split()[7:]
    assert shown == [
        "Fail",
        *"0123",
        "true",
        "true",
        '["admission","triggered"]',
        "in_force",
        *"78",
    ]
    assert last_run.endswith("d")
    assert outcome == "4_wait"
    assert "stamp-secrets" in by_category


def test_the_default_columns_of_a_request_fit_into_a_terminal(
    cluster: Cluster, namespace: str
) -> None:
    name = f"ur-{'0' * 32}"
    made = request(name)
    made["metadata"]["namespace"] = namespace
    made["spec"]["policy"] = "reload-on-cm"
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(made))
    status = json.dumps({"status": {"state": "Completed", "summary": "1000/1000"}})
    how = ("-n", namespace, "--subresource=status", "--type=merge", "-p", status)
    cluster.kubectl("patch", "ur", name, *how)
    shown = cluster.kubectl("get", "ur", "-n", namespace)
    assert name in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_kubectl_shows_the_columns_of_a_request(requests: Requests) -> None:
    done, waiting = requests.kubectl("get", "ur").splitlines()[1:]
    header = requests.kubectl("get", "ur").splitlines()[0]
    assert header.split() == ["NAME", "POLICY", "STATE", "PATCHED", "AGE"]
    assert done.split()[:-1] == ["ur-done", "staging/stamp-secrets", "Completed", "3/4"]
    # No program has written its status, whose default state is Pending.
    assert waiting.split()[-2] == "Pending"
    wide = requests.kubectl("get", "ur", "-o", "wide").splitlines()
    for title in ("RULE", "TRIGGER KIND", "TRIGGER NAMESPACE", "PROGRESS", "MESSAGE", "ATTEMPTS"):
        assert title in wide[0]
    assert {"other", "ConfigMap", "settings"} <= set(wide[1].split())
    assert "3 of 4 secrets patched" in wide[1]
    assert wide[1].endswith("2031-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("status.state!=Completed", "updaterequest.kyverno.io/ur-waiting"),
        ("status.state=Pending", "updaterequest.kyverno.io/ur-waiting"),
        ("status.state=Completed", "updaterequest.kyverno.io/ur-done"),
        ("status.removeAfter=2031-01-01T00:10Z", "updaterequest.kyverno.io/ur-done"),
        ("spec.policy=staging/stamp-secrets,spec.rule=other", "updaterequest.kyverno.io/ur-done"),
        ("spec.source=catchUp", ""),
    ],
)
def test_requests_are_selected_by_field(requests: Requests, selector: str, names: str) -> None:
    selected = ("--field-selector", selector, "-o", "name")
    assert requests.kubectl("get", "ur", *selected).strip() == names


def test_finished_requests_are_removed_in_one_call(own_requests: Requests) -> None:
    selector = "fieldSelector=status.removeAfter%3D2031-01-01T00:10Z"
    path = f"/apis/kyverno.io/v2/namespaces/{own_requests.namespace}/updaterequests?{selector}"
    own_requests.kubectl("delete", "--raw", path)
    left = own_requests.kubectl("get", "ur", "-o", "name")
    assert left.strip() == "updaterequest.kyverno.io/ur-waiting"


@pytest.mark.parametrize(
    "patch",
    [
        {"policy": "other"},
        {"rule": "other"},
        {"requestType": "generate"},
        {"resource": {"uid": "other"}},
        {"source": "manual"},
        {"source": None},
        {"context": {"userInfo": {"userInfo": {"username": "eve"}}}},
        {"context": {"admissionRequestInfo": {"admissionRequest": {"dryRun": True}}}},
        {"trigger": {"digest": "other"}},
        {"policyRef": {"kind": "Other"}},
        {"policyRef": None},
        {"policyUID": "other"},
        {"policyGeneration": 5},
        {"recorded": {"oldObject": {"data": {"sizes": [1, {"b": 2}]}}}},
        {"recorded": None},
        {"recordedSecret": "other"},
        {"sweep": {}},
    ],
    ids=str,
)
def test_the_spec_of_a_request_cannot_be_changed(
    requests: Requests, patch: dict[str, Any]
) -> None:
    with pytest.raises(ClusterError, match="the spec of an UpdateRequest cannot be changed"):
        requests.patch_spec(patch)


def test_the_sequence_of_a_request_only_grows(own_requests: Requests) -> None:
    own_requests.patch_spec({"sequence": 4})
    for lower in (3, None):
        with pytest.raises(ClusterError, match="sequence only grows"):
            own_requests.patch_spec({"sequence": lower})


def test_every_field_of_a_request_spec_but_the_sequence_is_immutable() -> None:
    spec = spec_schema("updaterequests", "v2")
    fields = set(spec["properties"]) - {"sequence"}
    compared = {
        name
        for name, schema in spec["properties"].items()
        if {"self == oldSelf"} == {r["rule"] for r in schema.get("x-kubernetes-validations", [])}
    }
    assert compared == fields
    presence = spec["x-kubernetes-validations"][0]["rule"].split(" && ")
    optional = fields - set(spec["required"])
    assert set(presence) == {f"has(self.{name}) == has(oldSelf.{name})" for name in optional}


def test_a_request_spec_without_a_required_field_is_refused(cluster: Cluster) -> None:
    for name in ("requestType", "policy", "rule", "resource"):
        written = request("ur-part")
        del written["spec"][name]
        with pytest.raises(ClusterError, match=name):
            read_back(cluster, written)
    with pytest.raises(ClusterError, match=r"needs spec\.policy and spec\.rule"):
        read_back(cluster, request("ur-part", rule=""))


def test_a_status_with_an_unknown_state_is_refused(own_requests: Requests) -> None:
    with pytest.raises(ClusterError, match=r"status\.state"):
        own_requests.patch_status("ur-waiting", {"state": "Done"})
    own_requests.patch_status("ur-waiting", {"state": ""})


def _put(obj: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(obj)
    *steps, last = path.split(".")
    inner: Any = changed
    for step in steps:
        inner = inner[int(step)] if isinstance(inner, list) else inner.setdefault(step, {})
    inner[last] = value
    return changed


@pytest.mark.parametrize(
    ("obj", "path", "value"),
    [
        (policy(), "spec.background", "yes"),
        (policy(), "spec.background", None),
        (policy(), "spec.applyRules", "Two"),
        (policy(), "spec.webhookConfiguration.timeoutSeconds", 31),
        (policy(), "spec.webhookConfiguration.timeoutSeconds", 2.5),
        (policy(), "spec.webhookConfiguration.matchConditions", [{"name": "a"}]),
        (policy(), "spec.rules", {}),
        (policy(), "spec.rules", None),
        (policy(), "spec.rules.0.name", 5),
        (policy(), "spec.rules.0.mutate.targets", "all"),
        (policy(), "spec.rules.0.mutate.patchesJson6902", []),
        (policy(), "spec.rules.0.skipBackgroundRequests", "no"),
        (policy(), "spec.rules.0.anything", {"is": "kept"}),
        (policy(), "anything", 1),
        (policy(), "spec", None),
        (exception("v2"), "spec.background", 1),
        (exception("v2"), "spec.exceptions", [{"policyName": 1}]),
        (exception("v2"), "spec.match", None),
        (entry(kubernetesResource={"version": "v1", "resource": "pods"}), "spec.projections", {}),
        (entry(kubernetesResource={"version": "v1", "resource": "pods"}), "spec.other", 1),
        (entry(kubernetesResource={"version": "v1"}), "spec.kubernetesResource.group", None),
    ],
)
def test_lint_refuses_the_same_objects_by_the_crds_as_the_api_server(
    cluster: Cluster, obj: dict[str, Any], path: str, value: Any
) -> None:
    changed = _put(obj, path, value)
    found = list(crd_findings(changed))
    refused = ""
    try:
        cluster.kubectl(
            *("create", "--dry-run=server", "--validate=strict", "-f", "-"),
            stdin=json.dumps(changed),
        )
    except ClusterError as error:
        refused = str(error)
    assert bool(found) == bool(refused), (found, refused)
