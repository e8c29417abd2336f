"""What it costs to apply a patch: it grows with the object and the patch, and is counted."""

import json
import time
from typing import Any

import pytest

from reconciler.dialects.registry import compile_policy
from reconciler.engine.allowance import BRIEF_STEPS, Allowance
from reconciler.engine.context import request_context
from reconciler.engine.evaluate import change
from reconciler.engine.outcome import RuleStatus, TargetChange
from reconciler.engine.patch import SHIPPED, merge
from reconciler.services.admitting.admit import LIMITS


def cost(obj: dict[str, Any], **mutate: Any) -> tuple[TargetChange, int]:
    """Return the result of applying a patch, and its steps."""
    rule = {
        "name": "r",
        "match": {"any": [{"resources": {"kinds": ["*"]}}]},
        "mutate": mutate,
    }
    policy = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p"},
        "spec": {"rules": [rule]},
    }
    program = compile_policy(policy).programs[0]
    allowance = Allowance()
    before = allowance.left
    context = request_context(
        operation="CREATE",
        obj=obj,
        old_object=None,
        name="x",
        namespace="a",
        kind=("", "v1", obj["kind"]),
        user_info=None,
    )
    bound = program.binding.bind(context.within(allowance))
    result = change(program, None, bound, obj)
    return result, before - allowance.left


def pod(count: int) -> dict[str, Any]:
    ports = [{"containerPort": number, "protocol": "TCP"} for number in range(1, count + 1)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x", "namespace": "a", "finalizers": list(map(str, range(count)))},
        "spec": {
            "containers": [
                {"name": "first", "ports": ports},
                *({"name": f"c{number}"} for number in range(1, count)),
            ]
        },
    }


def config_map(**data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": data}


TEXT = config_map(a="b" * 250_000)
WIDE = config_map(**{f"k{number}": "" for number in range(60_000)})
CONTAINERS = {"spec": {"containers": [{"(name)": "*", "imagePullPolicy": "Always"}]}}
PORTS = {
    "spec": {"containers": [{"name": "first", "ports": [{"(containerPort)": ">0", "name": "p"}]}]}
}
NEW_PORTS = {
    "spec": {
        "containers": [
            {"name": "first", "ports": [{"containerPort": -number} for number in range(1, 1_000)]}
        ]
    }
}
FINALIZERS = {"metadata": {"finalizers": ["x/y"]}}


@pytest.mark.parametrize(
    ("obj", "mutate"),
    [
        pytest.param(pod(2_000), {"patchStrategicMerge": CONTAINERS}, id="each element of a list"),
        pytest.param(pod(1_000), {"patchStrategicMerge": PORTS}, id="elements with two keys"),
        pytest.param(pod(1_000), {"patchStrategicMerge": NEW_PORTS}, id="new ones of two keys"),
        pytest.param(pod(60_000), {"patchStrategicMerge": FINALIZERS}, id="a set"),
        pytest.param(
            TEXT,
            {"patchStrategicMerge": {"data": {"(a)": "|".join(["*b?c?0*"] * 20), "x": "1"}}},
            id="alternatives of an anchor",
        ),
        pytest.param(
            TEXT,
            {"patchStrategicMerge": {"(data)": {"a": "|".join(["*b?c?0*"] * 20)}, "x": "1"}},
            id="alternatives below an anchor",
        ),
        pytest.param(
            {**config_map(), "spec": {"metadata": {"annotations": WIDE["data"]}}},
            {
                "patchStrategicMerge": {
                    "(spec)": {"metadata": {"annotations": {"x*?": ""}}},
                    "data": {"x": "1"},
                }
            },
            id="keys of annotations",
        ),
        pytest.param(
            {**config_map(), **{f"l{number}": ["1"] for number in range(3_000)}},
            {
                "patchStrategicMerge": {
                    f"$deleteFromPrimitiveList/l{number}": ["1"] for number in range(3_000)
                }
            },
            id="directives",
        ),
        pytest.param(
            WIDE,
            {
                "patchesJson6902": json.dumps(
                    [
                        {"op": "add", "path": f"/data/z{number}", "value": "1"}
                        for number in range(1_000)
                    ]
                )
            },
            id="operations",
        ),
        pytest.param(
            config_map(
                patch="\n".join("- {op: add, path: /data/x, value: '1'}" for _ in range(1_000))
            ),
            {"patchesJson6902": "{{ request.object.data.patch }}"},
            id="a generated text",
        ),
    ],
)
def test_applying_a_patch_spends_the_allowance(
    obj: dict[str, Any], mutate: dict[str, Any]
) -> None:
    _, steps = cost(obj, **mutate)
    assert steps > BRIEF_STEPS


@pytest.mark.parametrize(
    ("patch", "count"), [(CONTAINERS, 300), (PORTS, 300), (FINALIZERS, 10_000)]
)
def test_patches_of_hundreds_of_elements_are_applied_before_an_object_is_stored(
    patch: dict[str, Any], count: int
) -> None:
    result, steps = cost(pod(count), patchStrategicMerge=patch)
    assert result.status is RuleStatus.PASS
    assert steps < LIMITS.evaluation


def test_the_time_of_a_merge_grows_with_the_lists() -> None:
    strategies = {"spec": {"containers": [{"$patch": "merge"}] * 10_000}}
    many = {"spec": {"containers": [{"name": f"c{number}"} for number in range(20_000, 0, -1)]}}
    obj = pod(20_000)
    began = time.process_time()
    for patch in (many, FINALIZERS, strategies):
        merge(obj, patch, SHIPPED)
    assert time.process_time() - began < 8.0
