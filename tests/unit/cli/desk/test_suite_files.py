"""The test files that `retrofit test` accepts, and its messages for rows that it cannot run."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.cli.desk.conftest import Desk

Policy = Callable[..., str]

HEAD = "apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\n"
CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n"
LABEL = """
- name: label
  match: {any: [{resources: {kinds: [ConfigMap]}}]}
  mutate: {patchStrategicMerge: {metadata: {labels: {a: b}}}}
"""
CEL = """
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: cel}
spec: {validations: [{expression: "true"}]}
"""
GENERATE = """
- name: make
  match: {any: [{resources: {kinds: [ConfigMap]}}]}
  generate: {apiVersion: v1, kind: Secret, name: s, namespace: default, data: {}}
"""


def rows(desk: Desk, *words: str) -> list[dict[str, Any]]:
    done = desk.run("test", ".", "-o", "json", *words)
    document = json.loads(done.stdout)
    assert document["broken"] == []
    return [row for test in document["tests"] for row in test["rows"]]


@pytest.fixture
def files(desk: Desk, policy: Policy) -> Desk:
    policy(LABEL)
    desk.write("one.yaml", CONFIG_MAP)
    desk.write("cel.yaml", CEL)
    return desk


def test_fields_for_policies_of_other_languages_are_accepted(files: Desk) -> None:
    files.write(
        "kyverno-test.yaml",
        f"""\
{HEAD}name: old
policies: [p.yaml, cel.yaml]
resources: [one.yaml]
context: context.yaml
jsonPayload: payload.json
jsonPayloads: [payload.json]
httpPayloads: [payload.json]
envoyPayloads: [payload.json]
values: {{variables: {{a: b}}}}
results:
- {{policy: p, rule: label, resources: [one], kind: ConfigMap, result: pass}}
- {{policy: cel, isValidatingPolicy: true, resources: [one], kind: ConfigMap, result: pass}}
""",
    )
    own, foreign = rows(files)
    assert own["end"] == "Pass"
    assert (foreign["end"], foreign["policy"]) == ("Not run", "cel")
    assert "ValidatingPolicy" in foreign["reason"]
    assert "old (" in files.run("test", ".").stdout


def test_rows_that_compare_generated_resources_are_not_run(desk: Desk, policy: Policy) -> None:
    policy(GENERATE)
    desk.write("one.yaml", CONFIG_MAP)
    row = "policy: p, rule: make, resources: [one], kind: ConfigMap, result: pass"
    desk.write(
        "kyverno-test.yaml",
        f"{HEAD}policies: [p.yaml]\nresources: [one.yaml]\nresults:\n"
        f"- {{{row}, generatedResource: a.yaml, cloneSourceResource: b.yaml}}\n"
        f"- {{{row}, generatedResources: [a.yaml, b.yaml]}}\n",
    )
    for output in rows(desk):
        assert output["end"] == "Not run"
        assert output["reason"] == "make is a generate rule; only mutate rules are evaluated"
    assert desk.run("test", ".", "--strict").exit_code == 1


def test_checks_are_reported_as_rows_that_are_not_run(files: Desk) -> None:
    files.write(
        "kyverno-test.yaml",
        f"{HEAD}policies: [p.yaml]\nresources: [one.yaml]\nchecks:\n"
        "- match: {rule: {name: label}}\n  assert: {status: pass}\n",
    )
    (row,) = rows(files)
    assert row["end"] == "Not run"
    assert row["location"] == "kyverno-test.yaml:1: checks[0]"
    assert row["policy"] == "checks[0]"
    assert "write results" in row["reason"]


def test_keys_are_case_insensitive(files: Desk) -> None:
    files.write(
        "kyverno-test.yaml",
        """\
ApiVersion: cli.kyverno.io/v1alpha1
Kind: Test
Metadata: {name: t}
Policies: [p.yaml]
RESOURCES: [one.yaml]
values: {GlobalValues: {a: b}, NamespaceSelector: [{Name: default, Labels: {a: b}}]}
userInfo: user.yaml
results:
- {Policy: p, rULE: label, resourcespecs: [{Name: one, Kind: ConfigMap}], kind: ConfigMap,
   isMUtatingPolicy: false, Result: pass}
""",
    )
    files.write(
        "user.yaml",
        "apiVersion: cli.kyverno.io/v1alpha1\nkind: UserInfo\nClusterRoles: [a]\n"
        "UserInfo: {Username: ann}\n",
    )
    (row,) = rows(files)
    assert row["end"] == "Pass"


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("{name: one, kind: Secret}", "the test has no Secret one"),
        ("{name: one, namespace: other, kind: ConfigMap}", "the test has no ConfigMap other/one"),
    ],
)
def test_a_resource_spec_must_match_kind_and_namespace(
    files: Desk, spec: str, reason: str
) -> None:
    files.write(
        "kyverno-test.yaml",
        f"{HEAD}policies: [p.yaml]\nresources: [one.yaml]\nresults:\n"
        f"- {{policy: p, rule: label, resourceSpecs: [{spec}], result: pass}}\n",
    )
    (row,) = rows(files)
    assert (row["end"], row["message"]) == ("Fail", reason)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("polices: [p.yaml]", ".polices: unknown field 'polices', did you mean policies?"),
        (
            "results: [{policy: p, rul: label, result: pass}]",
            "results[0].rul: unknown field 'rul', did you mean rule?",
        ),
        (
            "results: [{policy: p, Policy: q, result: pass}]",
            "results[0].Policy: the field policy is given twice",
        ),
        ("values: {zzz: 1}", "values.zzz: unknown field 'zzz', expected one of globalValues"),
        (
            "globalContextEntries: [{name: e, data: {}, resourceFile: []}]",
            (
                "globalContextEntries[0].resourceFile: unknown field 'resourceFile', did you mean"
                " resourceFiles?"
            ),
        ),
        (
            "globalContextEntries: [{name: e, data: {}, resources: []}]",
            (
                "globalContextEntries[0]: expected one of data, resources, resourceFiles,"
                " found data and resources"
            ),
        ),
        ("globalContextEntries: [{name: e}]", "found none"),
        (
            "globalContextEntries: [{name: e, data: {}, projections: [{name: a, path: 'a['}]}]",
            "globalContextEntries[0].projections[0].path: ",
        ),
        (
            "globalContextEntries: [{name: e, data: {}, fieldPath: b}]",
            'globalContextEntries[0].fieldPath: Unknown key "b" in path',
        ),
        (
            "globalContextEntries: [{name: e, resourceFiles: [absent.yaml]}]",
            "absent.yaml: there is no such file",
        ),
    ],
)
def test_an_invalid_test_file_is_reported_in_one_line(
    files: Desk, text: str, message: str
) -> None:
    files.write("kyverno-test.yaml", f"{HEAD}{text}\n")
    done = files.run("test", ".")
    assert done.exit_code == 1
    first, _ = done.stdout.splitlines()
    assert first.startswith("kyverno-test.yaml")
    assert message in first


READING = """
- name: read
  match: {{any: [{{resources: {{kinds: [ConfigMap]}}}}]}}
  context: [{{name: found, globalReference: {{name: {name}, jmesPath: "{path}"}}}}]
  mutate: {{patchStrategicMerge: {{metadata: {{labels: {{found: "{{{{ found }}}}"}}}}}}}}
"""
APPS = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
"""


@pytest.mark.parametrize(
    ("entry", "name", "path", "label"),
    [
        ("data: {a: {b: c}}", "e", "a.b", "c"),
        ("data: {a: {b: c}}, fieldPath: a", "e", "b", "c"),
        ("resources: [{kind: X, metadata: {name: x}}]", "e", "[0].metadata.name", "x"),
        ("resourceFiles: [apps.yaml]", "e", "join('-', [].metadata.name)", "web-shop"),
        (
            (
                "resourceFiles: [apps.yaml], fieldPath: '[].metadata',"
                " projections: [{name: last, path: '[-1]'}, {name: count, path: length(@)}]"
            ),
            "e",
            "last.name",
            "shop",
        ),
        (
            "resourceFiles: [apps.yaml], projections: [{name: names, path: '[].metadata.name'}]",
            "e.names",
            "[0]",
            "web",
        ),
    ],
)
def test_a_rule_reads_the_global_context_entries_of_the_test(
    desk: Desk, policy: Policy, entry: str, name: str, path: str, label: str
) -> None:
    policy(READING.format(name=name, path=path))
    desk.write("one.yaml", CONFIG_MAP)
    desk.write("apps.yaml", APPS)
    desk.write("patched.yaml", CONFIG_MAP.replace("one", f"one, labels: {{found: {label}}}"))
    desk.write(
        "kyverno-test.yaml",
        f"{HEAD}policies: [p.yaml]\nresources: [one.yaml]\n"
        f"globalContextEntries: [{{name: e, {entry}}}]\nresults:\n"
        "- {policy: p, rule: read, resources: [one], result: pass,"
        " patchedResources: patched.yaml}\n",
    )
    (row,) = rows(desk)
    assert (row["end"], row["diff"]) == ("Pass", []), row


def test_of_two_triggers_of_one_name_the_first_counts(files: Desk) -> None:
    """As in Kyverno, which warns as well."""
    files.write("two.yaml", CONFIG_MAP.replace("one}", "one, labels: {a: x}}"))
    row = "policy: p, rule: label, resources: [one], kind: ConfigMap"
    files.write(
        "kyverno-test.yaml",
        f"{HEAD}policies: [p.yaml]\nresources: [one.yaml, two.yaml]\nresults:\n"
        f"- {{{row}, result: pass, patchedResources: after.yaml}}\n",
    )
    files.write("after.yaml", CONFIG_MAP.replace("one}", "one, labels: {a: b}}"))
    files.write("p.yaml", (files.folder / "p.yaml").read_text().replace("{a: b}", "{+(a): b}"))
    done = files.run("test", ".")
    assert done.exit_code == 0, done.output
    assert done.stderr == (
        "kyverno-test.yaml: resources has ConfigMap default/one more than once: the first counts\n"
    )


@pytest.mark.parametrize(
    ("head", "more", "said"),
    [
        ("metadata: 5\n", "", "metadata: expected an object, got a number"),
        ("metadata: {name: 5}\n", "", "metadata.name: expected a string"),
        ("", ", failOnMissingResources: yes please", "results[0].failOnMissingResources: "),
        ("", ", resourceSpecs: [{name: one, group: 5}]", "results[0].resourceSpecs[0].group: exp"),
        ("apiCallResponses: [{urlPath: /a, method: 5, response: {}}]\n", "",
         "apiCallResponses[0].method: expected a string"),
    ],
)  # fmt: skip
def test_a_field_of_the_wrong_type_is_an_error(
    files: Desk, head: str, more: str, said: str
) -> None:
    row = f"policy: p, rule: label, resources: [one], kind: ConfigMap, result: pass{more}"
    files.write(
        "kyverno-test.yaml",
        f"{HEAD}{head}policies: [p.yaml]\nresources: [one.yaml]\nresults: [{{{row}}}]\n",
    )
    done = files.run("test", ".")
    assert done.exit_code == 1
    assert f": {said}" in done.stdout
