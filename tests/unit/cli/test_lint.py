"""`retrofit lint`: its lines, its exit codes."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from reconciler.cli.lint import namespaced
from reconciler.cli.main import retrofit

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
        ("a: [", [], 2),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n", [], 2),
        (GOOD, ["--absent"], 2),
    ],
)
def test_exit_codes(policy: str, words: list[str], code: int) -> None:
    assert lint("-", *words, stdin=policy).exit_code == code


def test_a_line_names_file_policy_place_level_and_code(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(ERROR + FOREIGN)
    done = lint(str(tmp_path))
    assert done.stdout == (
        f"{file}:p:spec.rules[0].mutate.patchStrategicMerge.metadata.labels.x  ERROR"
        "  unquoted-value  this is a number; labels and annotations hold only text"
        " -> put the value in quotes\n"
    )
    assert done.stderr == "1 policy: 1 error, 0 warnings, 0 notes\n"


def test_notes_can_be_left_out() -> None:
    assert "trigger-is-target" in lint("-", stdin=NOTE).stdout
    assert lint("-", "--no-notes", stdin=NOTE).stdout == ""


def test_json() -> None:
    policies = f"{GOOD}\n---\n{WARNING}"
    (row,) = json.loads(lint("-o", "json", "-", stdin=policies).stdout)
    assert row.pop("text")
    assert row.pop("cure")
    assert row == {
        "file": "stdin",
        "policy": "p",
        "place": "spec.rules[0].mutate.targets[0]",
        "level": "warning",
        "code": "whole-cluster",
    }


def test_a_list_of_policies() -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "kyverno.io/v1"}]}
    listed["items"][0] |= {"kind": "Policy", "metadata": {"name": "q", "namespace": "n"}}
    done = lint("-", stdin=json.dumps(listed))
    assert (
        done.stdout == "stdin:n/q:spec.rules  ERROR  invalid  a policy needs at least one rule\n"
    )


def test_a_file_that_cannot_be_read_is_one_line() -> None:
    done = lint("absent.yaml")
    assert (done.exit_code, done.stderr) == (2, "Error: absent.yaml: there is no such file\n")


def test_what_is_known_of_kinds() -> None:
    assert namespaced("apps/v1", "Deployment") is True
    assert namespaced("*", "Node") is False
    assert namespaced("acme.io/v1", "Widget") is None
    assert namespaced("*", "*") is None


def test_an_entry_is_checked_beside_policies() -> None:
    done = lint("-", stdin=f"{GOOD}---{ENTRY % ('e', 'Pod')}")
    place = "stdin:e:spec.kubernetesResource.resource"
    assert done.stdout.startswith(f"{place}  ERROR  invalid  write the plural")
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
def test_an_exception_beside_its_policy(
    policy: str, rules: str, found: list[tuple[str, str, str]]
) -> None:
    done = lint("-", "-o", "json", stdin=GOOD + EXCEPTION % (policy, rules))
    rows = json.loads(done.stdout)
    assert [(row["place"], row["level"], row["code"]) for row in rows] == found
    assert {row["policy"] for row in rows} <= {"a/e"}


def test_exceptions_are_counted_apart() -> None:
    done = lint("-", stdin=EXCEPTION % ("p", "[r]"))
    assert done.stderr == "1 exception: 0 errors, 0 warnings, 1 note\n"
    assert done.exit_code == 0
