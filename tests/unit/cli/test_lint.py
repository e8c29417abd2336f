"""The output and the exit codes of `retrofit lint`."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

import reconciler
from reconciler.cli.lint.command import namespaced
from reconciler.cli.lint.positions import Position
from reconciler.cli.lint.report import Row, as_text
from reconciler.cli.lint.rules import RULES
from reconciler.cli.main import retrofit
from reconciler.cli.output.screen import Screen
from reconciler.cli.output.terminal import styled
from reconciler.dialects import finding

POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    mutate:
      targets: [{apiVersion: apps/v1, kind: Deployment, name: web%s}]
      patchStrategicMerge: {metadata: {labels: {x: %s}}}
"""
GOOD = POLICY % (", namespace: a", "z")
WARNING = POLICY % ("", "z")
ERROR = POLICY % (", namespace: a", "1")
NOTE = GOOD.replace("ConfigMap", "Deployment")
FOREIGN = (
    "\n---\nname: no object at all\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"
)


ENTRY = """
apiVersion: kyverno.io/v2
kind: GlobalContextEntry
metadata: {name: %s}
spec: {kubernetesResource: {version: v1, resource: %s}}
"""


def lint(*words: str, stdin: str = "") -> Result:
    return CliRunner().invoke(retrofit, ["lint", *words], input=stdin)


@pytest.mark.parametrize(
    ("policy", "words", "code"),
    [
        (GOOD, [], 0),
        (NOTE, ["--strict"], 0),
        (WARNING, [], 0),
        (WARNING, ["--strict"], 1),
        (ERROR, [], 1),
        (ENTRY % ("e", "pods"), ["--strict"], 0),
        (ENTRY % ("e", "Pod"), [], 1),
        (ENTRY % ("e.f", "pods"), ["--strict"], 1),
        ("a: [", [], 1),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n", [], 2),
        (GOOD, ["--absent"], 2),
    ],
)
def test_the_exit_code_depends_on_findings_and_strict(
    policy: str, words: list[str], code: int
) -> None:
    assert lint("-", *words, stdin=policy).exit_code == code


def test_a_finding_shows_file_line_level_code_policy_and_place(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(ERROR + FOREIGN)
    done = lint(str(tmp_path))
    assert done.stdout == (
        f"{file}:11:49: error [unquoted-value]"
        " p: spec.rules[0].mutate.patchStrategicMerge.metadata.labels.x:"
        " this is a number; labels and annotations hold only strings"
        " -> put the value in quotes\n"
    )
    assert done.stderr == "1 policy: 1 error, 0 warnings, 0 notes\n"


def test_notes_can_be_left_out() -> None:
    assert "trigger-is-target" in lint("-", stdin=NOTE).stdout
    assert lint("-", "--no-notes", stdin=NOTE).stdout == ""


def test_json_output_contains_all_fields_of_a_finding() -> None:
    policies = f"{GOOD}\n---\n{WARNING}"
    (row,) = json.loads(lint("-o", "json", "-", stdin=policies).stdout)
    assert row.pop("text")
    assert row.pop("cure")
    assert row == {
        "file": "stdin",
        "line": 23,
        "column": 17,
        "policy": "p",
        "place": "spec.rules[0].mutate.targets[0]",
        "level": "warning",
        "code": "whole-cluster",
    }


def test_a_list_of_policies_is_checked() -> None:
    policy = {"apiVersion": "kyverno.io/v1", "kind": "Policy"}
    item = {**policy, "metadata": {"name": "q", "namespace": "n"}}
    listed = {"apiVersion": "v1", "kind": "List", "items": [item]}
    done = lint("-", stdin=json.dumps(listed))
    assert done.stdout == (
        "stdin:1:48: error [invalid] n/q: spec.rules: a policy needs at least one rule\n"
    )


def test_a_missing_file_is_reported_in_one_line() -> None:
    done = lint("absent.yaml")
    assert (done.exit_code, done.stderr) == (2, "Error: absent.yaml: there is no such file\n")


def test_the_scope_of_builtin_kinds_is_known() -> None:
    assert namespaced("apps/v1", "Deployment") is True
    assert namespaced("*", "Node") is False
    assert namespaced("acme.io/v1", "Widget") is None
    assert namespaced("*", "*") is None


def test_an_entry_in_the_same_file_as_policies_is_checked() -> None:
    done = lint("-", stdin=f"{GOOD}---{ENTRY % ('e', 'Pod')}")
    where = "stdin:16:42: error [invalid] e: spec.kubernetesResource.resource: "
    assert done.stdout.startswith(f"{where}use the plural name")
    assert done.stderr.startswith("1 policy and 1 entry: 1 error, ")


EXCEPTION = """
---
apiVersion: kyverno.io/v2
kind: PolicyException
metadata: {name: e, namespace: a}
spec:
  match: {any: [{resources: {kinds: [ConfigMap]}}]}
  exceptions: [{policyName: %s, ruleNames: %s}]
"""


@pytest.mark.parametrize(
    ("policy", "rules", "found"),
    [
        ("p", "['r*', autogen-r]", []),
        ("p", "[r, x]", [("spec.exceptions[0].ruleNames[1]", "warning", "unknown-rule")]),
        ("a/p", "[r]", [("spec.exceptions[0].policyName", "note", "unknown-policy")]),
        ("p", "[]", [("spec.exceptions[0].ruleNames", "error", "invalid")]),
        (
            "'p*'",
            "[r]",
            [
                ("spec", "warning", "not-acted-on"),
                ("spec.exceptions[0].policyName", "note", "unknown-policy"),
            ],
        ),
    ],
)
def test_an_exception_is_checked_against_its_policy(
    policy: str, rules: str, found: list[tuple[str, str, str]]
) -> None:
    done = lint("-", "-o", "json", stdin=GOOD + EXCEPTION % (policy, rules))
    rows = json.loads(done.stdout)
    assert [(row["place"], row["level"], row["code"]) for row in rows] == found
    assert {row["policy"] for row in rows} <= {"a/e"}


def test_exceptions_are_counted_separately() -> None:
    done = lint("-", stdin=EXCEPTION % ("p", "[r]"))
    assert done.stderr == "1 exception: 0 errors, 0 warnings, 1 note\n"
    assert done.exit_code == 0


BROKEN = """\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata:
  name: p
spec:
  applyRules: Two
  rules:
    - name: r
      match: &match
        any:
          - resources:
              kinds: [ConfigMap]
              operations: [CREATE, PATCH]
      mutate:
        targets:
          - apiVersion: v1
            kind: Secret
            namespace: "{{ nobody }}"
        patchesJson6902: |-
          - op: add
            path: /metadata/labels/x
            value: {{ request.name }}
          - op: put
            path: /metadata/labels/x
    - name: s
      match: *match
---
a: [
---
apiVersion: kyverno.io/v1
kind: Policy
metadata: {name: q, namespace: a}
spec: {rules: 5, emitWarning: 1}
"""


def places(*words: str, stdin: str = "") -> list[tuple[int, int, str, str]]:
    rows = json.loads(lint("-o", "json", *words, stdin=stdin).stdout)
    return [(row["line"], row["column"], row["code"], row["place"]) for row in rows]


def test_every_error_is_reported_with_its_line() -> None:
    rules = "spec.rules[0]"
    assert places("-", stdin=BROKEN) == [
        (6, 3, "invalid", "spec.applyRules"),
        (13, 36, "invalid", f"{rules}.match.any[0].resources.operations[1]"),
        (13, 36, "crd", "spec.rules[1].match.any[0].resources.operations[1]"),
        (18, 13, "invalid", f"{rules}.mutate.targets[0].namespace"),
        (23, 13, "invalid", f"{rules}.mutate.patchesJson6902[1].op"),
        (25, 7, "invalid", "spec.rules[1]"),
        (29, 1, "unreadable", ""),
        (33, 8, "invalid", "spec.rules"),
        (33, 18, "crd", "spec.emitWarning"),
    ]


def test_an_error_in_the_first_line_of_a_document_is_reported_once() -> None:
    found = places("-", stdin=f"a: 1\n--- !x\nb: 2\n---\n{ERROR.strip()}\n")
    assert found[0][:3] == (2, 5, "unreadable")
    assert [code for _, _, code, _ in found].count("unreadable") == 1
    assert len(found) > 1


def test_an_annotation_that_is_a_number_is_reported_with_its_line() -> None:
    text = ERROR.replace("metadata: {", "metadata: {annotations: {a.b/c: x, d: 5}, ", 1).strip()
    assert places("-", stdin=text) == [(3, 36, "unreadable", "")]
    items = "apiVersion: v1\nkind: List\nitems:\n- " + text.replace("\n", "\n  ")
    assert places("-", stdin=items) == [(6, 38, "unreadable", "")]


def test_a_broken_file_does_not_keep_the_others_from_being_checked(tmp_path: Path) -> None:
    for name, text in {
        "a.yaml": "a: [\n",
        "b.yaml": ERROR,
        "c.json": '{"kind": 1,}',
        "d.yaml": ERROR,
        "kustomization.yaml": "resources: [b.yaml]\n",
        "package.json": '{"name": "x"}',
        "values.yaml": "replicas: 2\n",
    }.items():
        (tmp_path / name).write_text(text)
    done = lint("-o", "github", str(tmp_path))
    assert done.exit_code == 1
    assert [line.partition(",")[0] for line in done.stdout.splitlines()] == [
        f"::error file={tmp_path}/{name}" for name in ("a.yaml", "b.yaml", "c.json", "d.yaml")
    ]


def test_a_missing_file_does_not_keep_the_others_from_being_checked(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(ERROR)
    done = lint(str(tmp_path / "absent.yaml"), str(tmp_path))
    assert done.exit_code == 2
    assert "unquoted-value" in done.stdout
    assert done.stderr.endswith("absent.yaml: there is no such file\n")


def test_findings_in_json_files_have_positions(tmp_path: Path) -> None:
    item = json.loads(json.dumps(yaml.safe_load(ERROR)))
    listed = {"apiVersion": "v1", "kind": "List", "items": [{"note": "\U0001f642"}, item]}
    file = tmp_path / "list.json"
    text = json.dumps(listed, indent="\t").replace("Deployment", "Deploy\\/ment")
    file.write_text(f"\n{text}")
    (found,) = places(str(file))
    line = file.read_text().splitlines()[found[0] - 1]
    assert line[found[1] - 1 :] == '"x": 1'


@pytest.mark.parametrize(
    ("change", "place", "text"),
    [
        (
            ("rules:", "useServerSideApply: 5\n  rules:"),
            "spec.useServerSideApply",
            "true or false, got 5",
        ),
        (
            ("rules:", "schemaValidation: {}\n  rules:"),
            "spec.schemaValidation",
            "true or false, got an object",
        ),
        (
            ("rules:", "validationFailureAction: Loud\n  rules:"),
            "spec.validationFailureAction",
            "Loud is none of",
        ),
        (("kyverno.io/v1", "kyverno.io/v7"), "apiVersion", "kyverno.io/v1, kyverno.io/v2beta1"),
    ],
)
def test_values_that_the_crd_refuses_are_errors(
    change: tuple[str, str], place: str, text: str
) -> None:
    (row,) = json.loads(lint("-o", "json", "-", stdin=GOOD.replace(*change)).stdout)
    assert (row["code"], row["level"], row["place"]) == ("crd", "error", place)
    assert text in row["text"]


def test_a_policy_of_another_api_group_is_skipped() -> None:
    foreign = GOOD.replace("kyverno.io/v1", "iam.example.com/v1")
    assert places("-", stdin=f"{WARNING}---{foreign}") == places("-", stdin=WARNING)


def test_a_null_value_is_accepted_as_absent() -> None:
    assert places("-", stdin=GOOD.replace("rules:", "emitWarning: null\n  rules:")) == []


def test_github_output_escapes_file_names_and_messages(tmp_path: Path) -> None:
    file = tmp_path / "a,b%:c.yaml"
    file.write_text(ERROR.replace("x: 1", '"{{ a }}%": 1'))
    first, *_ = lint("-o", "github", str(file)).stdout.splitlines()
    assert first.startswith(f"::error file={tmp_path}/a%2Cb%25%3Ac.yaml,line=11,col=49,title=")
    assert "%25" in first.rpartition("::")[2]


def test_sarif_points_at_a_rule_and_a_region(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a b.yaml").write_text(ERROR)
    log = json.loads(lint("-o", "sarif", "a b.yaml").stdout)
    (run,) = log["runs"]
    (result,) = run["results"]
    rules = run["tool"]["driver"]["rules"]
    assert log["version"] == "2.1.0"
    assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == "unquoted-value"
    assert result["level"] == "error"
    assert result["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "a%20b.yaml"},
        "region": {"startLine": 11, "startColumn": 49},
    }


def test_text_output_fits_the_width_of_the_terminal() -> None:
    row = Row(
        file="p.yaml",
        position=Position(3, 5),
        policy="p",
        finding=finding.Finding(
            level=finding.Level.WARNING,
            code="append",
            location="spec.rules[0].mutate",
            text="a word " * 20,
            cure="do something " * 10,
        ),
    )
    text = as_text([row, row], Screen(width=60, folding=True))
    assert max(map(len, text.splitlines())) <= 60
    assert text.startswith("p.yaml:3:5: warning [append]\n  p: spec.rules[0].mutate\n  a word")
    assert styled("\x1b[33m") in as_text([row], Screen(coloured=True))


def test_no_escape_sequence_of_a_file_is_written() -> None:
    done = lint("-", stdin=ERROR.replace("name: p", r'name: "p\e[2J"'))
    assert "\x1b" not in done.output


def test_the_page_and_sarif_list_every_code() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "lint.md").read_text()
    table = page.partition("## Codes")[2].partition("##")[0]
    listed = re.findall(r"^\| `([a-z-]+)` ", table, re.MULTILINE)
    package = Path(reconciler.__file__).parent
    folders = ("dialects", "services/authoring", "cli/lint")
    files = [file for folder in folders for file in (package / folder).rglob("*.py")]
    text = "".join(file.read_text() for file in files if file.name != "rules.py")
    reported = set(re.findall(r'(?:code=|\b(?:refusal|warning|note)\(\s*)"([a-z-]+)"', text))
    assert listed == list(RULES)
    assert reported <= RULES.keys()
    assert {code for code in RULES if f'"{code}"' not in text} == set()


HOOK = """
apiVersion: kube-retrofit.dev/v1alpha1
kind: Hook
metadata: {name: h, namespace: shop}
spec:
%s
  run: {operations: [%s]}
"""
COPY = "{operation: Create, object: {apiVersion: v1, kind: ConfigMap, metadata: {name: x%s}}}"
DELETE = "{operation: Delete, kind: Pod, name: x}"
LEASE = "{operation: Delete, apiVersion: coordination.k8s.io/v1, kind: Lease, name: x}"
PACED = "  settings: {executionMinInterval: 5s, executionBurst: 1}\n"


@pytest.mark.parametrize(
    ("spec", "operation", "codes"),
    [
        ("  kubernetes: [{kind: Pod}]", DELETE, []),
        ("  kubernetes: [{kind: Pod, jqFilter: '.a ['}]", DELETE, ["invalid"]),
        ("  kubernetes: [{kind: Pod}]", "{operation: Remove}", ["invalid"]),
        ("  kubernetes: {kind: Pod}", DELETE, ["invalid"]),
        ("  kubernetes: [{kind: Pod}]", LEASE, ["protected-target"]),
        (f"{PACED}  kubernetes: [{{kind: Pod}}]", DELETE, ["shared-queue"]),
        (f"{PACED}  kubernetes: [{{kind: Pod, queue: slow}}]", DELETE, []),
        ('  schedule: [{crontab: "0 0 30 2 *"}]', DELETE, ["never-due"]),
        ('  schedule: [{crontab: "0 0 29 2 *"}]', DELETE, []),
        ("  kubernetes: [{kind: ConfigMap}]", COPY % "", ["may-loop"]),
        ("  kubernetes: [{kind: ConfigMap, executeHookOnEvent: [Deleted]}]", COPY % "", []),
        ('  kubernetes: [{kind: ConfigMap, nameSelector: {matchNames: ["y"]}}]', COPY % "", []),
        ("  kubernetes: [{kind: ConfigMap, labelSelector: {matchLabels: {a: b}}}]", COPY % "", []),
        (
            "  kubernetes: [{kind: ConfigMap, labelSelector: {matchLabels: {a: b}}}]",
            COPY % ", labels: {a: b}",
            ["may-loop"],
        ),
    ],
)
def test_hooks_are_checked(spec: str, operation: str, codes: list[str]) -> None:
    done = lint("-o", "json", "-", stdin=HOOK % (spec, operation))
    assert [row["code"] for row in json.loads(done.stdout)] == codes
    assert "1 hook: " in done.stderr
