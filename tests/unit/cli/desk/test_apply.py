"""`retrofit apply`."""

import json
from collections.abc import Callable
from pathlib import Path

import jsonpatch
import pytest
import yaml

from reconciler.cli.preview.policies import compile_found, read_files
from reconciler.dialects.registry import compile_policy
from tests.calls import counted
from tests.unit.cli.desk.conftest import Desk

Policy = Callable[..., str]

LABEL = """
- name: label
  match: {any: [{resources: {kinds: [ConfigMap]}}]}
  mutate: {patchStrategicMerge: {metadata: {labels: {seen: "{{ request.object.data.a }}"}}}}
"""
SECOND = """
- name: second
  match: {any: [{resources: {kinds: [ConfigMap]}}]}
  preconditions:
    all: [{key: "{{ request.object.metadata.labels.seen || '' }}", operator: Equals, value: b}]
  mutate:
    patchesJson6902: |-
      - op: add
        path: /metadata/labels/second
        value: "{{ request.object.metadata.labels.seen }}"
"""
SPREAD = """
- name: spread
  match: {any: [{resources: {kinds: [ConfigMap], names: [settings]}}]}
  mutate:
    targets:
    - apiVersion: v1
      kind: Secret
      namespace: "{{ request.namespace }}"
      selector: {matchLabels: {take: "yes"}}
    patchStrategicMerge: {metadata: {annotations: {mode: "{{ request.object.data.a }}"}}}
"""
OBJECT = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {a: b}\n"
EXCEPTION = """
apiVersion: kyverno.io/v2
kind: PolicyException
metadata: {name: e, namespace: default}
spec:
  match: {any: [{resources: {kinds: [ConfigMap], names: [two]}}]}
  exceptions: [{policyName: p, ruleNames: [label]}]
"""
SECRETS = """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Secret, metadata: {name: one, labels: {take: "yes"}}}
- {apiVersion: v1, kind: Secret, metadata: {name: two, labels: {take: "no"}}}
- {apiVersion: v1, kind: Secret, metadata: {name: three, namespace: other, labels: {take: "yes"}}}
"""


def test_apply_shows_a_diff_for_each_change(desk: Desk, policy: Policy) -> None:
    desk.write("cm.yaml", OBJECT)
    done = desk.run("apply", policy(LABEL), "-r", "cm.yaml")
    assert done.exit_code == 0
    assert done.stdout == (
        "p / label: ConfigMap default/settings\n"
        "--- ConfigMap default/settings\n"
        "+++ ConfigMap default/settings\n"
        "@@ -3,5 +3,7 @@\n metadata:\n   name: settings\n   namespace: default\n"
        "+  labels:\n+    seen: b\n data:\n   a: b\n\n"
    )
    assert done.stderr == (
        "1 object read as trigger\npass: 1, fail: 0, warn: 0, error: 0, skip: 0\n"
    )


def test_rules_and_policies_are_evaluated_on_the_result_of_earlier_ones(
    desk: Desk, policy: Policy
) -> None:
    desk.write("cm.yaml", OBJECT)
    words = [policy(LABEL, "a"), policy(SECOND, "b"), "-r", "cm.yaml"]
    done = desk.run("apply", *words, "-o", "json")
    (found,) = json.loads(done.stdout)["items"]
    assert found["metadata"]["labels"] == {"seen": "b", "second": "b"}
    other_way = desk.run("apply", *reversed(words[:2]), *words[2:], "-o", "json")
    assert json.loads(other_way.stdout)["items"][0]["metadata"]["labels"] == {"seen": "b"}


def test_targets_from_files_are_patched(desk: Desk, policy: Policy) -> None:
    desk.write("cm.yaml", OBJECT)
    desk.write("secrets.yaml", SECRETS)
    done = desk.run("apply", policy(SPREAD), "-r", "cm.yaml", "-t", "secrets.yaml", "-o", "patch")
    (found,) = json.loads(done.stdout)
    assert found["object"] == {
        "apiVersion": "v1",
        "kind": "Secret",
        "namespace": "default",
        "name": "one",
    }
    assert found["trigger"]["name"] == "settings"
    assert found["patch"] == [
        {"op": "add", "path": "/metadata/annotations", "value": {"mode": "b"}}
    ]


GATE = """
apiVersion: acme.io/v1
kind: Gate
metadata: {name: g}
routes: [{host: one}, {host: two}]
"""
GATES = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gates.acme.io}
spec:
  group: acme.io
  scope: Namespaced
  names: {kind: Gate, plural: gates}
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
        properties:
          routes:
            {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [host]}
"""
OPEN = """
- name: open
  match: {any: [{resources: {kinds: [Gate]}}]}
  mutate: {patchStrategicMerge: {routes: [{host: two, open: true}]}}
"""


def test_lists_of_custom_resources_merge_by_the_keys_in_a_given_definition(
    desk: Desk, policy: Policy
) -> None:
    desk.write("gate.yaml", GATE)
    desk.write("gates.yaml", GATES)
    words = ["apply", policy(OPEN), "-r", "gate.yaml", "-o", "json"]
    (alone,) = json.loads(desk.run(*words).stdout)["items"]
    assert alone["routes"] == [{"host": "two", "open": True}]
    (found,) = json.loads(desk.run(*words, "-t", "gates.yaml").stdout)["items"]
    assert found["routes"] == [{"host": "two", "open": True}, {"host": "one"}]


def test_yaml_goes_through_standard_input_and_output(desk: Desk, policy: Policy) -> None:
    label = policy(LABEL)
    done = desk.run("apply", label, "-r", "-", "-o", "yaml", stdin=f"{OBJECT}---\n{SECRETS}")
    assert done.stdout.count("---\n") == 3
    assert "namespace: default" not in done.stdout
    assert "namespace: other" in done.stdout
    again = desk.run("apply", label, "-r", "-", "--check", stdin=done.stdout)
    assert again.exit_code == 0
    assert again.stdout == ""


def test_apply_rules_one_applies_only_the_first_rule_without_targets(
    desk: Desk, policy: Policy
) -> None:
    desk.write("cm.yaml", OBJECT)
    path = desk.folder / policy(LABEL + SECOND)
    path.write_text(path.read_text().replace("spec:\n", "spec:\n  applyRules: One\n"))
    done = desk.run("apply", str(path), "-r", "cm.yaml")
    assert "pass: 1, " in done.stderr
    assert "second" not in done.stdout


def test_verbose_output_shows_why_an_object_is_skipped(desk: Desk, policy: Policy) -> None:
    desk.write("cm.yaml", OBJECT)
    done = desk.run("apply", policy(SECOND + SPREAD), "-r", "cm.yaml", "-v")
    assert done.stdout == ""
    assert done.stderr.splitlines()[:4] == [
        "p / second: operation CREATE (the rule listens to every operation)",
        "p / spread: operation UPDATE (the rule listens to every operation)",
        "p / second: skipped: ConfigMap default/settings: preconditions not met",
        (
            "p / spread: warning: ConfigMap default/settings: skipped, because none of its targets"
            " is given: name them with --target-resource FILE"
        ),
    ]
    desk.write("secret.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: one}\n")
    output = desk.run("apply", "p.yaml", "-r", "cm.yaml", "-t", "secret.yaml", "-v").stderr
    place = "p / spread: skipped: ConfigMap default/settings"
    assert f"{place}: no object matches the targets of the rule" in output


def test_check_exits_with_1_if_an_object_would_change(desk: Desk, policy: Policy) -> None:
    desk.write("cm.yaml", OBJECT)
    assert desk.run("apply", policy(LABEL), "-r", "cm.yaml", "--check").exit_code == 1


def test_triggers_are_read_from_folders_and_wildcards(desk: Desk, policy: Policy) -> None:
    desk.write("in/a/one.yaml", OBJECT)
    desk.write("in/two.yml", OBJECT.replace("settings", "two"))
    desk.write(
        "in/three.json", '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}'
    )
    desk.write("in/notes.txt", "no YAML: [")
    label = policy(LABEL.replace("data.a", "data.a || 'x'"))
    output = desk.run("apply", label, "-r", "in").stderr
    assert output.endswith(
        "3 objects read as triggers\npass: 3, fail: 0, warn: 0, error: 0, skip: 0\n"
    )
    assert "2 objects" in desk.run("apply", label, "-r", "in/**/*.y*ml").stderr


def test_an_error_of_a_rule_is_reported_and_counted(desk: Desk, policy: Policy) -> None:
    desk.write("cm.yaml", OBJECT.replace("a: b", "c: d"))
    done = desk.run("apply", policy(LABEL), "-r", "cm.yaml")
    assert done.exit_code == 1
    assert done.stdout == ""
    said = "p / label: error: ConfigMap default/settings: variable substitution failed"
    assert said in done.stderr
    assert "error: 1, skip: 0\n" in done.stderr


def test_values_come_from_a_file_and_the_command_line(desk: Desk, policy: Policy) -> None:
    desk.write("cm.yaml", OBJECT)
    rule = """
    - name: mode
      match: {any: [{resources: {kinds: [ConfigMap], operations: [UPDATE]}}]}
      context:
      - {name: other, configMap: {name: absent}}
      - {name: image, imageRegistry: {reference: absent}}
      mutate:
        patchStrategicMerge: {metadata: {labels: {x: "{{ other.data.mode }}-{{ image.digest }}"}}}
    """
    desk.write(
        "values.yaml",
        """
        apiVersion: cli.kyverno.io/v1alpha1
        kind: Values
        globalValues: {request.operation: UPDATE, other.data.mode: global}
        policies:
        - name: p
          resources: [{name: settings, values: {other.data.mode: object}}]
          rules: [{name: mode, values: {image.digest: d1}}]
        """,
    )
    words = ["apply", policy(rule), "-r", "cm.yaml", "-f", "values.yaml", "-o", "yaml"]
    assert "x: object-d1" in desk.run(*words).stdout
    assert "x: line-d1" in desk.run(*words, "--set", "other.data.mode=line").stdout
    refused = desk.run("apply", policy(rule), "-r", "cm.yaml")
    assert refused.exit_code == 1
    assert "images are not read from a registry here" in refused.stderr


def test_values_can_be_given_for_each_target(desk: Desk, policy: Policy) -> None:
    desk.write("cm.yaml", OBJECT)
    desk.write("secrets.yaml", SECRETS.replace('"no"', '"yes"'))
    rule = SPREAD.replace(
        "      selector:", "      context: [{name: team, apiCall: {urlPath: /x}}]\n      selector:"
    ).replace("request.object.data.a", "team.name")
    desk.write(
        "values.yaml",
        """
        apiVersion: cli.kyverno.io/v1alpha1
        kind: Values
        policies:
        - name: p
          targetResources:
          - {name: one, values: {team.name: red}}
          - {name: two, kind: Secret, namespace: default, values: {team.name: blue}}
        """,
    )
    words = ["apply", policy(rule), "-r", "cm.yaml", "-t", "secrets.yaml", "-f", "values.yaml"]
    found = json.loads(desk.run(*words, "-o", "patch").stdout)
    assert {item["object"]["name"]: item["patch"][0]["value"] for item in found} == {
        "one": {"mode": "red"},
        "two": {"mode": "blue"},
    }


def test_functions_of_time_are_evaluated(desk: Desk, policy: Policy) -> None:
    desk.write("cm.yaml", OBJECT)
    rule = LABEL.replace("request.object.data.a", "time_now_utc()")
    done = desk.run("apply", policy(rule), "-r", "cm.yaml", "-o", "yaml")
    assert 'seen: "20' in done.stdout


def test_user_info_from_a_file_is_matched_and_read(desk: Desk, policy: Policy) -> None:
    desk.write("cm.yaml", OBJECT)
    rule = LABEL.replace(
        "kinds: [ConfigMap]}", "kinds: [ConfigMap]}, subjects: [{kind: User, name: ann}]"
    ).replace("request.object.data.a", "request.userInfo.username")
    user = "apiVersion: cli.kyverno.io/v1alpha1\nkind: UserInfo\nuserInfo: {username: %s}\n"
    desk.write("ann.yaml", user % "ann")
    desk.write("bob.yaml", user % "bob")
    words = ["apply", policy(rule), "-r", "cm.yaml", "-o", "yaml", "-u"]
    assert "seen: ann" in desk.run(*words, "ann.yaml").stdout
    assert "seen" not in desk.run(*words, "bob.yaml").stdout


def test_context_entries_are_read_from_the_context_file(desk: Desk, policy: Policy) -> None:
    desk.write("cm.yaml", OBJECT)
    desk.write("context.yaml", OBJECT.replace("settings", "other").replace("a: b", "a: c"))
    rule = LABEL.replace("request.object.data.a", "other.data.a").replace(
        "  mutate:", "  context: [{name: other, configMap: {name: other}}]\n  mutate:"
    )
    words = ["apply", policy(rule), "-r", "cm.yaml", "-o", "yaml"]
    assert "seen: c" in desk.run(*words, "--context-file", "context.yaml").stdout
    assert desk.run(*words).exit_code == 1


def test_an_exception_from_a_file_skips_its_trigger(desk: Desk, policy: Policy) -> None:
    desk.write("cm.yaml", OBJECT)
    desk.write(
        "exception.yaml",
        """
        apiVersion: kyverno.io/v2
        kind: PolicyException
        metadata: {name: e, namespace: default}
        spec:
          match: {any: [{resources: {kinds: [ConfigMap], names: [settings]}}]}
          exceptions: [{policyName: p, ruleNames: ["lab*"]}]
        """,
    )
    done = desk.run("apply", policy(LABEL), "-r", "cm.yaml", "--exception", "exception.yaml")
    assert done.exit_code == 0
    assert "pass: 0, fail: 0, warn: 0, error: 0, skip: 1\n" in done.stderr


def test_exception_namespace_needs_the_cluster_flag(desk: Desk, policy: Policy) -> None:
    desk.write("cm.yaml", OBJECT)
    words = ["apply", policy(LABEL), "-r", "cm.yaml", "--exception-namespace", "x"]
    done = desk.run(*words)
    assert done.exit_code == 2
    assert "--exception-namespace needs --cluster" in done.stderr


def test_an_exception_from_a_file_skips_its_targets(desk: Desk, policy: Policy) -> None:
    desk.write("cm.yaml", OBJECT)
    desk.write("secrets.yaml", SECRETS)
    exception = """
        apiVersion: kyverno.io/v2
        kind: PolicyException
        metadata: {name: e, namespace: default, MARK}
        spec:
          match: {any: [{resources: {kinds: [Secret], names: [one]}}]}
          exceptions: [{policyName: p, ruleNames: [spread]}]
        """
    words = ["apply", policy(SPREAD), "-r", "cm.yaml", "--target-resource", "secrets.yaml", "-v"]
    unhindered = desk.run(*words)
    words_of = {"triggers": 0, "targets": 1, "both": 1, "": 1}
    for what, changes in words_of.items():
        mark = f"annotations: {{kube-retrofit.dev/excepts: {what}}}" if what else ""
        desk.write("exception.yaml", exception.replace("MARK", mark))
        done = desk.run(*words, "--exception", "exception.yaml")
        assert done.stderr.count("skipped due to policy exceptions default/e") == changes
        assert done.stdout.count("p / spread") == unhindered.stdout.count("p / spread") - changes


def test_apply_rules_one_applies_only_the_first_rule_with_targets_that_fires(
    desk: Desk, policy: Policy
) -> None:
    desk.write("cm.yaml", OBJECT)
    desk.write("secrets.yaml", SECRETS)
    unmet = SPREAD.replace("name: spread", "name: unmet").replace(
        "  mutate:", "  preconditions: {all: [{key: a, operator: Equals, value: b}]}\n  mutate:"
    )
    other = SPREAD.replace("name: spread", "name: other")
    path = desk.folder / policy(unmet + SPREAD + other)
    path.write_text(path.read_text().replace("spec:\n", "spec:\n  applyRules: One\n"))
    done = desk.run("apply", str(path), "-r", "cm.yaml", "--target-resource", "secrets.yaml", "-v")
    assert "p / unmet: skipped: " in done.stderr
    assert "p / spread: " in done.stdout
    assert "p / other: " not in done.stdout + done.stderr


def test_namespace_labels_from_values_are_matched(desk: Desk, policy: Policy) -> None:
    desk.write("cm.yaml", OBJECT)
    rule = LABEL.replace(
        "kinds: [ConfigMap]", "kinds: [ConfigMap], namespaceSelector: {matchLabels: {env: prod}}"
    )
    desk.write(
        "values.yaml",
        """
        apiVersion: cli.kyverno.io/v1alpha1
        kind: Values
        namespaceSelector: [{name: default, labels: {env: prod}}]
        """,
    )
    words = ["apply", policy(rule), "-r", "cm.yaml", "--check"]
    assert desk.run(*words).exit_code == 0
    assert desk.run(*words, "-f", "values.yaml").exit_code == 1


def test_a_policy_is_compiled_once(desk: Desk, policy: Policy) -> None:
    desk.write("cm.yaml", "---\n".join(OBJECT.replace("settings", f"n{n}") for n in range(20)))
    with counted(compile_policy) as calls:
        assert "pass: 20," in desk.run("apply", policy(LABEL), "-r", "cm.yaml").stderr
    assert calls == {"compile_policy": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "Error: cm.yaml:2:1: is not YAML: did not find expected node content"),
        ("kind: ConfigMap", "Error: cm.yaml:1: the object has no apiVersion"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: 5}", "metadata.name is not a string"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {labels: {a: 5}}", "metadata.labels.a is no"),
        ("hello", "expected a Kubernetes object, found text"),
        ("", "cm.yaml: no object found"),
    ],
)
def test_an_invalid_object_is_reported_in_one_line(
    desk: Desk, policy: Policy, text: str, message: str
) -> None:
    desk.write("cm.yaml", text)
    done = desk.run("apply", policy(LABEL), "-r", "cm.yaml")
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_invalid_policy_is_reported_with_the_place_of_the_error(
    desk: Desk, policy: Policy
) -> None:
    desk.write("cm.yaml", OBJECT)
    done = desk.run(
        "apply", policy(LABEL.replace("patchStrategicMerge", "patch")), "-r", "cm.yaml"
    )
    assert done.exit_code == 1
    assert "p.yaml:1: ClusterPolicy p: spec.rules[0].mutate.patch: unknown field" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["absent.yaml", "-r", "cm.yaml"], 2, "absent.yaml: there is no such file"),
        (["cm.yaml", "-r", "cm.yaml"], 2, "cm.yaml: no policy found"),
        (["*.absent", "-r", "cm.yaml"], 2, "*.absent: no file fits"),
        (["-", "-r", "-"], 2, "standard input (-) can be read once only"),
        (["p.yaml"], 2, "name the triggers: after the policy, with --resource FILE"),
        (["p.yaml", "."], 2, "; what lies beside a policy in a file or folder is no trigger"),
        (["p.yaml", "empty.yaml"], 2, "empty.yaml: no object found"),
        (["p.yaml", "empty.yaml", "--cluster"], 2, "empty.yaml: no object found"),
        (["empty.yaml"], 2, "empty.yaml: no policy found"),
        (["cm.yaml"], 2, "cm.yaml: no policy found"),
        (["p.yaml", "cm.yaml", "-n", "x"], 2, "--namespace needs --cluster"),
        (["p.yaml", "cm.yaml", "-i", "-o", "diff"], 2, "--stdin is -o yaml: leave -o diff"),
        (["cm.yaml", "-r", "cm.yaml", "--set", "a"], 2, "--set a: write it as path=value"),
        (["cm.yaml", "-r", "cm.yaml", "-f", "cm.yaml"], 2, "expected apiVersion cli.kyverno.io"),
    ],
)
def test_invalid_arguments_are_reported_with_an_exit_code(
    desk: Desk, policy: Policy, words: list[str], code: int, message: str
) -> None:
    desk.write("cm.yaml", OBJECT)
    desk.write("empty.yaml", "---\n")
    policy(LABEL)
    done = desk.run("apply", *words)
    assert done.exit_code == code
    assert message in done.stderr


def test_diffs_are_written_immediately_and_objects_only_after_all_are_read(
    desk: Desk, policy: Policy
) -> None:
    desk.write("cm.yaml", OBJECT)
    desk.write("broken.yaml", "a: [")
    words = ["apply", policy(LABEL), "-r", "cm.yaml", "-r", "broken.yaml"]
    for output, begun in (("diff", True), ("patch", True), ("yaml", False), ("json", False)):
        done = desk.run(*words, "-o", output)
        assert done.exit_code == 2
        assert "broken.yaml:2:1: is not YAML" in done.stderr
        assert bool(done.stdout) is begun


def test_a_definition_applies_to_objects_before_it_in_the_file(desk: Desk, policy: Policy) -> None:
    desk.write("all.yaml", f"{GATE}---\n{GATES}")
    done = desk.run("apply", policy(OPEN), "-r", "all.yaml", "-o", "patch")
    (found,) = json.loads(done.stdout)
    gate = jsonpatch.apply_patch(yaml.safe_load(GATE), found["patch"])
    assert gate["routes"] == [{"host": "two", "open": True}, {"host": "one"}]


def test_patch_output_is_a_list_of_any_length(desk: Desk, policy: Policy) -> None:
    desk.write("cm.yaml", "---\n".join(OBJECT.replace("settings", f"n{n}") for n in range(3)))
    done = desk.run("apply", policy(LABEL), "-r", "cm.yaml", "-o", "patch")
    assert [item["object"]["name"] for item in json.loads(done.stdout)] == ["n0", "n1", "n2"]
    none = desk.run("apply", policy(SECOND), "-r", "cm.yaml", "-o", "patch")
    assert json.loads(none.stdout) == []


def test_an_error_of_many_objects_is_reported_once(desk: Desk, policy: Policy) -> None:
    objects = [OBJECT.replace("a: b", "c: d").replace("settings", f"n{n}") for n in range(5)]
    desk.write("cm.yaml", "---\n".join(objects))
    for output in ("diff", "yaml", "json", "patch"):
        done = desk.run("apply", policy(LABEL), "-r", "cm.yaml", "-o", output)
        assert done.exit_code == 1
        assert done.stderr.count("variable substitution failed") == 1
        head = "p / label: error: ConfigMap default/n0, ConfigMap default/n1, ConfigMap default/n2"
        assert f"{head} and 2 more: variable" in done.stderr
        assert done.stderr.endswith(
            "5 objects read as triggers: 0 changes, 5 errors\n"
            if output in ("json", "patch")
            else "pass: 0, fail: 0, warn: 0, error: 5, skip: 0\n"
        )


def test_a_refused_policy_counts_as_an_error(desk: Desk, policy: Policy) -> None:
    desk.write("cm.yaml", OBJECT)
    good, bad = policy(LABEL, "a"), policy(LABEL.replace("patchStrategicMerge", "patch"), "b")
    done = desk.run("apply", good, bad, "-r", "cm.yaml")
    assert done.exit_code == 1
    assert done.stderr.endswith("pass: 1, fail: 0, warn: 0, error: 1, skip: 0\n")


def test_there_is_nothing_to_apply_with_policies_of_other_languages_only(desk: Desk) -> None:
    desk.write("cm.yaml", OBJECT)
    desk.write(
        "cel.yaml",
        "apiVersion: policies.kyverno.io/v1\nkind: MutatingPolicy\nmetadata: {name: c}\n",
    )
    done = desk.run("apply", "cel.yaml", "-r", "cm.yaml")
    assert done.exit_code == 2
    assert "cel.yaml:1: MutatingPolicy c: this language is not evaluated" in done.stderr
    assert "nothing to apply" in done.stderr


def test_a_rule_that_matches_nothing_gives_a_hint_to_verbose_output(
    desk: Desk, policy: Policy
) -> None:
    desk.write("cm.yaml", OBJECT)
    words = [
        "apply",
        policy(LABEL.replace("kinds: [ConfigMap]", "kinds: [Secret]")),
        "-r",
        "cm.yaml",
    ]
    assert desk.run(*words).stderr.startswith("nothing would change; -v says why\n")
    output = desk.run(*words, "-v").stderr
    assert "p / label: not for: ConfigMap default/settings: kind does not match [Secret]" in output


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("requst.operation=UPDATE", "no rule reads requst; did you mean request?"),
        ("request.opration=UPDATE", "a request has no field opration; did you mean operation?"),
        ("othr.data.mode=x", "no rule reads othr; did you mean other?"),
        ("target.data.mode=x", "target comes from the objects, not from values"),
        ("request.object.data.a=x", "the trigger is given with --resource"),
    ],
)
def test_a_value_that_no_rule_reads_is_refused(
    desk: Desk, policy: Policy, given: str, said: str
) -> None:
    desk.write("cm.yaml", OBJECT)
    rule = LABEL.replace("request.object.data.a", "other.data.mode").replace(
        "  mutate:", "  context: [{name: other, configMap: {name: other}}]\n  mutate:"
    )
    words = ["apply", policy(rule), "-r", "cm.yaml", "--set"]
    assert desk.run(*words, "other.data.mode=x").exit_code == 0
    assert desk.run(*words, "request.userInfo.username=ann,other.data.mode=x").exit_code == 0
    done = desk.run(*words, given)
    assert done.exit_code == 2
    assert said in done.stderr


PASSED = "pass: 1, fail: 0, warn: 0, error: 0, skip: 0\n"


def test_triggers_may_be_given_as_arguments(desk: Desk, policy: Policy) -> None:
    desk.write("in/one.yaml", OBJECT)
    desk.write("in/values.yaml", "a: b\n")
    desk.write("two.yaml", OBJECT.replace("settings", "two"))
    label = policy(LABEL)
    for words in ([label, "in"], ["in", label], [label, "in/one.yaml"]):
        done = desk.run("apply", *words)
        assert done.exit_code == 0
        assert "p / label: ConfigMap default/settings" in done.stdout
        assert done.stderr.endswith(PASSED)
    done = desk.run("apply", label, "in", "two.yaml")
    assert "pass: 2," in done.stderr
    done = desk.run("apply", label, "-", stdin=OBJECT)
    assert done.stderr.endswith(PASSED)
    # Other objects in the file of a policy are not triggers, nor are files beside --resource.
    both = desk.write("both.yaml", f"{Path(label).read_text()}---\n{OBJECT}")
    assert desk.run("apply", both).exit_code == 2
    done = desk.run("apply", label, "in", "-r", "two.yaml")
    assert "ConfigMap default/two" in done.stdout
    assert done.stderr.endswith(PASSED)


def test_a_rule_is_skipped_if_none_of_its_targets_is_given(desk: Desk, policy: Policy) -> None:
    desk.write("cm.yaml", OBJECT)
    named = SPREAD.replace('selector: {matchLabels: {take: "yes"}}', "name: one")
    for rules in (SPREAD, named, named.replace("v1\n      kind: Secret", "x.y/v1\n      kind: Z")):
        done = desk.run("apply", policy(rules), "-r", "cm.yaml", "-o", "diff")
        assert (done.exit_code, done.stdout) == (0, "")
        assert done.stderr == (
            "p / spread: warning: ConfigMap default/settings: skipped, because none of its targets"
            " is given: name them with --target-resource FILE\n"
            "1 object read as trigger\n"
            "pass: 0, fail: 0, warn: 0, error: 0, skip: 1\n"
        )
    desk.write("secret.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: one}\n")
    policy(named)
    # With some targets given, others count as missing. Triggers may be targets as well.
    done = desk.run("apply", "p.yaml", "-r", "cm.yaml", "-t", "cm.yaml")
    assert done.exit_code == 1
    assert 'error: ConfigMap default/settings: secrets "one" not found' in done.stderr
    for words in (["-r", "secret.yaml"], ["-t", "secret.yaml"]):
        done = desk.run("apply", "p.yaml", "-r", "cm.yaml", *words)
        assert "p / spread: Secret default/one" in done.stdout


def test_kyverno_output_shows_changed_objects_below_the_headings_of_kyverno(
    desk: Desk, policy: Policy
) -> None:
    desk.write("cm.yaml", f"{OBJECT}---\napiVersion: v1\nkind: Node\nmetadata: {{name: n1}}\n")
    desk.write("secrets.yaml", SECRETS)
    node = "- {name: node, match: {any: [{resources: {kinds: [Node]}}]}, mutate: %s}\n"
    node %= "{patchStrategicMerge: {metadata: {labels: {a: b}}}}"
    words = ["apply", policy(LABEL + SPREAD + node), "-r", "cm.yaml", "-t", "secrets.yaml"]
    done = desk.run(*words, "-o", "kyverno")
    assert done.stdout == (
        "Applying 3 policy rule(s) to 2 resource(s)...\n\n"
        "mutate policy p applied to default/ConfigMap/settings:\n"
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\n  namespace: default\n"
        "  labels:\n    seen: b\ndata:\n  a: b\n---\n\n"
        "mutate policy p applied to default/Secret/one:\n"
        'apiVersion: v1\nkind: Secret\nmetadata:\n  name: one\n  labels:\n    take: "yes"\n'
        "  namespace: default\n  annotations:\n    mode: b\n---\n\n"
        "mutate policy p applied to /Node/n1:\n"
        "apiVersion: v1\nkind: Node\nmetadata:\n  name: n1\n  labels:\n    a: b\n---\n\n"
        "pass: 3, fail: 0, warn: 0, error: 0, skip: 0\n"
    )
    assert done.stderr == ""


def test_files_may_be_given_as_comma_separated_lists(desk: Desk, policy: Policy) -> None:
    desk.write("one.yaml", OBJECT)
    desk.write("two.yaml", OBJECT.replace("settings", "two"))
    desk.write("secrets.yaml", SECRETS)
    desk.write("except.yaml", EXCEPTION)
    rules = policy(LABEL + SPREAD)
    words = ["apply", rules, "--resources", "one.yaml,two.yaml", "--target-resources"]
    done = desk.run(*words, "secrets.yaml,")
    assert done.stderr.endswith("pass: 3, fail: 0, warn: 0, error: 0, skip: 0\n")
    done = desk.run(*words, "secrets.yaml", "--exceptions", "except.yaml")
    assert done.stderr.endswith("pass: 2, fail: 0, warn: 0, error: 0, skip: 1\n")
    assert (
        "one,y.yaml: there is no such file" in desk.run("apply", rules, "-r", "one,y.yaml").stderr
    )


def test_the_flag_for_pipes_is_the_same_as_yaml_output(desk: Desk, policy: Policy) -> None:
    desk.write("cm.yaml", OBJECT)
    words = ["apply", policy(LABEL), "cm.yaml"]
    assert desk.run(*words, "-i").stdout == desk.run(*words, "-o", "yaml").stdout != ""


@pytest.mark.parametrize(
    ("words", "rules", "code"),
    [
        (["--warn-exit-code", "3"], SPREAD, 3),
        ([], SPREAD, 0),
        (["--warn-exit-code", "3"], SECOND, 0),
        (["--warn-exit-code", "3", "--warn-no-pass"], SECOND, 3),
        (["--warn-no-pass"], SECOND, 0),
        (["--warn-exit-code", "3", "--warn-no-pass"], LABEL, 0),
        (["--warn-exit-code", "3", "--check"], LABEL, 1),
    ],
)
def test_warnings_can_have_an_exit_code(
    desk: Desk, policy: Policy, words: list[str], rules: str, code: int
) -> None:
    desk.write("cm.yaml", OBJECT)
    assert desk.run("apply", policy(rules), "cm.yaml", *words).exit_code == code


@pytest.mark.parametrize("version", ["v1", "v2beta1"])
@pytest.mark.parametrize(("kind", "key"), [("ClusterPolicy", "p"), ("Policy", "default/p")])
def test_a_policy_of_every_version_gets_the_namespace_of_its_kind(
    desk: Desk, policy: Policy, version: str, kind: str, key: str
) -> None:
    path = Path(policy(LABEL))
    text = path.read_text().replace("kyverno.io/v1", f"kyverno.io/{version}")
    desk.write("p.yaml", text.replace("kind: ClusterPolicy", f"kind: {kind}"))
    assert (
        f"{key} / label" in desk.run("apply", "p.yaml", "-r", desk.write("o.yaml", OBJECT)).stdout
    )
    done = desk.run("explain", "p.yaml", "--trigger", "o.yaml")
    assert "seen: b" in done.stdout
    assert [item.key for item in compile_found(read_files(["p.yaml"])).compiled] == [key]


def test_a_null_name_or_namespace_is_none(desk: Desk, policy: Policy) -> None:
    rule = """
    - name: grant
      match: {any: [{resources: {kinds: [ConfigMap]}}]}
      mutate:
        targets: [{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, name: viewer}]
        patchStrategicMerge: {metadata: {labels: {x: "1"}}}
    """
    path = Path(policy(rule))
    desk.write("p.yaml", path.read_text().replace("{name: p}", "{name: p, namespace: }"))
    role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n"
    desk.write("role.yaml", f"{role}metadata: {{name: viewer, namespace: }}\nrules: []\n")
    meta = "{name: , generateName: x-, namespace: }"
    desk.write("o.yaml", f"apiVersion: v1\nkind: ConfigMap\nmetadata: {meta}\n")
    done = desk.run("apply", "p.yaml", "-r", "o.yaml", "-t", "role.yaml", "-o", "json")
    assert done.exit_code == 0, done.output
    trigger, changed = json.loads(done.stdout)["items"]
    assert trigger["metadata"] == {"generateName": "x-"}
    assert changed["metadata"] == {"name": "viewer", "labels": {"x": "1"}}
    assert "None" not in desk.run("apply", "p.yaml", "-r", "o.yaml", "-t", "role.yaml").output


CHAIN = """
- name: to-b
  match: {any: [{resources: {kinds: [ConfigMap], names: [a]}}]}
  mutate:
    targets: [{apiVersion: v1, kind: ConfigMap, namespace: default, name: b}]
    patchStrategicMerge: {metadata: {annotations: {from-a: "yes"}}}
- name: label
  match: {any: [{resources: {kinds: [ConfigMap]}}]}
  mutate: {patchStrategicMerge: {metadata: {labels: {l: "1"}}}}
"""


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_a_trigger_that_was_changed_as_a_target_keeps_that_change(
    desk: Desk, policy: Policy, order: str
) -> None:
    texts = [f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n" for name in order]
    objects = desk.write("objects.yaml", "---\n".join(texts))
    done = desk.run("apply", policy(CHAIN), "-r", objects, "-o", "json")
    found = {item["metadata"]["name"]: item for item in json.loads(done.stdout)["items"]}
    assert found["b"]["metadata"]["annotations"] == {"from-a": "yes"}
    assert found["b"]["metadata"]["labels"] == {"l": "1"}


def test_objects_of_the_same_name_are_evaluated_as_they_were_read(
    desk: Desk, policy: Policy
) -> None:
    for place in ("dev", "prod"):
        desk.write(f"env/{place}.yaml", OBJECT.replace("a: b", f"a: {place}"))
    done = desk.run("apply", policy(SPREAD + LABEL), "-r", "env")
    assert "seen: dev" in done.stdout
    assert "seen: prod" in done.stdout


@pytest.mark.parametrize("value", ['"x"', '{"x": 5}'])
@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_a_patch_that_gives_labels_another_type_is_an_error_as_in_a_cluster(
    desk: Desk, policy: Policy, field: str, value: str
) -> None:
    desk.write("cm.yaml", OBJECT)
    rules = f"""
    - name: break
      match: {{any: [{{resources: {{kinds: [ConfigMap]}}}}]}}
      mutate:
        patchesJson6902: '[{{"op": "add", "path": "/metadata/{field}", "value": {value}}}]'
    - name: next
      match:
        any:
        - resources: {{kinds: [ConfigMap], annotations: {{x: "?*"}}}}
        - resources: {{kinds: [ConfigMap], selector: {{matchLabels: {{"x*": "?*"}}}}}}
      mutate: {{patchStrategicMerge: {{data: {{a: c}}}}}}
    """
    done = desk.run("apply", policy(rules), "-r", "cm.yaml")
    assert done.exit_code == 1
    assert f"something that is not an object: object.metadata.{field}" in done.stderr
    assert "rule next" in desk.run("explain", policy(rules), "--trigger", "cm.yaml").stdout


def test_a_patch_that_gives_a_label_no_value_makes_it_empty_as_in_a_cluster(
    desk: Desk, policy: Policy
) -> None:
    desk.write("cm.yaml", OBJECT)
    rules = """
    - name: empty
      match: {any: [{resources: {kinds: [ConfigMap]}}]}
      mutate:
        patchesJson6902: '[{"op": "add", "path": "/metadata/labels", "value": {"worker": null}}]'
    - name: next
      match: {any: [{resources: {kinds: [ConfigMap], selector: {matchLabels: {worker: ""}}}}]}
      mutate: {patchStrategicMerge: {data: {worker: found}}}
    """
    done = desk.run("apply", policy(rules), "-r", "cm.yaml")
    assert done.exit_code == 0, done.stderr
    assert 'worker: ""' in done.stdout or "worker: ''" in done.stdout
    assert "worker: found" in done.stdout
