"""Hooks that are declared as objects."""

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


def test_a_hook_never_leaves_its_namespace() -> None:
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
    ],
)
def test_what_is_wrong_is_named_with_its_place(spec: dict[str, Any], wrong: list[str]) -> None:
    assert places(**spec) == wrong


def test_each_element_gives_the_operations_with_its_values() -> None:
    run = run_of(
        foreach="contexts[].objects[]",
        operations=[{**DELETE, "namespace": "{{ element.place }}-{{ elementIndex }}"}],
    )
    contexts = [{"objects": [{"name": "a", "place": "x"}, {"name": 7, "place": "y"}]}]
    assert run.answer(contexts, Allowance()) == [
        {"operation": "Delete", "kind": "Pod", "name": "a", "namespace": "x-0"},
        {"operation": "Delete", "kind": "Pod", "name": 7, "namespace": "y-1"},
    ]


def test_what_a_variable_gives_is_no_template() -> None:
    run = run_of(operations=[DELETE])
    (found,) = run.answer([{"name": "{{ contexts }}"}], Allowance())
    assert found["name"] == "{{ contexts }}"


def test_a_value_that_is_not_there_is_an_error_with_its_place() -> None:
    run = run_of(operations=[DELETE])
    with pytest.raises(EvaluationError, match=r"spec\.run\.operations\[0\]\.name"):
        run.answer([{}], Allowance())


def test_more_operations_than_a_run_may_have_are_refused() -> None:
    run = run_of(foreach="contexts[].many[]", operations=[DELETE])
    with pytest.raises(EvaluationError, match="10000 operations"):
        run.answer([{"many": [1] * 10_001}], Allowance())
