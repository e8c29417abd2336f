"""`retrofit test`."""

import json
from collections.abc import Callable
from xml.etree import ElementTree as ET

import pytest

from reconciler.cli.desk.suite.check import NO_MATCH
from tests.unit.cli.desk.conftest import Desk

Policy = Callable[..., str]

RULES = """
- name: label
  match: {any: [{resources: {kinds: [ConfigMap]}}]}
  preconditions:
    all: [{key: "{{ request.object.data.a || '' }}", operator: NotEquals, value: skip}]
  mutate: {patchStrategicMerge: {metadata: {labels: {seen: "{{ request.object.data.a }}"}}}}
- name: check
  match: {any: [{resources: {kinds: [ConfigMap]}}]}
  validate: {pattern: {data: {a: "?*"}}}
- name: spread
  match: {any: [{resources: {kinds: [ConfigMap], names: [one]}}]}
  mutate:
    targets: [{apiVersion: v1, kind: Secret, namespace: default, name: secret}]
    patchStrategicMerge: {metadata: {labels: {from: "{{ request.object.metadata.name }}"}}}
"""
OBJECTS = """
apiVersion: v1
kind: ConfigMap
metadata: {name: one}
data: {a: b}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: two}
data: {a: skip}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: three}
---
apiVersion: v1
kind: Service
metadata: {name: four}
"""
SECRET = """
apiVersion: v1
kind: Secret
metadata: {name: secret}
---
apiVersion: v1
kind: Secret
metadata: {name: other}
"""
PATCHED = """
apiVersion: v1
kind: ConfigMap
metadata: {name: one, namespace: default, labels: {seen: b}, annotations: {}}
data: {a: b}
---
apiVersion: v1
kind: Secret
metadata: {name: secret, labels: {from: one}}
"""


@pytest.fixture
def suite(desk: Desk, policy: Policy) -> Callable[[str], None]:
    policy(RULES)
    desk.write("objects.yaml", OBJECTS)
    desk.write("secret.yaml", SECRET)
    desk.write("patched.yaml", PATCHED)

    def write(rows: str, more: str = "") -> None:
        head = "apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\nmetadata: {name: t}\n"
        files = "policies: [p.yaml]\nresources: [objects.yaml]\ntargetResources: [secret.yaml]\n"
        desk.write("kyverno-test.yaml", f"{head}{files}{more}results:\n{rows}")

    return write


def row(**fields: str) -> str:
    return "- {policy: p, kind: x, " + ", ".join(f"{k}: {v}" for k, v in fields.items()) + "}\n"


@pytest.mark.parametrize(
    ("fields", "end", "reason"),
    [
        ({"rule": "label", "resources": "[one]", "result": "pass"}, "Pass", "Ok"),
        ({"rule": "label", "resources": "[default/one]", "result": "pass",
          "patchedResources": "patched.yaml"}, "Pass", "Ok"),
        ({"rule": "label", "resources": "[two]", "result": "skip"}, "Pass", "Ok"),
        ({"rule": "label", "resources": "[two]", "result": "pass"}, "Fail", "Want pass, got skip"),
        ({"rule": "label", "resources": "[three]", "result": "error"}, "Pass", "Ok"),
        ({"rule": "label", "resources": "[three]", "result": "fail"}, "Pass",
         "Ok: Want fail, got error"),
        ({"rule": "label", "resources": "[four]", "result": "pass"}, "Excluded",
         NO_MATCH),
        ({"rule": "check", "resources": "[one]", "result": "pass"}, "Not run",
         "check is a validate rule; only mutate rules are evaluated"),
        ({"rule": "autogen-check", "resources": "[one]", "result": "pass"}, "Not run",
         "autogen-check is a validate rule; only mutate rules are evaluated"),
        ({"rule": "spread", "resources": "[secret]", "result": "pass",
          "patchedResources": "patched.yaml"}, "Pass", "Ok"),
        ({"rule": "label", "resources": "[two]", "result": "skip",
          "patchedResources": "patched.yaml"}, "Excluded", "nothing to compare with"),
        ({"rule": "label", "resources": "[two]", "result": "skip",
          "failOnMissingResources": "true", "patchedResources": "patched.yaml"},
         "Fail", "Resource error"),
        ({"rule": "label", "resources": "[absent]", "result": "pass"}, "Fail", "Not found"),
        ({"rule": "spread", "resources": "[other]", "result": "skip"}, "Pass", f"Ok: {NO_MATCH}"),
        ({"rule": "label", "resources": "[four]", "result": "skip"}, "Pass", f"Ok: {NO_MATCH}"),
        ({"rule": "label", "resources": "[one]", "result": "fail",
          "patchedResources": "secret.yaml"}, "Pass", "Ok: Resource error"),
        ({"rule": "label", "resources": "[one]", "operation": "DELETE", "result": "pass"},
         "Excluded", NO_MATCH),
    ],
)  # fmt: skip
def test_a_row_has_the_expected_end_and_reason(
    desk: Desk, suite: Callable[..., None], fields: dict[str, str], end: str, reason: str
) -> None:
    suite(row(**fields))
    done = desk.run("test", ".", "-o", "json")
    (found,) = json.loads(done.stdout)["tests"][0]["rows"]
    assert (found["end"], found["reason"]) == (end, reason)
    # A row whose objects are excluded tested nothing, and neither did a row that was not run.
    codes = {"Pass": 0, "Fail": 1, "Excluded": 1, "Not run": 2}
    assert done.exit_code == codes[end]
    strict = desk.run("test", ".", "--strict")
    assert strict.exit_code == (end != "Pass")


def test_a_difference_is_shown(desk: Desk, suite: Callable[..., None]) -> None:
    desk.write("patched.yaml", PATCHED.replace("seen: b", "seen: c"))
    suite(row(rule="label", resources="[one]", result="pass", patchedResources="patched.yaml"))
    done = desk.run("test", ".")
    assert done.exit_code == 1
    assert "  Fail      p/label  ConfigMap/default/one  Resource diff\n" in done.stdout
    assert "      -    seen: c\n      +    seen: b\n" in done.stdout
    assert done.stdout.endswith("0 passed, 1 failed, 0 excluded, 0 not run, 0 broken tests\n")


def test_a_row_without_objects_applies_to_all_objects(
    desk: Desk, suite: Callable[..., None]
) -> None:
    suite(row(rule="spread", result="pass", patchedResources="patched.yaml"))
    done = desk.run("test", ".", "-o", "json")
    ends = {item["object"]: item["end"] for item in json.loads(done.stdout)["tests"][0]["rows"]}
    judged = {name for name, end in ends.items() if end != "Excluded"}
    assert judged == {"ConfigMap/default/one", "Secret/default/secret"}
    assert {ends[name] for name in judged} == {"Pass"}


def test_an_unchanged_target_is_reported_as_skipped(
    desk: Desk, suite: Callable[..., None], policy: Policy
) -> None:
    policy(
        RULES.replace("name: secret}]", "preconditions: {all: [%s]}}]")
        % '{key: "{{ target.metadata.name }}", operator: Equals, value: secret}'
    )
    suite(row(rule="spread", resources="[other]", result="skip"))
    done = desk.run("test", ".", "--strict")
    assert done.exit_code == 0
    assert "  Pass      p/spread  Secret/default/other  Ok" in done.stdout


def test_junit_output_counts_failures_skipped_rows_and_broken_tests(
    desk: Desk, suite: Callable[..., None]
) -> None:
    suite(
        row(rule="label", resources="[one]", result="pass")
        + row(rule="label", resources="[two]", result="pass")
        + row(rule="check", resources="[one]", result="pass")
    )
    desk.write("other/kyverno-test.yaml", "kind: Test\n")
    root = ET.fromstring(desk.run("test", ".", "-o", "junit").stdout)
    suites = {item.get("name"): item for item in root}
    assert suites["t"].attrib | {"file": ""} == {
        "name": "t", "file": "", "tests": "3", "failures": "1", "skipped": "1",
    }  # fmt: skip
    assert [len(case) for case in suites["t"]] == [0, 1, 1]
    assert suites["broken"].get("errors") == "1"


def test_values_can_be_given_in_the_test_file(
    desk: Desk, suite: Callable[..., None], policy: Policy
) -> None:
    entry = "  context: [{name: given, configMap: {name: none}}]\n  preconditions"
    rules = RULES.replace('"{{ request.object.data.a }}"', '"{{ given.x }}"')
    policy(rules.replace("  preconditions", entry, 1))
    suite(
        row(rule="label", resources="[one]", result="pass", patchedResources="patched.yaml"),
        "values: {policies: [{name: p, rules: [{name: label, values: {given.x: b}}]}]}\n",
    )
    assert desk.run("test", ".").exit_code == 0


def test_policies_of_another_language_are_not_run(desk: Desk, suite: Callable[..., None]) -> None:
    desk.write(
        "p.yaml",
        """
        apiVersion: policies.kyverno.io/v1
        kind: MutatingPolicy
        metadata: {name: p}
        """,
    )
    suite(row(result="pass", resources="[one]"))
    done = desk.run("test", ".")
    assert done.exit_code == 2
    assert "1 not run" in done.stdout
    assert "nothing was tested" in done.stderr


def test_an_invalid_policy_fails_its_rows(
    desk: Desk, suite: Callable[..., None], policy: Policy
) -> None:
    policy(RULES.replace("patchStrategicMerge", "patch"))
    suite(row(rule="label", resources="[one]", result="skip"))
    done = desk.run("test", ".")
    assert done.exit_code == 1
    assert "Invalid policy: " in done.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "kyverno-test.yaml:2:1: is not YAML"),
        ("kind: Values", "expected apiVersion cli.kyverno.io/v1alpha1 and kind Test"),
        (
            "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nspec: {}",
            "expected apiVersion cli.kyverno.io/v1alpha1 and kind Test, found kyverno.io/v1 and",
        ),
        ("kind: Test\napiVersion: cli.kyverno.io/v1\nmore: 1", "unknown field 'more'"),
        (
            "kind: Test\napiVersion: cli.kyverno.io/v1\nresults: [{policy: p, result: good}]",
            "results[0].result: expected one of pass, fail, skip, warn, error",
        ),
        (
            "{kind: Test, apiVersion: cli.kyverno.io/v1, policies: [absent.yaml]}",
            "absent.yaml: there is no such file",
        ),
    ],
)
def test_a_broken_test_is_reported_in_one_line(desk: Desk, text: str, message: str) -> None:
    desk.write("kyverno-test.yaml", text)
    done = desk.run("test", ".")
    assert done.exit_code == 1
    first, last = done.stdout.splitlines()
    assert message in first
    assert first.startswith("kyverno-test.yaml")
    assert last.endswith("1 broken test")


def test_a_folder_without_tests_is_an_error(desk: Desk) -> None:
    done = desk.run("test", ".")
    assert done.exit_code == 2
    assert done.stderr == "Error: .: no kyverno-test.yaml or hook-test.yaml found\n"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"rule": "labl"}, "the policy p has no rule labl; did you mean label?"),
        ({"rule": "chek"}, "the policy p has no rule chek; did you mean check?"),
        ({"rule": "label", "resources": "[one, twoo]"}, "has no object twoo; did you mean two?"),
        ({"rule": "spread", "resources": "[default/secert]"}, "did you mean default/secret?"),
        ({"rule": "label", "resources": "[other/one]"}, "the test has no object other/one"),
    ],
)
def test_a_misspelt_rule_or_object_fails_the_test(
    desk: Desk, suite: Callable[..., None], fields: dict[str, str], said: str
) -> None:
    suite(row(**{"result": "pass", **fields}))
    done = desk.run("test", ".")
    assert done.exit_code == 1
    assert said in done.stdout


def test_a_misspelt_policy_fails_the_test(desk: Desk, suite: Callable[..., None]) -> None:
    suite(row(rule="label", result="pass").replace("policy: p,", "policy: pp,"))
    done = desk.run("test", ".")
    assert done.exit_code == 1
    assert "the test has no policy pp; did you mean p?" in done.stdout


def test_an_entry_that_tested_nothing_fails_the_test(
    desk: Desk, suite: Callable[..., None]
) -> None:
    idle = row(rule="label", resources="[four]", result="pass")
    suite(row(rule="label", resources="[one]", result="pass") + idle)
    done = desk.run("test", ".")
    assert done.exit_code == 1
    assert "1 passed, 0 failed, 1 excluded, 0 not run, 0 broken tests\n" in done.stdout
    assert "kyverno-test.yaml:1: results[1] tested nothing" in done.stdout
    root = ET.fromstring(desk.run("test", ".", "-o", "junit").stdout)
    assert [item.get("failures") for item in root] == ["1"]
    # As in the reference, this is no failure if the row tested another object.
    suite(row(rule="label", resources="[one, four]", result="pass"))
    done = desk.run("test", ".")
    assert done.exit_code == 0
    assert "1 passed, 0 failed, 1 excluded" in done.stdout


def test_rows_that_are_not_run_do_not_fail_a_test_with_other_rows(
    desk: Desk, suite: Callable[..., None]
) -> None:
    checked = row(rule="check", resources="[one]", result="pass")
    suite(checked)
    assert desk.run("test", ".").exit_code == 2
    suite(row(rule="label", resources="[one]", result="pass") + checked)
    done = desk.run("test", ".")
    assert done.exit_code == 0
    assert "1 passed, 0 failed, 0 excluded, 1 not run" in done.stdout


def test_a_row_for_a_controller_finds_the_copy_of_a_rule_with_a_long_name(
    desk: Desk, policy: Policy
) -> None:
    """The names of generated rules are cut at 63 characters."""
    name = "x" * 60
    policy(
        f"- name: {name}\n"
        "  match: {any: [{resources: {kinds: [Pod]}}]}\n"
        "  mutate: {patchStrategicMerge: {spec: {priority: 5}}}\n"
    )
    desk.write("d.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n")
    head = "apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\nmetadata: {name: t}\n"
    result = row(rule=name, resources="[d]", result="pass").replace("kind: x", "kind: Deployment")
    files = f"policies: [p.yaml]\nresources: [d.yaml]\nresults:\n{result}"
    desk.write("kyverno-test.yaml", head + files)
    done = desk.run("test", ".")
    assert (done.exit_code, "1 passed" in done.stdout) == (0, True), done.stdout


def test_patched_resources_may_be_a_list_of_files(desk: Desk, suite: Callable[..., None]) -> None:
    one, secret = PATCHED.split("---\n")
    desk.write("one.yaml", one)
    desk.write("secret-patched.yaml", secret)
    files = "[one.yaml, secret-patched.yaml]"
    suite(row(rule="spread", resources="[secret]", result="pass", patchedResources=files))
    assert desk.run("test", ".").exit_code == 0
    suite(row(rule="label", resources="[one]", result="pass", patchedResources=files))
    assert desk.run("test", ".").exit_code == 0
    suite(row(rule="label", resources="[two]", result="pass", patchedResources=files))
    assert "one.yaml, secret-patched.yaml has no ConfigMap two" in desk.run("test", ".").stdout
    suite(row(rule="label", resources="[two]", result="pass", patchedResources="{a: b}"))
    broken = desk.run("test", ".").stdout
    assert "results[0].patchedResources: expected a file or a list of files" in broken


@pytest.mark.parametrize(
    ("selector", "tested"),
    [
        ("rule=label", ["one", "two"]),
        ("policy=p,rule=l*", ["one", "two"]),
        ("policy=other", []),
        ("resource=o*", ["one"]),
        ("resource=default/*", ["one", "secret", "two"]),
        ("resource=other/*", []),
        ("rule=spread, resource=*", ["secret"]),
        ("", ["one", "secret", "two"]),
    ],
)
def test_rows_can_be_selected(
    desk: Desk, suite: Callable[..., None], selector: str, tested: list[str]
) -> None:
    suite(
        row(rule="label", resources="[one, two]", result="pass")
        + row(rule="spread", resources="[default/secret]", result="pass")
    )
    done = desk.run("test", ".", "-t", selector, "-o", "json")
    rows = json.loads(done.stdout)["tests"][0]["rows"]
    assert sorted(item["object"].rpartition("/")[2] for item in rows) == tested
    if not tested:
        assert done.exit_code == 2
        assert done.stderr == "nothing was tested: no row fits --test-case-selector\n"


@pytest.mark.parametrize("selector", ["label", "rule=", "role=x", "rule=a,rule=b"])
def test_an_invalid_selector_is_refused(
    desk: Desk, suite: Callable[..., None], selector: str
) -> None:
    suite(row(rule="label", resources="[one]", result="pass"))
    done = desk.run("test", ".", "-t", selector)
    assert done.exit_code == 2
    assert "expected policy=NAME,rule=NAME,resource=NAME" in done.stderr


def test_every_folder_can_be_required_to_have_a_test(
    desk: Desk, suite: Callable[..., None]
) -> None:
    suite(row(rule="label", resources="[one]", result="pass"))
    (desk.folder / "empty").mkdir()
    assert desk.run("test", ".", "empty").exit_code == 0
    done = desk.run("test", ".", "empty", "--require-tests")
    assert done.exit_code == 2
    assert done.stderr == "Error: empty: no kyverno-test.yaml or hook-test.yaml found\n"
