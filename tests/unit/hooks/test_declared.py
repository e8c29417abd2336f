"""Hooks that are declared as objects rather than executables."""

import contextlib
from typing import Any

import pytest

from reconciler.engine.allowance import Allowance
from reconciler.errors import EvaluationError, InvalidPolicy
from reconciler.hooks.declared import DeclaredHook, DeclaredRun, compile_hook

DELETE = {"operation": "Delete", "kind": "Pod", "name": "{{ element.name }}"}
RUN = {"operations": [DELETE]}
PODS = [{"kind": "Pod"}]


def hook(namespace: str = "shop", **spec: Any) -> DeclaredHook:
    kind = "Hook" if namespace else "ClusterHook"
    meta = {"name": "h", "uid": "1", "generation": 3, "namespace": namespace}
    return compile_hook(
        {
            "apiVersion": "kube-retrofit.dev/v1alpha1",
            "kind": kind,
            "metadata": {key: value for key, value in meta.items() if value},
            "spec": spec,
        }
    )


def run_of(**run: Any) -> DeclaredRun:
    found = hook(kubernetes=PODS, run=run).run
    assert found is not None
    return found


def places(namespace: str = "shop", **spec: Any) -> list[str]:
    with pytest.raises(InvalidPolicy) as caught:
        hook(namespace, **spec)
    return [caught.value.location, *(error.location for error in caught.value.others)]


BY_LABEL = {"kind": "Pod", "namespace": {"labelSelector": {"matchLabels": {"a": "b"}}}}
OPERATION = "spec.run.operations[0]"


def operation(**fields: Any) -> dict[str, Any]:
    return {"kubernetes": PODS, "run": {"operations": [fields]}}


JQ_PATCH = {"operation": "JQPatch", "kind": "Pod", "name": "x"}
CREATE = {"operation": "Create", "object": {"apiVersion": "v1", "kind": "Pod"}}
JSON_PATCH = {"operation": "JSONPatch", "kind": "Pod", "name": "x"}


def test_a_hook_lists_a_hundred_bindings_and_operations_at_most() -> None:
    tick = {"crontab": "* * * * *"}
    hook(kubernetes=PODS * 100, schedule=[tick] * 100, run={"operations": [DELETE] * 100})
    many: dict[str, Any] = {"kubernetes": PODS * 101, "schedule": [tick] * 101}
    assert places(**many, run={"operations": [DELETE] * 101}) == [
        "spec.kubernetes",
        "spec.schedule",
        "spec.run.operations",
    ]
    hook(executable="pods.sh", kubernetes=PODS * 101)


def test_a_cluster_hook_can_select_namespaces_by_label() -> None:
    (binding,) = hook("", kubernetes=[BY_LABEL], run=RUN).config.kubernetes
    assert binding.selection.namespace_labels is not None


def test_a_namespaced_hook_is_confined_to_its_namespace() -> None:
    assert hook(kubernetes=PODS, run=RUN).confined_to == "shop"
    assert not hook("", kubernetes=PODS, run=RUN).confined_to


@pytest.mark.parametrize(
    ("spec", "wrong"),
    [
        ({}, ["spec", "spec.run"]),
        ({"kubernetes": PODS}, ["spec.run"]),
        ({"kubernetes": [{}], "run": RUN}, ["spec.kubernetes[0].kind"]),
        ({"kubernetes": PODS, "run": RUN, "nothing": 1}, ["spec.nothing"]),
        ({"kubernetes": PODS, "run": {}}, ["spec.run"]),
        ({"kubernetes": PODS, "run": {**RUN, "jq": "."}}, ["spec.run"]),
        ({"kubernetes": PODS, "run": {"operations": []}}, ["spec.run.operations"]),
        (
            {"kubernetes": PODS, "run": {"operations": [{"operation": "Destroy"}]}},
            ["spec.run.operations[0].operation"],
        ),
        (
            {"kubernetes": PODS, "run": {"operations": [{**DELETE, "name": "{{ a( }}"}]}},
            ["spec.run.operations[0].name"],
        ),
        (operation(operation="Delete", name="x"), ["spec.run.operations[0].kind"]),
        (operation(**DELETE, force=True), ["spec.run.operations[0].force"]),
        (operation(**DELETE, ignoreMissingObject="maybe"), [f"{OPERATION}.ignoreMissingObject"]),
        (operation(**JQ_PATCH), [f"{OPERATION}.jqFilter"]),
        (operation(**JQ_PATCH, jqFilter="input"), [f"{OPERATION}.jqFilter"]),
        (operation(**JSON_PATCH, jsonPatch=[{"op": "add"}]), [f"{OPERATION}.jsonPatch[0].path"]),
        (operation(**JSON_PATCH, jsonPatch="a: 1"), [f"{OPERATION}.jsonPatch"]),
        (
            operation(operation="Create", object={"kind": "Pod"}),
            [f"{OPERATION}.object.apiVersion"],
        ),
        (operation(operation="Create", object="a: ["), [f"{OPERATION}.object"]),
        ({"kubernetes": PODS, "run": {**RUN, "foreach": "["}}, ["spec.run.foreach"]),
        ({"kubernetes": PODS, "run": {"jq": "input"}}, ["spec.run.jq"]),
        ({"kubernetes": PODS, "run": {"jq": ".", "foreach": "x"}}, ["spec.run.foreach"]),
        ({"kubernetes": PODS, "run": RUN, "executable": "x.sh"}, ["spec.run"]),
        (
            {
                "kubernetes": [
                    {"kind": "Pod", "namespace": {"nameSelector": {"matchNames": ["b"]}}}
                ],
                "run": RUN,
            },
            ["spec.kubernetes[0].namespace.nameSelector.matchNames"],
        ),
        ({"kubernetes": [BY_LABEL], "run": RUN}, ["spec.kubernetes[0].namespace.labelSelector"]),
    ],
)
def test_an_invalid_hook_is_refused_with_its_location(
    spec: dict[str, Any], wrong: list[str]
) -> None:
    assert places(**spec) == wrong


@pytest.mark.parametrize(
    "fields",
    [
        {**DELETE, "ignoreMissingObject": "{{ element.missing }}"},
        {**CREATE, "object": "{{ element.object }}"},
        {**JQ_PATCH, "jqFilter": "{{ element.program }}"},
        {**JSON_PATCH, "jsonPatch": "{{ element.steps }}"},
        {**JSON_PATCH, "jsonPatch": ["{{ element.step }}"]},
        {**JSON_PATCH, "kind": "{{ element.kind }}", "jsonPatch": "[{op: remove, path: /spec}]"},
    ],
)
def test_fields_set_by_variables_are_not_checked_before_the_run(fields: dict[str, Any]) -> None:
    assert hook(**operation(**fields)).run is not None


def test_all_literal_jq_programs_are_listed_with_their_location() -> None:
    patches = [{**JQ_PATCH, "jqFilter": ".spec"}, {**JQ_PATCH, "jqFilter": "{{ element }}"}]
    found = hook(kubernetes=[{"kind": "Pod", "jqFilter": ".a"}], run={"operations": patches})
    assert found.programs == (
        ("spec.kubernetes[0].jqFilter", ".a"),
        (f"{OPERATION}.jqFilter", ".spec"),
    )
    assert hook(kubernetes=PODS, run={"jq": ".b"}).programs == (("spec.run.jq", ".b"),)


def test_each_element_produces_the_operations_with_its_values() -> None:
    run = run_of(
        foreach="contexts[].objects[]",
        operations=[{**DELETE, "namespace": "{{ element.place }}-{{ elementIndex }}"}],
    )
    contexts = [{"objects": [{"name": "a", "place": "x"}, {"name": 7, "place": "y"}]}]
    assert run.answer(contexts, Allowance()) == [
        {"operation": "Delete", "kind": "Pod", "name": "a", "namespace": "x-0"},
        {"operation": "Delete", "kind": "Pod", "name": 7, "namespace": "y-1"},
    ]


def test_the_value_of_a_variable_is_not_rendered_as_a_template() -> None:
    run = run_of(operations=[DELETE])
    (found,) = run.answer([{"name": "{{ contexts }}"}], Allowance())
    assert found["name"] == "{{ contexts }}"


def test_a_missing_value_is_an_error_with_its_location() -> None:
    run = run_of(operations=[DELETE])
    with pytest.raises(EvaluationError, match=r"spec\.run\.operations\[0\]\.name"):
        run.answer([{}], Allowance())


def test_the_number_of_operations_of_a_run_is_limited() -> None:
    run = run_of(foreach="contexts[].many[]", operations=[DELETE])
    with pytest.raises(EvaluationError, match="10000 operations"):
        run.answer([{"many": [1] * 10_001}], Allowance())


def deep(levels: int) -> dict[str, Any]:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "deep"}, "data": value}
    return {"operation": "Create", "object": obj}


@pytest.mark.parametrize("levels", range(200, 1000, 50))
def test_a_deep_object_is_rendered_or_an_error(levels: int) -> None:
    with contextlib.suppress(InvalidPolicy, EvaluationError):
        run = run_of(operations=[deep(levels)])
        assert run.answer([{}], Allowance()) == [deep(levels)]


def test_an_object_that_is_too_deep_is_refused() -> None:
    with pytest.raises(InvalidPolicy, match="nested too deeply"):
        run_of(operations=[deep(950)])
