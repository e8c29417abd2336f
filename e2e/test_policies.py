"""A user applies a policy, changes an object, and reads the results."""

import pytest

from devcluster.waiting import wait_until
from e2e.person import WITHIN, Person
from reconciler.errors import ClusterError

RESTART = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: $ns-restart}
spec:
  rules:
    - name: restart
      match:
        any:
          - resources: {kinds: [ConfigMap], namespaces: [$ns], operations: [UPDATE]}
      mutate:
        targets:
          - apiVersion: apps/v1
            kind: Deployment
            namespace: "{{ request.namespace }}"
            preconditions:
              all:
                - key: "{{ request.object.metadata.name }}"
                  operator: AnyIn
                  value: "{{ target.spec.template.spec.volumes[].configMap.name || `[]` }}"
        patchesJson6902: |-
          - op: add
            path: /spec/template/metadata/annotations
            value: {seen: "{{ request.object.data.mood }}"}
"""

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME, namespace: $ns, labels: {app: NAME}}
spec:
  replicas: 0
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      containers: [{name: main, image: example.org/none}]
      volumes: VOLUMES
"""

LABEL = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: $ns-label}
spec:
  rules:
    - name: label
      match:
        any:
          - resources:
              kinds: [ConfigMap]
              namespaces: [$ns]
              selector: {matchLabels: {of: fleet}}
      mutate:
        mutateExistingOnPolicyUpdate: true
        targets:
          - apiVersion: v1
            kind: ConfigMap
            namespace: "{{ request.object.metadata.namespace }}"
            name: "{{ request.object.metadata.name }}"
        patchStrategicMerge: {metadata: {labels: {+(cost-center): "4711"}}}
"""

SUSPEND = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: $ns-suspend}
spec:
  rules:
    - name: suspend
      match:
        any:
          - resources: {kinds: [Namespace], names: [$ns], operations: [UPDATE]}
      mutate:
        targets:
          - apiVersion: autoscaling/v2
            kind: HorizontalPodAutoscaler
            namespace: "{{ request.object.metadata.name }}"
            name: web
        patchStrategicMerge: {spec: {maxReplicas: 7}}
"""

AUTOSCALER = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: $ns}
spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
"""

GRANT = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: $ns-autoscalers
  labels: {rbac.kyverno.io/aggregate-to-background-controller: "true"}
rules:
  - {apiGroups: [autoscaling], resources: [horizontalpodautoscalers], verbs: [update, patch]}
"""


def test_a_changed_config_map_restarts_only_deployments_that_mount_it(person: Person) -> None:
    person.kubectl(
        "create", "configmap", "mood", "-n", person.namespace, "--from-literal=mood=bad"
    )
    for name, volumes in {
        "mounts": "[{name: config, configMap: {name: mood}}]",
        "mounts-another": "[{name: config, configMap: {name: weather}}]",
        "mounts-none": "[]",
    }.items():
        person.apply(DEPLOYMENT.replace("NAME", name).replace("VOLUMES", volumes))
    policy = person.apply_policy(RESTART)
    change = '{"data":{"mood":"good"}}'
    person.kubectl("patch", "configmap", "mood", "-n", person.namespace, "-p", change)
    request = person.request(policy)
    row = person.row(request)
    assert (row["STATE"], row["PATCHED"], row["TRIGGER NAME"]) == ("Completed", "1/3", "mood")
    seen = {
        item["metadata"]["name"]: item["spec"]["template"]["metadata"].get("annotations")
        for item in person.get("deployments")["items"]
    }
    assert seen == {"mounts": {"seen": "good"}, "mounts-another": None, "mounts-none": None}


def test_a_policy_changes_existing_objects_and_later_ones(person: Person) -> None:
    names = [f"settings-{number:02}" for number in range(40)]
    labelled = _settings("has-one").replace("of: fleet", "of: fleet, cost-center: mine")
    person.apply("---\n".join([*map(_settings, names), labelled]))
    policy = person.apply_policy(LABEL)
    request = person.request(policy)
    assert person.row(request)["PATCHED"] == "41/41"
    assert request["status"]["counts"]["patched"] == 40
    assert _cost_centers(person) == dict.fromkeys(names, "4711") | {"has-one": "mine"}
    person.apply(_settings("late"))
    wait_until(
        lambda: _cost_centers(person).get("late") == "4711",
        within=WITHIN,
        what="a ConfigMap that came later has the label",
    )


def test_a_missing_right_is_named_and_its_grant_completes_the_request(person: Person) -> None:
    person.apply(AUTOSCALER)
    with pytest.raises(ClusterError, match="auth check fails") as refused:
        person.apply(SUSPEND)
    # The refusal contains a role that can be applied as it is.
    said = str(refused.value)
    role = said[said.index("apiVersion: rbac") :]
    person.apply(role)
    policy = _applied_soon(person, SUSPEND)
    person.forget(role)
    wait_until(lambda: not _may_scale(person), within=WITHIN, what="the right is gone")
    person.kubectl("label", "namespace", person.namespace, "season=sale")
    request = person.request(policy, lambda status: status.get("reason") == "Forbidden")
    row = person.row(request, "-o", "wide")
    grant = f"patch horizontalpodautoscalers.autoscaling in namespace {person.namespace}"
    assert row["STATE"] == "Pending"
    assert row["MESSAGE"].endswith(f"grant: {grant}")
    assert row["NEXT"]
    person.apply(GRANT)
    assert person.row(person.request(policy))["PATCHED"] == "1/1"
    assert person.get("hpa", "web")["spec"]["maxReplicas"] == 7


def test_a_dry_run_records_nothing(person: Person) -> None:
    person.apply(AUTOSCALER)
    person.apply(GRANT)
    policy = _applied_soon(person, SUSPEND)
    person.kubectl("label", "namespace", person.namespace, "season=sale", "--dry-run=server")
    person.kubectl("annotate", "namespace", person.namespace, "real=true")
    request = person.request(policy, lambda status: "state" in status)
    assert request["spec"]["context"]["admissionRequestInfo"]["operation"] == "UPDATE"


def test_an_invalid_policy_is_refused_with_the_location(person: Person) -> None:
    broken = RESTART.replace("operator: AnyIn", "operator: AnyOf")
    place = r"spec\.rules\[0\]\.mutate\.targets\[0\]\.preconditions\.all\[0\]\.operator"
    with pytest.raises(ClusterError, match=place):
        person.apply(broken)


def test_a_deleted_policy_no_longer_acts(person: Person) -> None:
    first = person.apply_policy(LABEL)
    person.request(first)
    person.kubectl("delete", "clusterpolicy", first)
    person.apply(_settings("late"))
    # The second one only adds labels that are missing: it would keep the label of the first.
    second = LABEL.replace("$ns-label", "$ns-second").replace("4711", "4712")
    person.request(person.apply_policy(second))
    assert _cost_centers(person) == {"late": "4712"}


def _may_scale(person: Person) -> bool:
    account = "--as=system:serviceaccount:kyverno:kyverno-background-controller"
    ask = ("auth", "can-i", "update", "horizontalpodautoscalers.autoscaling", account)
    try:
        return person.kubectl(*ask).strip() == "yes"
    except ClusterError:
        return False  # kubectl answers "no" with an exit code.


def _applied_soon(person: Person, policy: str) -> str:
    """Apply a policy with rights that were just granted; they take effect after a moment."""

    def accepted() -> str:
        try:
            return person.apply_policy(policy)
        except ClusterError as error:
            if "auth check fails" not in str(error):
                raise
            return ""

    return wait_until(accepted, within=WITHIN, what="the policy is accepted")


def _settings(name: str) -> str:
    meta = f"{{name: {name}, namespace: $ns, labels: {{of: fleet}}}}"
    return f"{{apiVersion: v1, kind: ConfigMap, metadata: {meta}}}\n"


def _cost_centers(person: Person) -> dict[str, str | None]:
    return {
        item["metadata"]["name"]: item["metadata"]["labels"].get("cost-center")
        for item in person.get("configmaps", "-l", "of=fleet")["items"]
    }
