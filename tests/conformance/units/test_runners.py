"""The runner itself: unknown fields and values fail a case, and any folder of the layout runs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.data import PROJECT
from tests.conformance.units.cases import UnknownValueError
from tests.conformance.units.runners import CONDITIONS, Deviation, deviations, load, run
from tests.conformance.units.subjects import policy_of


def a_case(kind: str, given: Any, wanted: Any, **fields: Any) -> dict[str, Any]:
    head = {"source": "own", "test": "Own", "case": 0, "kind": kind}
    return {**head, "input": given, "expected": wanted, **fields}


WILDCARD = {"pattern": "a*", "text": "ab"}
CONDITION = {"key": "a", "operator": "Equals", "value": "a"}


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (a_case("no-such-kind", {}, {}), "no runner for the kind 'no-such-kind'"),
        (a_case("wildcard", {**WILDCARD, "flags": "i"}, {"result": True}), "case.input.flags"),
        (
            a_case("wildcard", WILDCARD, {"result": True, "why": "x"}),
            "case.expected.why",
        ),
        (a_case("wildcard", WILDCARD, {"result": True}, since="2"), "does not read case.since"),
        (
            a_case("condition", {**CONDITION, "of": 1}, {"result": True}),
            "case.input.of",
        ),
        (
            a_case(
                "match-subjects",
                {"subjects": [], "userInfo": {"username": "a", "mood": "b"}},
                {"result": False},
            ),
            "case.input.userInfo.mood",
        ),
    ],
)
def test_an_unknown_kind_or_field_fails_by_name(case: dict[str, Any], message: str) -> None:
    with pytest.raises(pytest.fail.Exception, match=message.replace(".", r"\.")):
        run("own.json", case, [])


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (
            a_case("error-format", {"format": "oddError", "function": "f", "values": []}, {}),
            "input.format: the runner does not know 'oddError'",
        ),
        (a_case("intNumber", {"number": "math.Tau"}, {}), "input.number"),
        (
            a_case("pattern", {"function": "validateX", "args": [1, 1, "operator.Odd"]}, {}),
            "operator.Odd",
        ),
        (a_case("pattern", {"function": "compare", "args": [1, 1]}, {}), "'compare'"),
        (a_case("anchor-is", {"anchor": None, "check": "IsOdd"}, {}), "IsOdd"),
        (a_case("policy-valid", {"check": "odd"}, {}), "'odd'"),
        (a_case("ur-queue", {"event": "odd", "state": ""}, {}), "'odd'"),
        (a_case("wildcard", [], {}), "case.input: expected an object"),
    ],
)
def test_an_unknown_value_fails_by_name(case: dict[str, Any], message: str) -> None:
    with pytest.raises(UnknownValueError, match=message.replace(".", r"\.")):
        run("own.json", case, [])


@pytest.mark.parametrize(
    "case",
    [
        a_case("wildcard", WILDCARD, {"result": False}),
        a_case("condition", {**CONDITION, "operator": "Resembles"}, {"result": True}),
        a_case("query", {"query": "a", "data": {"a": 1}}, {"error": True}),
        a_case("query", {"query": "to_number(", "data": {}}, {"error": False}),
        a_case("substitute", {"document": "{{ a }}", "context": {}}, {"error": False}),
        a_case("strategic-merge", {"patch": {}, "resource": {}}, {"containers_len": 1}),
    ],
)
def test_a_wrong_answer_fails(case: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        run("own.json", case, [])


def test_a_missing_field_is_named() -> None:
    with pytest.raises(KeyError, match=r"case\.input has no 'text'"):
        run("own.json", a_case("wildcard", {"pattern": "a"}, {"result": True}), [])


def test_a_conditional_deviation_hides_wrong_results_but_no_unknown_field() -> None:
    policy = policy_of([{"name": "r", "validate": {}}])
    deviation = Deviation(
        selectors={"kind": "policy-valid"}, when="no rule mutates", reason="others'"
    )
    given = {"policy": policy, "check": "allowed-variables"}
    right = a_case("policy-valid", given, {"valid": True})
    run("own.json", right, [deviation])
    with pytest.raises(pytest.skip.Exception, match="deviation: others'"):
        run("own.json", a_case("policy-valid", given, {"valid": False}), [deviation])
    with pytest.raises(pytest.fail.Exception, match=r"case\.expected\.mood"):
        run("own.json", a_case("policy-valid", given, {"valid": True, "mood": 1}), [deviation])


def test_every_deviation_of_cases_has_a_reason_in_one_sentence() -> None:
    for item in deviations():
        assert item.selectors
        assert item.when in {"", *CONDITIONS}
        assert item.reason.strip()
        assert "\n" not in item.reason


def assert_case(loaded: Any) -> None:
    file, raw = loaded.values
    run(file, raw, [])


def test_invalid_files_and_entries_fail_and_do_not_stop_other_cases(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "a.json").write_text("[{]")
    right = a_case("wildcard", WILDCARD, {"result": True})
    (tmp_path / "b.json").write_text(json.dumps([{"kind": "wildcard"}, 1, right]))
    (tmp_path / "c.json").write_text("{}")
    (tmp_path / "deep" / "c.json").write_text(json.dumps([right]))
    broken, lacking, odd, beside, unlisted, good = load(tmp_path)
    with pytest.raises(pytest.fail.Exception, match=r"a\.json: Expecting"):
        assert_case(broken)
    with pytest.raises(pytest.fail.Exception, match="lacks case, expected, input, source, test"):
        assert_case(lacking)
    with pytest.raises(pytest.fail.Exception, match="expected a case, found 1"):
        assert_case(odd)
    with pytest.raises(pytest.fail.Exception, match="expected a list of cases"):
        assert_case(unlisted)
    assert_case(beside)
    assert_case(good)
    assert good.id == "deep/c/wildcard/Own/0"


ROW = """
apiVersion: cli.kyverno.io/v1alpha1
kind: Test
metadata: {name: own}
policies: [policy.yaml]
resources: [resource.yaml]
results:
- {policy: own, rule: r, resources: [web], kind: Pod, result: pass}
"""
POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: own}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [Pod]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {a: b}}}}
"""
POD = "{apiVersion: v1, kind: Pod, metadata: {name: web}}"


def test_another_data_folder_is_run_and_its_faults_are_failed_cases(tmp_path: Path) -> None:
    units = tmp_path / "units"
    units.mkdir()
    (units / "new.json").write_text(
        json.dumps(
            [
                a_case("wildcard", WILDCARD, {"result": True}),
                a_case("policy-key", {"namespace": "a", "policyName": "b"}, {"expected": "a/b"}),
                a_case("brand-new", {}, {}),
                a_case("ur-labels", {}, {}),
            ]
        )
    )
    for name, files in {
        "right": {"kyverno-test.yaml": ROW, "policy.yaml": POLICY, "resource.yaml": POD},
        "broken": {"kyverno-test.yaml": "a: ["},
        "empty": {"kyverno-test.yaml": ROW.partition("results")[0]},
    }.items():
        folder = tmp_path / "cli" / "own" / name
        folder.mkdir(parents=True)
        for file, text in files.items():
            (folder / file).write_text(text)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--conformance-report"),
            *(
                "tests/conformance/units/test_units.py",
                "tests/conformance/cli",
                "-k",
                "not own_case",
            ),
        ],
        cwd=PROJECT,
        env={**os.environ, "CONFORMANCE_DATA": str(tmp_path), "CONFORMANCE_REQUIRED": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert "conformance: 3 passed, 3 failed, 1 deviating, 0 not yet\n" in done.stdout, done.stdout
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    for place in ("new/brand-new", "own/broken", "own/empty"):
        assert any(place in line for line in failed), failed
    assert "no runner for the kind 'brand-new'" in done.stdout
