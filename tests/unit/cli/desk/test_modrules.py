"""ModRules on the command line."""

import json

import pytest

from tests.unit.cli.desk.conftest import Desk
from tests.unit.dialects.kubemod.modrules import modrule

RULES = """
apiVersion: api.kubemod.io/v1beta1
kind: ModRule
metadata: {name: team, namespace: kubemod-system}
spec:
  type: Patch
  targetNamespaceRegex: ".*"
  match:
  - {select: $.kind, matchValue: Pod}
  - {select: $.syntheticRefs.namespace.metadata.labels.team}
  patch:
  - op: add
    path: /metadata/labels/team
    value: "{{ .Target.syntheticRefs.namespace.metadata.labels.team }}"
---
apiVersion: api.kubemod.io/v1beta1
kind: ModRule
metadata: {name: no-latest}
spec:
  type: Reject
  rejectMessage: "{{ .Target.metadata.name }} of {{ .Target.metadata.labels.team }}"
  match:
  - {select: $.kind, matchValue: Pod}
  - {select: '$.spec.containers[*].image', matchRegex: ":latest$"}
"""
ADD = {"op": "add", "path": "/metadata/labels/x", "value": "y"}
OBJECTS = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec: {containers: [{name: web, image: "web:latest"}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: default, labels: {team: blue}}
"""


@pytest.fixture
def rules(desk: Desk) -> Desk:
    desk.write("rules.yaml", RULES)
    desk.write("objects.yaml", OBJECTS)
    return desk


def test_apply_shows_the_change_and_the_rejection_of_the_changed_object(rules: Desk) -> None:
    done = rules.run("apply", "rules.yaml", "-r", "objects.yaml")
    assert done.exit_code == 1
    assert "kubemod-system/team / patch: Pod default/web" in done.stdout
    assert "+    team: blue" in done.stdout
    said = " ".join(done.stderr.split())
    assert 'rejected: Pod default/web: default/no-latest: "web of blue"' in said
    assert said.endswith("2 objects read as triggers pass: 1, fail: 1, warn: 0, error: 0, skip: 0")


def test_apply_succeeds_if_nothing_is_rejected(rules: Desk) -> None:
    rules.write("objects.yaml", OBJECTS.replace("web:latest", "web:1"))
    done = rules.run("apply", "rules.yaml", "-r", "objects.yaml")
    assert done.exit_code == 0
    assert "rejection" not in done.stderr


def test_a_reference_to_an_object_missing_from_the_files_is_an_error(rules: Desk) -> None:
    rules.write("objects.yaml", OBJECTS.partition("---")[0])
    done = rules.run("apply", "rules.yaml", "-r", "objects.yaml")
    assert done.exit_code == 1
    assert "syntheticRefs cannot be read: " in " ".join(done.stderr.split())


def test_explain_reports_that_a_request_is_refused(rules: Desk) -> None:
    done = rules.run("explain", "rules.yaml", "--trigger", "objects.yaml")
    assert 'the request is refused: default/no-latest: "web of ' in done.stdout
    assert "refuses what it fires for" in rules.run("explain", "rules.yaml").stdout


def test_a_test_can_expect_a_rejection(rules: Desk) -> None:
    entries = "\n".join(
        f"- {{policy: no-latest, rule: reject, kind: Pod, resources: [web], result: {wanted}}}"
        for wanted in ("fail", "pass")
    )
    rules.write(
        "kyverno-test.yaml",
        "apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\nmetadata: {name: t}\n"
        f"policies: [rules.yaml]\nresources: [objects.yaml]\nresults:\n{entries}\n",
    )
    done = rules.run("test", ".")
    assert done.exit_code == 1
    assert "1 passed, 1 failed" in done.stdout + done.stderr
    assert "Want pass, got fail" in done.stdout


def test_lint_names_the_place_in_the_file(rules: Desk) -> None:
    wrong = RULES.replace("matchRegex", "matchPattern").replace('":latest$"', '"x"')
    rules.write("rules.yaml", wrong)
    done = rules.run("lint", "rules.yaml")
    assert done.exit_code == 1
    assert "rules.yaml:24:44: error [invalid]" in done.stdout
    assert "unknown field 'matchPattern'" in done.stdout
    rules.write("rules.yaml", RULES)
    assert rules.run("lint", "--strict", "rules.yaml").exit_code == 0


ITEMS = """
apiVersion: api.kubemod.io/v1beta1
kind: ModRule
metadata: {name: items}
spec:
  type: Patch
  match:
  - {select: $.syntheticRefs.namespace.metadata.labels.team, matchValue: blue}
  - {select: '$.spec.containers[*].image', matchRegex: ":latest$", matchFor: All}
  - {select: '$.spec.containers[7].name', negate: true}
  - {select: $.metadata.labels.lost}
  - {select: 'length($.spec.containers) > 1'}
  patch:
  - {op: add, path: /metadata/labels/x, value: y}
"""


def test_explain_shows_every_item_with_its_value(rules: Desk) -> None:
    rules.write("items.yaml", ITEMS)
    said = rules.run("explain", "items.yaml", "--trigger", "objects.yaml").stdout.splitlines()
    start = next(index for index, line in enumerate(said) if "spec.match[0]" in line)
    assert " ".join(" ".join(said[start:]).split()).startswith(
        "yes spec.match[0]: $.syntheticRefs.namespace.metadata.labels.team"
        ' = "blue" (matchValue: blue)'
        ' yes spec.match[1]: $.spec.containers[*].image = ["web:latest"]'
        " (matchRegex: :latest$, matchFor: All)"
        " yes spec.match[2]: $.spec.containers[7].name fails: an index is out of range"
        " (negate: true)"
        ' no spec.match[3]: $.metadata.labels.lost = "<undefined>"'
        " no spec.match[4]: length($.spec.containers) > 1 = false"
        " no the rule does not fire: preconditions not met; spec.match[3] does not hold"
    )


def test_explain_says_that_a_rule_is_for_no_kind(desk: Desk) -> None:
    items = [{"select": "$.kind", "matchRegex": "^Widget$"}]
    desk.write("rule.yaml", json.dumps(modrule(type="Patch", match=items, patch=[ADD])))
    assert "may be fired by no kind" in desk.run("explain", "rule.yaml").stdout


def test_explain_writes_a_number_that_json_lacks_as_it_is_compared(desk: Desk) -> None:
    items = [
        {"select": "1/0", "matchValue": "+Inf"},
        {"select": '[{"a": -1/0}, 0/0, $.lost, $.metadata.labels.app, 1/2]'},
    ]
    rule = modrule(type="Patch", match=items, patch=[ADD], namespace="default")
    desk.write("rule.yaml", json.dumps(rule))
    pod, _, home = OBJECTS.partition("---")
    desk.write("pod.yaml", pod)
    desk.write("home.yaml", home)
    words = ["rule.yaml", "--trigger", "pod.yaml", "--target", "home.yaml"]
    shown = desk.run("explain", *words).stdout
    assert 'yes   spec.match[0]: 1/0 = "+Inf" (matchValue: +Inf)' in shown
    said = json.loads(desk.run("explain", *words, "-o", "json").stdout)
    notes = [note for note in said[0]["notes"][0]["notes"] if note["kind"] == "item"]
    assert [note["value"] for note in notes] == [
        "+Inf",
        [{"a": "-Inf"}, "NaN", "<undefined>", "web", 0.5],
    ]


def test_explain_hides_what_an_item_reads_or_computes_from_a_secret(desk: Desk) -> None:
    items = [
        {"select": "$.data.key"},
        {"select": '$.data.key + "!"'},
        {"select": "$.data.key + 1"},
        {"select": '$.data.key != "x"'},
    ]
    rule = modrule(type="Patch", match=items, patch=[ADD], namespace="default")
    desk.write("rule.yaml", json.dumps(rule))
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    desk.write("secret.yaml", json.dumps({**secret, "data": {"key": "MTIz"}}))
    desk.write("home.yaml", OBJECTS.partition("---")[2])
    words = ["rule.yaml", "--trigger", "secret.yaml", "--target", "home.yaml"]
    said = " ".join(desk.run("explain", *words).stdout.split())
    assert "MTIz" not in said
    assert 'spec.match[0]: $.data.key = "***" yes spec.match[1]' in said
    assert 'spec.match[1]: $.data.key + "!" = *** yes spec.match[2]' in said


OVERRIDE = """
apiVersion: policy.kcloudlabs.io/v1alpha1
kind: ClusterOverridePolicy
metadata: {name: override, annotations: {kube-retrofit.dev/objects: all}}
spec:
  resourceSelectors: [{apiVersion: v1, kind: Pod}]
  overrideRules:
  - overriders: {plaintext: [{op: add, path: /metadata/labels/x, value: last}]}
"""


def test_modrules_are_applied_before_policies_of_kinitiras_as_in_a_cluster(desk: Desk) -> None:
    rule = modrule(
        type="Patch",
        executionTier=5,
        match=[{"select": "$.kind", "matchValue": "Pod"}],
        patch=[{**ADD, "value": "first"}],
        namespace="default",
    )
    desk.write("rules.yaml", f"{OVERRIDE}---\n{json.dumps(rule)}")
    desk.write("objects.yaml", OBJECTS)
    done = desk.run("apply", "rules.yaml", "-r", "objects.yaml", "-o", "json")
    (pod,) = (item for item in json.loads(done.stdout)["items"] if item["kind"] == "Pod")
    assert pod["metadata"]["labels"] == {"app": "web", "x": "last"}
