"""The operation for which each command evaluates a trigger."""

import json
from typing import Any

import pytest

from reconciler.cli.desk.operations import POLICY_UPDATE, operation_for, operation_of_flag
from reconciler.dialects.registry import compile_policy
from reconciler.engine.program import Program
from tests.unit.cli.desk.conftest import Desk

TARGETS = {
    "targets": [{"apiVersion": "v1", "kind": "Secret", "namespace": "a", "name": "s"}],
    "patchStrategicMerge": {"metadata": {"labels": {"by": "{{ request.operation }}"}}},
}
OWN = {"patchStrategicMerge": TARGETS["patchStrategicMerge"]}


def policy(mutate: dict[str, Any], operations: list[str], *, on_change: bool) -> dict[str, Any]:
    resources: dict[str, Any] = {"kinds": ["ConfigMap"]}
    if operations:
        resources["operations"] = operations
    if on_change:
        mutate = {**mutate, "mutateExistingOnPolicyUpdate": True}
    rule = {"name": "r", "match": {"any": [{"resources": resources}]}, "mutate": mutate}
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p"},
        "spec": {"rules": [rule]},
    }


def program(
    mutate: dict[str, Any], operations: list[str] | None = None, *, on_change: bool = False
) -> Program:
    raw = policy(mutate, operations or [], on_change=on_change)
    return compile_policy(raw).programs[0]


@pytest.mark.parametrize(
    ("operations", "on_change", "operation"),
    [
        ([], False, "UPDATE"),
        ([], True, POLICY_UPDATE),
        (["CREATE"], False, "CREATE"),
        (["CREATE", "UPDATE"], False, "UPDATE"),
        (["DELETE"], False, "DELETE"),
        (["CONNECT"], False, "CONNECT"),
        # A sweep skips filters that list operations, since they match requests only.
        (["CREATE"], True, "CREATE"),
    ],
)
def test_the_default_operation_of_a_rule_with_targets_depends_on_when_it_acts(
    operations: list[str], on_change: bool, operation: str
) -> None:
    assert operation_for(program(TARGETS, operations, on_change=on_change)).name == operation


@pytest.mark.parametrize(
    ("operations", "operation"),
    [([], "CREATE"), (["UPDATE", "CREATE"], "CREATE"), (["DELETE", "UPDATE"], "UPDATE")],
)
def test_the_default_operation_of_a_rule_without_targets_is_create_or_update(
    operations: list[str], operation: str
) -> None:
    assert operation_for(program(OWN, operations)).name == operation


def test_a_given_operation_takes_precedence_over_the_default() -> None:
    rule = program(TARGETS, on_change=True)
    assert operation_for(rule, sent=True).name == "UPDATE"
    assert operation_for(rule, value="DELETE").name == "DELETE"
    flag = operation_of_flag("CONNECT")
    assert operation_for(rule, flag=flag, value="DELETE").name == "CONNECT"
    background = operation_for(rule, flag=operation_of_flag("POLICY-UPDATE"), value="DELETE")
    assert (background.name, str(background)) == (POLICY_UPDATE, "POLICY-UPDATE (--operation)")
    assert operation_of_flag(None) is None


CONFIG_MAP = '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}'
SECRET = '{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "a"}}'


@pytest.fixture
def files(desk: Desk) -> Desk:
    desk.write("p.json", json.dumps(policy(TARGETS, ["UPDATE", "DELETE"], on_change=False)))
    desk.write("cm.json", CONFIG_MAP)
    desk.write("s.json", SECRET)
    rows = "[{policy: p, rule: r, kind: Secret, resources: [a/s], result: pass}]"
    desk.write(
        "kyverno-test.yaml",
        "apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\nmetadata: {name: t}\n"
        f"policies: [p.json]\nresources: [cm.json]\ntargetResources: [s.json]\nresults: {rows}\n",
    )
    return desk


def test_all_commands_evaluate_for_the_same_operation(files: Desk) -> None:
    said = "UPDATE (the rule listens to DELETE, UPDATE)"
    words = ["p.json", "-r", "cm.json", "-t", "s.json"]
    applied = files.run("apply", *words, "-v")
    assert "+    by: UPDATE" in applied.stdout
    assert f"p / r: operation {said}\n" in applied.stderr
    output = files.run("explain", "p.json", "--trigger", "cm.json", "--target", "s.json")
    assert f"operation {said}\n" in output.stdout
    assert "+    by: UPDATE" in output.stdout
    tested = files.run("test", ".", "-v")
    assert "  Pass      p/r  Secret/a/s  on UPDATE  Ok\n" in tested.stdout
    deleted = files.run("apply", *words, "--operation", "DELETE")
    assert "+    by: DELETE" in deleted.stdout
    for command in (["apply", *words, "-v"], ["explain", "p.json", "--trigger", "cm.json"]):
        created = files.run(*command, "--operation", "CREATE")
        assert "operation does not match [UPDATE, DELETE]" in created.stdout + created.stderr
        assert "+    by:" not in created.stdout
    assert files.run("test", ".", "--operation", "CREATE").exit_code == 1


def test_a_rule_that_ignores_policy_updates_is_reported_as_not_matching(files: Desk) -> None:
    words = ["p.json", "-r", "cm.json", "-t", "s.json", "--operation", "POLICY-UPDATE"]
    done = files.run("apply", *words, "-v")
    assert "p / r: not for: ConfigMap default/c: mutateExistingOnPolicyUpdate is" in done.stderr
    assert done.exit_code == 0
