"""Policies refused before compilation, because compiling them would block the process."""

import time

import pytest

from reconciler.dialects.registry import (
    compile_entry,
    compile_exception,
    compile_policy,
    examine_policy,
)
from reconciler.errors import InvalidPolicy

ENOUGH = 1.0
"""Processor seconds; refusing takes hundredths, expanding took minutes."""
PATCH = ("mutate", "patchStrategicMerge")


def aliases(levels: int = 7, width: int = 9, variable: str = "") -> str:
    lines = ["- op: add", "  path: /data/x", f"  value: {variable or 'none'}"]
    lines += ["- op: add", "  path: /data/y", "  value:", "    a0: &a0 [x, x, x, x, x, x, x, x]"]
    for level in range(1, levels):
        lines.append(f"    a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * width)}]")
    return "\n".join(lines)


def nested(levels: int) -> dict[str, object]:
    value: dict[str, object] = {"end": "x"}
    for _ in range(levels):
        value = {"a": value}
    return value


def nested_variables(levels, text):
    for _ in range(levels):
        text = f'{{{{ request.object.metadata.labels."{text}" }}}}'
    return text


@pytest.mark.parametrize(
    ("changes", "place", "words"),
    [
        (
            [((PATCH),), (("mutate", "patchesJson6902"), aliases())],
            "spec.rules[0].mutate.patchesJson6902",
            "more than 20000 values; those that YAML aliases repeat",
        ),
        (
            [((PATCH),), (("mutate", "patchesJson6902"), aliases(variable="{{ request.name }}"))],
            "spec.rules[0].mutate.patchesJson6902",
            "more than 20000 values",
        ),
        (
            [((*PATCH, "data"), {"x": [1] * 30_000})],
            "spec.rules[0].mutate.patchStrategicMerge.data.x[",
            "more than 20000 values",
        ),
        (
            [((*PATCH, "data"), nested(1_000))],
            "spec.rules[0].mutate.patchStrategicMerge.data",
            "nested deeper than 100 levels",
        ),
        (
            [((*PATCH, "data"), {f"k{at}": "{{ request.name }}" for at in range(2_500)})],
            "spec.rules[0].mutate.patchStrategicMerge.data.k",
            "more than 2000 variables",
        ),
        (
            [((*PATCH, "data"), {"x": "{{ request.name }}" + "x" * 300_000})],
            "spec.rules[0].mutate.patchStrategicMerge.data.x",
            "longer than 262144 characters",
        ),
        (
            [((*PATCH, "data"), {"x": nested_variables(50, "x" * 4_000)})],
            "spec.rules[0].mutate.patchStrategicMerge.data.x",
            "the expressions are longer than 131072 characters",
        ),
        (
            [((*PATCH, "data"), {f"k{at}": f"$(../k{at + 1})" for at in range(2_000)})],
            "spec.rules[0].mutate.patchStrategicMerge.data.k",
            "more than 200 references",
        ),
        (
            [(("match", "any", 0, "resources", "annotations"), {"a": "?" * 5_000})],
            "spec.rules[0].match.any[0].resources.annotations",
            "longer than 4096 characters",
        ),
    ],
)
def test_a_policy_that_is_too_large_is_refused_quickly_with_its_location(
    rule, changes, place, words
):
    policy = rule(*changes)
    began = time.process_time()
    with pytest.raises(InvalidPolicy) as caught:
        compile_policy(policy)
    assert time.process_time() - began < ENOUGH
    assert caught.value.location.startswith(place)
    assert words in caught.value.reason
    assert len(str(caught.value)) < 400


def test_values_of_all_patch_texts_are_counted_together(rule):
    patch = aliases(levels=4)
    blocks = [{"list": "request.object.x", "patchesJson6902": patch} for _ in range(300)]
    began = time.process_time()
    with pytest.raises(InvalidPolicy, match="more than 20000 values"):
        compile_policy(rule((PATCH,), (("mutate", "foreach"), blocks)))
    assert time.process_time() - began < ENOUGH


def test_a_policy_nested_too_deeply_is_reported_by_lint(rule):
    _, errors = examine_policy(rule(((*PATCH, "data"), nested(1_000))))
    assert [error.reason for error in errors] == ["the value is nested deeper than 100 levels"]


def test_the_limits_apply_to_exceptions_and_global_entries():
    meta = {"name": "n", "namespace": "a"}
    deep = nested(1_000)
    exception = {
        "apiVersion": "kyverno.io/v2",
        "kind": "PolicyException",
        "metadata": meta,
        "spec": {"exceptions": [], "match": deep},
    }
    entry = {
        "apiVersion": "kyverno.io/v2",
        "kind": "GlobalContextEntry",
        "metadata": meta,
        "spec": {"apiCall": deep},
    }
    for compile_one, obj in ((compile_exception, exception), (compile_entry, entry)):
        with pytest.raises(InvalidPolicy, match="nested deeper than 100 levels"):
            compile_one(obj)


def test_a_policy_of_ordinary_size_is_not_refused(rule):
    many = {f"k{at}": "{{ request.object.metadata.name }}" for at in range(500)}
    patch = aliases(levels=3, variable="'{{ request.name }}'")
    compile_policy(rule(((*PATCH, "data"), many)))
    compile_policy(rule((PATCH,), (("mutate", "patchesJson6902"), patch)))
