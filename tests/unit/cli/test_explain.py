"""`retrofit explain` shows every step with its reason, and no content of Secrets."""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from reconciler.api.meta import Object
from reconciler.cli.desk.file_objects import FileObjects
from reconciler.cli.desk.request import Request
from reconciler.cli.desk.values import DeskValues
from reconciler.cli.explain.explanation import Explanation
from reconciler.cli.explain.object_source import FileObjectSource
from reconciler.cli.explain.options import Plan
from reconciler.cli.explain.outline_writer import FAIL, OutlineWriter
from reconciler.cli.main import retrofit
from reconciler.engine.context import Context
from reconciler.engine.program import CompiledPolicy
from reconciler.errors import EvaluationError
from tests.unit.engine.rules import make_rule

POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: reload}
spec:
  background: false
  rules:
  - name: stamp
    context:
    - {name: mode, variable: {jmesPath: request.object.data.mode, default: none}}
    - {name: extra, configMap: {name: extra, namespace: a}}
    match:
      any:
      - resources: {kinds: [Secret]}
      - resources:
          kinds: [ConfigMap]
          namespaceSelector: {matchLabels: {team: x}}
          operations: [CREATE, UPDATE]
    exclude:
      any:
      - subjects: [{kind: User, name: bob}]
    preconditions:
      all:
      - {key: "{{ request.operation }}", operator: AnyIn, value: [CREATE, UPDATE]}
      - {key: "{{ mode }}", operator: NotEquals, value: none}
    mutate:
      targets:
      - apiVersion: apps/v1
        kind: Deployment
        namespace: "{{ request.namespace }}"
        selector: {matchLabels: {uses: settings}}
        preconditions:
          all:
          - key: "{{ target.metadata.annotations.mode || '' }}"
            operator: NotEquals
            value: "{{ mode }}"
      - {apiVersion: v1, kind: Service, name: absent, namespace: a}
      patchStrategicMerge:
        metadata: {annotations: {mode: "{{ mode }}", extra: "{{ extra.data.k }}"}}
"""
NAMESPACE = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "a", "labels": {"team": "x"}},
}
EXTRA = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "extra", "namespace": "a"},
    "data": {"k": "v"},
}
TRIGGER = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "settings", "namespace": "a"},
    "data": {"mode": "strict"},
}
USER = """
apiVersion: cli.kyverno.io/v1alpha1
kind: UserInfo
userInfo: {username: bob}
"""


def deployment(name: str, namespace: str, **annotations: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace, "labels": {"uses": "settings"}}
    if annotations:
        meta["annotations"] = annotations
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta}


WORLD = [
    NAMESPACE,
    EXTRA,
    deployment("web", "a"),
    deployment("done", "a", mode="strict"),
    deployment("web", "b"),
]


class Desk:
    """Files in a folder, and `retrofit explain` run on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, content: Any) -> str:
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else yaml.safe_dump_all(content))
        return str(path)

    def explain(self, *words: str, policy: str = POLICY) -> Result:
        file = self.write("policy.yaml", policy)
        return CliRunner().invoke(retrofit, ["explain", file, *words])

    def explanation(
        self,
        *words: str,
        policy: str = POLICY,
        trigger: Any = TRIGGER,
        object_source: Any = WORLD,
    ) -> list[str]:
        """Return the lines of the explanation, without indentation."""
        files = ["--trigger", self.write("trigger.yaml", [trigger])]
        if object_source:
            files += ["--target", self.write("objects.yaml", object_source)]
        done = self.explain(*files, *words, policy=policy)
        assert done.exit_code == 0, done.stderr
        return [line.strip() for line in done.stdout.splitlines()]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_rule_that_fires_is_explained_step_by_step(desk: Desk) -> None:
    lines = desk.explanation()
    assert lines[:7] == [
        "ClusterPolicy reload",
        "rule stamp (spec.rules[0])",
        "operation UPDATE (the rule listens to every operation)",
        "no    match.any[0]: kind does not match [Secret]",
        "yes   match.any[1]",
        "no    exclude.any[0]: user info does not match subject for the given conditionBlock",
        "yes   match and exclude: the rule concerns this request",
    ]
    assert 'context[0] mode = "strict"' in lines
    operation = '{{ request.operation }} = "UPDATE"  AnyIn  ["CREATE", "UPDATE"]'
    assert f"yes   preconditions.all[0]: {operation}" in lines
    assert "yes   the rule fires" in lines
    assert '{{ request.namespace }} = "a"' in lines
    assert "means apps/v1 Deployment, in namespace a, with labels uses=settings" in lines


def test_targets_are_explained_one_by_one(desk: Desk) -> None:
    lines = desk.explanation()
    done = lines.index("yes   Deployment a/done is selected")
    web = lines.index("yes   Deployment a/web is selected")
    assert lines[done + 1] == (
        "no    preconditions.all[0]: {{ target.metadata.annotations.mode || '' }} = \"strict\""
        '  NotEquals  {{ mode }} = "strict"'
    )
    assert lines[done + 2 : web] == ["no    preconditions not met"]
    assert lines[web + 2 : web + 5] == [
        '{{ mode }} = "strict"',
        '{{ extra.data.k }} = "v"',
        "yes   mutated Deployment/web in namespace a",
    ]
    assert "+    mode: strict" in lines
    assert "no    Deployment b/web: its namespace is not a" in lines
    assert 'no    Service a/absent: services "absent" not found' in lines


@pytest.mark.parametrize(
    ("words", "last"),
    [
        (
            ["--operation", "DELETE"],
            "concern this request: DELETE fires only rules that list the operation",
        ),
        (
            ["--operation", "POLICY-UPDATE"],
            "mutateExistingOnPolicyUpdate is not true for this rule",
        ),
        (
            ["--operation", "CONNECT"],
            "kind does not match [Secret]; operation does not match [CREATE, UPDATE]",
        ),
    ],
)
def test_an_operation_that_does_not_fire_the_rule_is_explained(
    desk: Desk, words: list[str], last: str
) -> None:
    found = desk.explanation(*words)[-1]
    assert found.startswith("no    ")
    assert found.endswith(last)


def test_an_excluded_user_is_explained(desk: Desk) -> None:
    lines = desk.explanation("--userinfo", desk.write("user.yaml", USER))
    assert "yes   exclude.any[0]" in lines
    assert lines[-1].endswith("resource excluded since one of the criteria excluded it")


def test_a_missing_namespace_leaves_the_match_undecided(desk: Desk) -> None:
    last = desk.explanation(object_source=None)[-1]
    assert last.startswith("open  match and exclude cannot be decided: ")
    assert last.endswith("give its Namespace in a file")


def test_a_precondition_that_does_not_hold_is_explained(desk: Desk) -> None:
    lines = desk.explanation(trigger={**TRIGGER, "data": {"mode": "none"}})
    assert 'no    preconditions.all[1]: {{ mode }} = "none"  NotEquals  "none"' in lines
    assert lines[-1] == "no    the rule does not fire: preconditions not met"


def test_a_variable_that_does_not_resolve_is_explained(desk: Desk) -> None:
    policy = POLICY.replace("{{ request.operation }}", "{{ request.object.data.absent }}")
    lines = desk.explanation(policy=policy)
    assert any(line.startswith("error preconditions.all[0]: ") for line in lines)
    assert lines[-1].startswith("error the rule fails: failed to evaluate preconditions: ")


def test_the_old_object_of_an_update_is_read_from_a_file(desk: Desk) -> None:
    policy = POLICY.replace("{{ request.operation }}", "{{ request.oldObject.data.mode }}")
    old = desk.write("old.yaml", [{**TRIGGER, "data": {"mode": "UPDATE"}}])
    lines = desk.explanation("--operation", "UPDATE", "--old", old, policy=policy)
    assert any('{{ request.oldObject.data.mode }} = "UPDATE"' in line for line in lines)


PASSWORD, TOKEN = "correct horse", "battery-staple"
SECRET: Object = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "settings", "namespace": "a"},
    "data": {"mode": base64.b64encode(PASSWORD.encode()).decode()},
    "stringData": {"token": TOKEN},
}
SECRETIVE = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: copy}
spec:
  rules:
  - name: copy
    context:
    - {name: plain, variable: {value: "{{ base64_decode(request.object.data.mode) }}"}}
    - {name: all, variable: {jmesPath: request.object}}
    match: {any: [{resources: {kinds: [Secret]}}]}
    preconditions:
      all:
      - {key: "{{ length(plain) }}", operator: GreaterThan, value: 0}
      - {key: "{{ to_upper(request.object.data.mode) }}", operator: NotEquals, value: x}
    mutate:
      targets:
      - {apiVersion: v1, kind: Secret, name: other, namespace: a}
      - {apiVersion: v1, kind: ConfigMap, name: extra, namespace: a}
      patchStrategicMerge:
        data:
          mode: "{{ request.object.data.mode }}"
          note: "is {{ plain }}"
          loud: "{{ to_upper(plain) }}"
"""


def test_secrets_are_not_shown(desk: Desk) -> None:
    other = {**SECRET, "metadata": {"name": "other", "namespace": "a"}, "data": {"mode": "bGV0"}}
    lines = desk.explanation(policy=SECRETIVE, trigger=SECRET, object_source=[other, EXTRA])
    text = "\n".join(lines)
    encoded = SECRET["data"]["mode"]
    for hidden in (PASSWORD, PASSWORD.upper(), TOKEN, encoded, encoded.upper(), "bGV0", "13"):
        assert hidden not in text
    assert "yes   mutated Secret/other in namespace a" in lines
    assert 'mode: "*** (old)"' in text
    assert '+  mode: "***"' in lines or '+  note: "is ***"' in text
    assert "yes   mutated ConfigMap/extra in namespace a" in lines


def test_a_foreach_over_a_secret_is_not_shown(desk: Desk) -> None:
    policy = yaml.safe_load(SECRETIVE)
    mutate = policy["spec"]["rules"][0]["mutate"]
    patch = {"data": {"{{ element }}": "{{ to_upper(element) }}"}}
    del mutate["patchStrategicMerge"]
    mutate["foreach"] = [
        {"list": "request.object.data.values(@)", "patchStrategicMerge": patch},
    ]
    text = "\n".join(
        desk.explanation(policy=yaml.safe_dump(policy), trigger=SECRET, object_source=[EXTRA])
    )
    assert "foreach request.object.data.values(@) = ***" in text
    assert "open  the diff is not shown" in text
    assert SECRET["data"]["mode"].upper() not in text


def test_a_target_that_needs_no_change_is_not_reported_as_a_failure(desk: Desk) -> None:
    object_source = [NAMESPACE, EXTRA, deployment("done", "a", mode="strict", extra="v")]
    policy = POLICY.replace('value: "{{ mode }}"', "value: other")
    lines = desk.explanation(policy=policy, object_source=object_source)
    assert "yes   it already is as the rule wants it" in lines
    assert not any("no patches applied" in line for line in lines)


def test_without_a_trigger_the_rules_are_outlined(desk: Desk) -> None:
    done = desk.explain()
    assert done.exit_code == 0
    assert "may be fired by Secret, ConfigMap (CREATE, UPDATE)\n" in done.stdout
    assert "Give an object with --trigger" in done.stdout


def test_the_account_of_a_policy_is_shown(desk: Desk) -> None:
    name = "name: reload, annotations: {kube-retrofit.dev/service-account: shop/bot}"
    text = desk.explain(policy=POLICY.replace("name: reload", name, 1)).stdout
    assert "works as ServiceAccount shop:bot, with its rights alone\n" in text
    refused = desk.explain(policy=POLICY.replace("name: reload", name.replace("shop/", ""), 1))
    assert refused.exit_code == 1
    assert "write it as NAMESPACE/NAME" in refused.stderr


def test_the_outline_says_if_triggers_that_are_not_recorded_are_lost(desk: Desk) -> None:
    assert "could not be recorded" not in desk.explain().stdout
    ignored = POLICY.replace("spec:\n", "spec:\n  failurePolicy: Ignore\n", 1)
    text = desk.explain(policy=ignored).stdout
    assert (
        "could not be recorded is lost, because its result depends on how often it runs\n" in text
    )


def test_an_invalid_policy_is_reported_in_one_line(desk: Desk) -> None:
    done = desk.explain(policy=POLICY.replace("kinds: [Secret]", "kinds: []"))
    assert done.exit_code == 1
    assert "policy.yaml:2: ClusterPolicy reload: spec.rules[0].match.any[0]" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "words", [["--target", "x"], ["--operation", "PATCH"], ["--exception-namespace", "x"]]
)
def test_invalid_flags_are_refused(desk: Desk, words: list[str]) -> None:
    assert desk.explain(*words).exit_code == 2


@pytest.mark.parametrize("name", ["reload", "clusterpolicy/reload", "policy/shop/reload"])
def test_the_name_of_a_stored_policy_without_a_cluster_names_the_flag(name: str) -> None:
    done = CliRunner().invoke(retrofit, ["explain", name, "--trigger", "cm/shop/a"])
    said = f"Error: {name}: there is no such file; with --cluster, a stored policy of this name"
    assert (done.exit_code, done.stderr) == (2, f"{said} is read\n")


def test_the_help_shows_examples() -> None:
    done = CliRunner().invoke(retrofit, ["explain", "-h"])
    assert "Examples:\n    retrofit explain policy.yaml" in done.stdout


FOREACH = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: each}
spec:
  rules:
  - name: pin
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    mutate:
      targets: [{apiVersion: v1, kind: Pod, namespace: a, name: web}]
      foreach:
      - list: target.spec.containers
        context:
        - {name: image, variable: {jmesPath: "split(element.image, ':')"}}
        preconditions:
          all: [{key: "{{ image[1] }}", operator: Equals, value: latest}]
        patchStrategicMerge:
          spec: {containers: [{name: "{{ element.name }}", image: "{{ image[0] }}:1"}]}
      - list: target.spec.containers[].image
        patchesJson6902: |-
          - op: add
            path: /metadata/annotations/{{ element }}
            value: "{{ elementIndex }}"
"""
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "a", "annotations": {}},
    "spec": {"containers": [{"name": "c", "image": "x:latest"}, {"name": "d", "image": "y:2"}]},
}


def test_elements_are_explained_one_by_one(desk: Desk) -> None:
    lines = desk.explanation(policy=FOREACH, object_source=[POD])
    first = lines.index('element 0 = {"image": "x:latest", "name": "c"}')
    assert lines[first + 1 : first + 5] == [
        'context[0] image = ["x", "latest"]',
        'yes   preconditions.all[0]: {{ image[1] }} = "latest"  Equals  "latest"',
        '{{ element.name }} = "c"',
        '{{ image[0] }} = "x"',
    ]
    second = lines.index('element 1 = {"image": "y:2", "name": "d"}')
    assert lines[second + 2 : second + 4] == [
        'no    preconditions.all[0]: {{ image[1] }} = "2"  Equals  "latest"',
        "no    the element is left out: preconditions not met",
    ]
    # The second block sees the result of the first one.
    assert 'foreach target.spec.containers[].image = ["x:1", "y:2"]' in lines
    assert "{{ elementIndex }} = 1" in lines


def notes_of(notes: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for note in notes:
        yield note
        yield from notes_of(note.get("notes", []))


def test_json_output_contains_whole_values(desk: Desk) -> None:
    trigger = {**TRIGGER, "data": {"mode": "x" * 1000}}
    found = json.loads("\n".join(desk.explanation("-o", "json", trigger=trigger)))
    notes = list(notes_of(found))
    assert [note["kind"] for note in found] == ["policy"]
    entry = next(note for note in notes if note["kind"] == "entry" and note["name"] == "mode")
    assert entry["value"] == "x" * 1000
    assert entry["place"] == "spec.rules[0].context[0]"
    (fires,) = (note for note in notes if note["kind"] == "decision")
    assert fires["answer"] == "yes"
    condition = next(note for note in notes if note["kind"] == "precondition")
    assert condition["sides"][0] == {"written": "{{ request.operation }}", "value": "UPDATE"}
    results = {note["status"] for note in notes if note["kind"] == "result"}
    assert results == {"pass"}


def test_given_values_are_used(desk: Desk) -> None:
    values = desk.write(
        "values.yaml",
        """
        apiVersion: cli.kyverno.io/v1alpha1
        kind: Values
        policies:
        - name: reload
          rules: [{name: stamp, values: {extra.data.k: given}}]
        namespaceSelector: [{name: a, labels: {team: x}}]
        """,
    )
    words = ["-f", values, "--set", "request.operation=UPDATE"]
    lines = desk.explanation(*words, object_source=[deployment("web", "a")])
    assert '{{ extra.data.k }} = "given"' in lines
    assert any('{{ request.operation }} = "UPDATE"' in line for line in lines)
    assert "yes   the rule fires" in lines


EXCEPTION = """
apiVersion: kyverno.io/v2
kind: PolicyException
metadata: {name: %s, namespace: a}
spec:
  exceptions: [{policyName: reload, ruleNames: [st*]}]
  match: {any: [{resources: {kinds: [ConfigMap], names: [%s]}}]}
"""


@pytest.mark.parametrize(("name", "fires"), [("settings", False), ("others", True)])
def test_exceptions_of_triggers_are_applied(desk: Desk, name: str, fires: bool) -> None:
    lines = desk.explanation("--exception", desk.write("exception.yaml", EXCEPTION % ("e", name)))
    assert ("yes   the rule fires" in lines) is fires
    assert f"{'no ' if fires else 'yes'}   PolicyException a/e" in lines


@pytest.mark.parametrize(("names", "excepted"), [("[web]", True), ("[api]", False)])
def test_exceptions_of_targets_are_applied(desk: Desk, names: str, excepted: bool) -> None:
    text = EXCEPTION.replace("[ConfigMap]", "[Deployment]").replace("[%s]", names)
    lines = desk.explanation("--exception", desk.write("exception.yaml", text % "e"))
    assert "yes   the rule fires" in lines
    assert f"{'yes' if excepted else 'no '}   PolicyException a/e" in lines
    assert ("no    an exception is made for this target" in lines) is excepted


CALLING = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: call}
spec:
  rules:
  - name: call
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    context:
    - name: size
      apiCall:
        urlPath: /api/v1/namespaces/a/secrets
        jmesPath: "length(items[0].data.mode)"
    - name: plain
      apiCall: {urlPath: /api/v1/namespaces/a/secrets, jmesPath: "items[].data.mode"}
    - {name: other, variable: {jmesPath: "length(plain[0])"}}
    preconditions:
      all: [{key: "{{ size }}", operator: GreaterThan, value: 0}]
    mutate:
      targets: [{apiVersion: v1, kind: ConfigMap, namespace: a, name: extra}]
      foreach:
      - list: plain
        context: [{name: up, variable: {jmesPath: "to_upper(element)"}}]
        patchStrategicMerge: {metadata: {annotations: {"{{ up }}": "{{ other }}"}}}
"""


def test_an_entry_that_reads_the_target_is_shown_for_each_target(desk: Desk) -> None:
    path = "target.metadata.annotations.mode || 'none'"
    entry = {"name": "was", "variable": {"jmesPath": path}}
    policy = yaml.safe_load(POLICY)
    policy["spec"]["rules"][0]["context"].append(entry)
    lines = desk.explanation(policy=yaml.safe_dump(policy))
    shown = [line for line in lines if " was" in line]
    assert shown == ['context[2] was = "strict"', 'context[2] was = "none"']
    assert lines.index(shown[0]) > lines.index("yes   the rule fires")


@pytest.mark.parametrize("output", ["text", "json"])
def test_data_that_an_entry_reads_from_secrets_is_not_shown(desk: Desk, output: str) -> None:
    lines = desk.explanation("-o", output, policy=CALLING, object_source=[SECRET, EXTRA])
    text = "\n".join(lines)
    encoded = SECRET["data"]["mode"]
    assert "mutated ConfigMap/extra" in text
    for hidden in (encoded, encoded.upper(), PASSWORD, str(len(encoded))):
        assert hidden not in text


@pytest.mark.parametrize(
    ("computed", "shown"),
    [
        ("{{ length(request.object.data.mode) }}", False),
        ("len-{{ length(request.object.data.mode) }}", False),
        ("{{ length(request.object.data.mode) == `20` }}", True),
        ("is-{{ length(request.object.data.mode) == `20` }}", True),
        ("{{ multiply(length(request.object.data.mode), `1000`) }}", True),
    ],
)
def test_numbers_computed_from_secrets_are_not_shown(
    desk: Desk, computed: str, shown: bool
) -> None:
    policy = yaml.safe_load(SECRETIVE)
    rule = policy["spec"]["rules"][0]
    del rule["context"], rule["preconditions"]
    rule["mutate"]["patchStrategicMerge"] = {"metadata": {"annotations": {"made": computed}}}
    text = "\n".join(
        desk.explanation(policy=yaml.safe_dump(policy), trigger=SECRET, object_source=[EXTRA])
    )
    assert "yes   mutated ConfigMap/extra in namespace a" in text
    assert ("+++ after" in text) is shown
    for hidden in ("20000", "len-20", "made: 20", "True", "true"):
        assert hidden not in text


def test_data_that_an_entry_of_a_foreach_reads_from_secrets_is_not_shown(desk: Desk) -> None:
    policy = yaml.safe_load(CALLING)
    rule = policy["spec"]["rules"][0]
    (block,) = rule["mutate"]["foreach"]
    block["context"] = [{"name": "up", "apiCall": rule["context"][0]["apiCall"]}]
    block["list"] = "['one']"
    block["patchStrategicMerge"]["metadata"]["annotations"] = {"length": "{{ up }}"}
    del rule["context"], rule["preconditions"]
    lines = desk.explanation(policy=yaml.safe_dump(policy), object_source=[SECRET, EXTRA])
    assert "context[0] up = ***" in lines
    assert "{{ up }} = ***" in lines
    assert "yes   mutated ConfigMap/extra in namespace a" in lines
    assert "open  the diff is not shown: the patch contains data of a Secret" in lines


def test_targets_above_the_limit_are_counted_and_not_listed(desk: Desk) -> None:
    object_source = [NAMESPACE, EXTRA, *(deployment(f"web-{index}", "a") for index in range(25))]
    lines = desk.explanation(object_source=object_source)
    assert "and 5 more that are selected; name one with --target" in lines
    assert sum(line.endswith("is selected") for line in lines) == 20


OWN = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: own}
spec:
  rules:
  - name: first
    match: {any: [{resources: {kinds: [ConfigMap, Secret]}}]}
    mutate:
      patchStrategicMerge: {metadata: {labels: {"step{{ to_string(`1`) }}": one}}}
  - name: second
    match:
      any:
      - resources: {kinds: [ConfigMap, Secret], selector: {matchLabels: {step1: one}}}
    mutate:
      foreach:
      - list: "['a']"
        patchStrategicMerge: {metadata: {labels: {"step{{ element }}": two}}}
      - list: "[request.object.metadata.labels.stepa]"
        patchStrategicMerge: {metadata: {labels: {made: "{{ element }}"}}}
"""


def test_a_rule_without_targets_is_explained_on_the_result_of_earlier_rules(desk: Desk) -> None:
    lines = desk.explanation(policy=OWN, object_source=None)
    second = lines.index("rule second (spec.rules[1])")
    assert "the trigger itself" in lines[:second]
    assert '{{ to_string(`1`) }} = "1"' in lines[:second]
    assert "yes   mutated ConfigMap/settings in namespace a" in lines[:second]
    assert "+    step1: one" in lines[:second]
    assert 'foreach [request.object.metadata.labels.stepa] = ["two"]' in lines[second:]
    assert {"step1: one", "+    stepa: two", "+    made: two"} <= set(lines[second:])


def test_a_secret_that_a_rule_without_targets_changes_is_not_shown(desk: Desk) -> None:
    text = "\n".join(desk.explanation(policy=OWN, trigger=SECRET, object_source=None))
    assert "+    step1: one" in text
    assert SECRET["data"]["mode"] not in text


def test_later_rules_under_apply_rules_one_are_reported_as_not_acting(
    desk: Desk,
) -> None:
    policy = yaml.safe_load(OWN)
    policy["spec"]["applyRules"] = "One"
    lines = desk.explanation(policy=yaml.safe_dump(policy), object_source=None)
    second = lines.index("rule second (spec.rules[1])")
    expected = (
        "no    the rule does not act: rule first comes first, and the policy has applyRules: One"
    )
    assert lines[second + 1 :] == [expected]

    policy = yaml.safe_load(POLICY)
    policy["spec"]["applyRules"] = "One"
    (rule,) = policy["spec"]["rules"]
    policy["spec"]["rules"] = [
        {**rule, "name": "other", "match": {"any": [{"resources": {"kinds": ["Node"]}}]}},
        rule,
        {**rule, "name": "third"},
    ]
    lines = desk.explanation(policy=yaml.safe_dump(policy))
    assert "yes   the rule fires" in lines
    assert lines[lines.index("rule third (spec.rules[2])") + 1 :] == [
        "no    the rule does not act: rule stamp comes first, and the policy has applyRules: One"
    ]


@dataclass(frozen=True)
class Says:
    """A refusal whose message quotes the object."""

    heading = ""

    def message(self, context: Context) -> str:
        mode = context.data["request"]["object"]["data"].get("mode")
        if mode is None:
            raise EvaluationError("it has no mode")
        return f"not with {mode}"


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [
        (TRIGGER, "the request is refused: not with strict"),
        (SECRET, "the request is refused: not with ***"),
        ({**TRIGGER, "data": {}}, "it has no mode"),
    ],
)
async def test_the_message_of_a_refusal_is_reported_without_secrets(
    trigger: Object, expected: str
) -> None:
    rule = replace(make_rule("r"), verdict=Says())
    compiled = CompiledPolicy(ref=rule.origin.policy, uid="u", generation=1, programs=(rule,))
    writer = OutlineWriter()
    plan = Plan(
        policies=[],
        requests=[],
        object_source=FileObjectSource(FileObjects([trigger, NAMESPACE]), {}),
        desk=DeskValues(),
        exceptions=(),
    )
    await Explanation(
        policy={"spec": {}},
        compiled=compiled,
        plan=plan,
        request=Request(operation=None, obj=trigger),
        writer=writer,
    ).tell()
    result = writer.notes[0].notes[0].notes[-1]
    assert (result.kind, result.mark, result.text) == ("result", FAIL, expected)


def test_json_output_sends_no_control_characters_to_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY.replace("name: stamp", 'name: "x\\x9b2J"', 1))
    done = CliRunner().invoke(retrofit, ["explain", str(path), "-o", "json"])
    assert "\x9b" not in done.stdout
    assert json.loads(done.stdout)[0]["notes"][0]["rule"] == "x\x9b2J"
