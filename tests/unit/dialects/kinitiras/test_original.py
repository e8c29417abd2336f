"""The results of kinitiras policies as tables, derived from the source of kinitiras."""

from typing import Any

import pytest

from reconciler.dialects.kinitiras import KINITIRAS
from reconciler.dialects.kinitiras.labelled import ANNOTATION
from reconciler.dialects.kinitiras.origin import read_origin
from reconciler.dialects.kinitiras.selectors import read_selector
from reconciler.engine.context import Context, request_context
from reconciler.engine.patch import SHIPPED
from reconciler.engine.program import Program
from reconciler.errors import EvaluationError, InvalidPolicy

A = {"key": "a", "operator": "Exists", "effect": "NoSchedule"}
A1 = {"key": "a", "operator": "Equal", "value": "1", "effect": "NoExecute"}
A2 = {"key": "a", "operator": "Equal", "value": "2", "effect": "NoExecute"}
B = {"key": "b", "operator": "Exists"}
NOW = {"from": "current", "path": "/metadata/annotations/confirm"}
OLD = {"from": "old", "path": "/metadata/annotations/code"}


def program(kind: str, spec: dict[str, Any]) -> Program:
    meta = {"name": "p", "annotations": {ANNOTATION: "all"}}
    head = {"apiVersion": "policy.kcloudlabs.io/v1alpha1", "kind": kind, "metadata": meta}
    (found,) = KINITIRAS.compile({**head, "spec": spec}).programs
    return found


def context(
    obj: dict[str, Any], old: dict[str, Any] | None = None, operation: str = "UPDATE"
) -> Context:
    return request_context(
        operation=operation,
        obj=obj,
        old_object=old,
        name="web",
        namespace="shop",
        kind=("", "v1", "Pod"),
        user_info=None,
    )


def changed(template: dict[str, Any], spec: dict[str, Any]) -> Any:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec}
    rule = {"overriders": {"template": template}}
    found = program("ClusterOverridePolicy", {"overrideRules": [rule]})
    return found.mutation.apply(None, context(pod), pod, SHIPPED)


@pytest.mark.parametrize(
    ("operation", "given", "current", "found"),
    [
        ("add", [A1, B], None, [A1, B]),
        ("add", [A1], [A2], [A1, A2]),
        ("add", [A1], [A1, A2], [A1, A2]),
        ("replace", [A], None, [A]),
        ("replace", [A], [], [A]),
        # A toleration of a key alone replaces all of that key; one that matches none is dropped.
        ("replace", [A], [A1, B, A2], [A, B, A]),
        ("replace", [A1], [{**A1, "effect": "NoSchedule"}, A2, B], [A1, A2, B]),
        ("replace", [{"key": "c", "operator": "Exists"}], [A1], [A1]),
        ("replace", [A, A1], [A1, A2], [A1, A]),
        ("replace", [A1, A], [A1, A2], [A, A]),
        ("replace", [{"operator": "Exists"}], [{"operator": "Exists"}], [{"operator": "Exists"}]),
        ("remove", [{"operator": "Exists"}], [{"key": ["a"]}, "x", {"key": []}], [{"key": ["a"]}]),
        ("remove", [A], [A1, B, A2], [B]),
        ("remove", [A2], [A1, B, A2], [A1, B]),
        ("remove", [A], [], []),
        ("remove", [A], None, None),
    ],
)
def test_a_template_changes_tolerations_as_the_original_does(
    operation: str, given: list[Any], current: list[Any] | None, found: list[Any] | None
) -> None:
    template = {"type": "tolerations", "operation": operation, "tolerations": given}
    spec = {} if current is None else {"tolerations": current}
    assert changed(template, spec)["spec"].get("tolerations") == found


@pytest.mark.parametrize(
    ("request_", "limit", "factor", "found"),
    [
        ("100m", "1", "0.5", "500m"),
        ("0", "1", "0.5", "0"),
        (None, "333m", "0.5", "167m"),
        (None, "5m", "0.5", "3m"),
        (None, "335m", "0.5", "168m"),
    ],
)
def test_a_template_oversells_cpu_as_the_original_does(
    request_: str | None, limit: str, factor: str, found: str
) -> None:
    resources: dict[str, Any] = {"limits": {"cpu": limit}}
    if request_ is not None:
        resources["requests"] = {"cpu": request_}
    factors = {"cpuFactor": factor}
    template = {"type": "resourcesOversell", "operation": "add", "resourcesOversell": factors}
    pod = changed(template, {"containers": [{"name": "a", "resources": resources}]})
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {"cpu": found}


@pytest.mark.parametrize(
    ("op", "path", "value", "spec"),
    [
        ("add", "/l/-1", 9, {"l": [1, 2, 3, 9], "n": None}),
        ("add", "/l/-4", 9, {"l": [9, 1, 2, 3], "n": None}),
        ("add", "/l/-", 9, {"l": [1, 2, 3, 9], "n": None}),
        ("add", "/l/01", 9, {"l": [1, 9, 2, 3], "n": None}),
        ("add", "/l/4", 9, None),
        ("add", "/l/-5", 9, None),
        ("add", "/x/y", 9, None),
        ("add", "/n/y", 9, None),
        ("replace", "/l/-3", 9, {"l": [9, 2, 3], "n": None}),
        ("replace", "/l/3", 9, None),
        ("replace", "/l/-", 9, None),
        ("replace", "/x", 9, {"l": [1, 2, 3], "n": None, "x": 9}),
        ("replace", "/x/y", 9, None),
        ("replace", "/l", None, {"l": None, "n": None}),
        ("remove", "/l/-1", None, {"l": [1, 2], "n": None}),
        ("remove", "/l/-4", None, None),
        ("remove", "/n", None, {"l": [1, 2, 3]}),
        ("remove", "/x", None, None),
    ],
)
def test_plaintext_is_applied_as_by_the_patch_library_of_the_original(
    op: str, path: str, value: Any, spec: dict[str, Any] | None
) -> None:
    pod = {"kind": "Pod", "metadata": {"name": "web"}, "spec": {"l": [1, 2, 3], "n": None}}
    edit = {"op": op, "path": f"/spec{path}", "value": value}
    rule = {"overriders": {"plaintext": [edit]}}
    mutation = program("ClusterOverridePolicy", {"overrideRules": [rule]}).mutation
    if spec is None:
        with pytest.raises(EvaluationError):
            mutation.apply(None, context(pod), pod, SHIPPED)
    else:
        assert mutation.apply(None, context(pod), pod, SHIPPED) == {**pod, "spec": spec}


@pytest.mark.parametrize("op", ["add", "remove", "replace"])
def test_plaintext_cannot_change_the_whole_object(op: str) -> None:
    rule = {"overriders": {"plaintext": [{"op": op, "path": "", "value": 1}]}}
    with pytest.raises(InvalidPolicy, match="names the whole object") as caught:
        program("ClusterOverridePolicy", {"overrideRules": [rule]})
    assert caught.value.location == "spec.overrideRules[0].overriders.plaintext[0].path"


@pytest.mark.parametrize("number", ["1234567.5", "0.50", "1e8", "3"])
def test_a_template_writes_a_number_as_it_is_written_in_the_policy(number: str) -> None:
    value = {"float": number}
    template = {"type": "labels", "operation": "add", "path": "n", "value": value}
    assert changed(template, {})["metadata"]["labels"] == {"n": number}


@pytest.mark.parametrize(
    ("number", "text"), [(1234567.25, "1234567.25"), (2.0, "2"), (7, "7"), (0.1, "0.1")]
)
def test_a_number_of_an_object_is_written_as_text_without_loss(number: float, text: str) -> None:
    value = {"from": "current", "path": "/spec/n"}
    template = {"type": "labels", "operation": "add", "path": "n", "valueRef": value}
    assert changed(template, {"n": number})["metadata"]["labels"] == {"n": text}


@pytest.mark.parametrize(
    ("edit", "current", "value"),
    [
        ({"type": "labels", "operation": "add", "labels": {"a": "1"}}, None, {"a": "1"}),
        (
            {"type": "labels", "operation": "replace", "labels": {"a": "1"}},
            {"a": "0", "b": "0"},
            {"a": "1", "b": "0"},
        ),
        ({"type": "labels", "operation": "remove", "labels": {"a": "1"}}, {"a": "0"}, {}),
        ({"type": "labels", "operation": "remove", "labels": {"a": "1"}}, None, None),
        ({"type": "labels", "operation": "replace", "replace": True}, {"a": "0"}, None),
        ({"type": "annotations", "operation": "add"}, {"a": "0"}, {"a": "0"}),
        ({"type": "nodeSelector", "operation": "remove", "nodeSelector": {"a": ""}}, None, None),
        ({"type": "tolerations", "operation": "remove", "tolerations": [A]}, [A], None),
        ({"type": "tolerations", "operation": "remove", "tolerations": [A]}, None, None),
        ({"type": "tolerations", "operation": "replace", "tolerations": [A]}, [A2], [A, A2]),
        ({"type": "tolerations", "operation": "add", "tolerations": [A]}, None, [A]),
        (
            {"type": "affinity", "operation": "replace", "replace": True},
            {"nodeAffinity": {}},
            None,
        ),
        ({"type": "hostNetwork", "operation": "replace"}, True, False),
        ({"type": "schedulerName", "operation": "replace"}, "x", ""),
        ({"type": "topologySpreadConstraints", "operation": "replace"}, [{}], None),
    ],
)
def test_an_edit_of_origin_has_the_result_of_the_original(
    edit: dict[str, Any], current: Any, value: Any
) -> None:
    place = {} if current is None else {edit["type"]: current}
    obj = {"kind": "Pod", "metadata": {"name": "a", **place}, "spec": place}
    (found,) = read_origin([edit], "origin")
    assert found.patch(obj).value == value


@pytest.mark.parametrize(
    ("amounts", "factors", "found"),
    [
        ({"cpu": "100m", "memory": "1Gi"}, {"cpu": "0.337"}, {"cpu": "33m", "memory": "1Gi"}),
        (
            {"cpu": "0", "memory": "3"},
            {"cpu": "0.5", "memory": "0.5"},
            {"cpu": "0", "memory": "1"},
        ),
        # A factor may exceed 1 or be 0; only cpu and memory have one.
        (
            {"cpu": "1", "memory": "1Gi"},
            {"cpu": "1.5", "memory": "0"},
            {"cpu": "1500m", "memory": "0"},
        ),
        ({"cpu": "1", "gpu": "1"}, {"cpu": "1", "gpu": "0.5"}, {"cpu": "1000m", "gpu": "1"}),
    ],
)
def test_an_oversell_of_origin_rounds_down(
    amounts: dict[str, str], factors: dict[str, str], found: dict[str, str]
) -> None:
    edit = {"type": "resourceOversell", "resourcesOversell": {"request": factors}}
    pod = {"kind": "Pod", "spec": {"containers": [{"resources": {"requests": amounts}}]}}
    (read,) = read_origin([edit], "origin")
    assert read.patch(pod).value == {"requests": found}


@pytest.mark.parametrize(
    ("mode", "condition", "annotations", "old", "refused"),
    [
        ("reject", {"cond": "Equal", "value": {"string": "yes"}}, {}, {}, False),
        ("allow", {"cond": "Equal", "value": {"string": "yes"}}, {}, {}, True),
        ("allow", {"cond": "Equal", "value": {"string": "yes"}}, {"confirm": "yes"}, {}, False),
        ("allow", {"cond": "Equal", "value": {"string": "yes"}}, {"confirm": "no"}, {}, True),
        ("allow", {"cond": "Exist"}, {}, {}, True),
        ("allow", {"cond": "NotExist"}, {}, {}, False),
        ("allow", {"cond": "NotEqual", "value": {"string": "no"}}, {}, {}, True),
        ("allow", {"cond": "Equal", "valueRef": OLD}, {"confirm": "7"}, {"code": "7"}, False),
        ("allow", {"cond": "Equal", "valueRef": OLD}, {"confirm": "7"}, {}, True),
        ("reject", {"cond": "Equal", "valueRef": OLD}, {"confirm": "7"}, {}, False),
    ],
)
def test_the_mode_allow_refuses_everything_that_does_not_match(
    mode: str,
    condition: dict[str, Any],
    annotations: dict[str, str],
    old: dict[str, str],
    *,
    refused: bool,
) -> None:
    whole = {**condition, "affectMode": mode, "dataRef": NOW, "message": "confirm it"}
    rule = {"template": {"type": "condition", "condition": whole}}
    found = program("ClusterValidatePolicy", {"validateRules": [rule]})
    asked = context({"metadata": {"annotations": annotations}}, {"metadata": {"annotations": old}})
    assert found.condition is not None
    assert found.condition.evaluate(asked).passed is refused


@pytest.mark.parametrize(
    ("data", "value", "fits"),
    [
        (1, {"float": "1.0"}, True),
        (1.5, {"integer": 1}, False),
        (None, {"string": "a"}, False),
        ("a", {"string": "a"}, True),
        ("a", {"string": ""}, False),
        ("1", {"integer": 1}, None),
        (True, {"integer": 1}, None),
        (True, {"string": "true"}, None),
        ([1], {"string": "1"}, None),
        ([1], {"integerSlice": [1]}, True),
    ],
)
@pytest.mark.parametrize("cond", ["Equal", "NotEqual"])
def test_values_of_different_types_cannot_be_compared(
    data: Any, value: dict[str, Any], fits: bool | None, cond: str
) -> None:
    reference = {"from": "current", "path": "/spec/data"}
    whole = {"cond": cond, "value": value, "dataRef": reference}
    rule = {"template": {"type": "condition", "condition": whole}}
    found = program("ClusterValidatePolicy", {"validateRules": [rule]})
    asked = context({"spec": {"data": data}})
    assert found.condition is not None
    if fits is None:
        with pytest.raises(EvaluationError, match=f"{cond} takes two values of one type"):
            found.condition.evaluate(asked)
    else:
        assert found.condition.evaluate(asked).passed is (fits is (cond == "Equal"))


def verdict(condition: dict[str, Any], data: Any, operation: str = "UPDATE") -> bool:
    """Return whether a condition on a field refuses; the old object has the same field."""
    whole = {"dataRef": {"from": "current", "path": "/spec/data"}, **condition}
    rule = {"template": {"type": "condition", "condition": whole}}
    found = program("ClusterValidatePolicy", {"validateRules": [rule]})
    obj = {"spec": {"data": data}}
    asked = context({} if operation == "DELETE" else obj, obj, operation)
    assert found.condition is not None
    return found.condition.evaluate(asked).passed


@pytest.mark.parametrize(
    ("value", "operation", "operand", "result"),
    [
        ({"integer": 100}, "*", "7%", 7),
        ({"integer": 100}, "*", "29%", 29),
        ({"integer": 3}, "*", "0.1", 0.3),
        ({"float": ".5"}, "-", "29%", 0.21),
        ({"float": "0.1"}, "+", "0.2", 0.3),
        ({"integer": 21}, "/", "70%", 30),
    ],
)
def test_a_value_is_processed_with_decimal_arithmetic(
    value: dict[str, Any], operation: str, operand: str, result: float
) -> None:
    process = {"operation": operation, "operationWith": operand}
    for cond, fits in (("Equal", True), ("Gte", True), ("Lte", True), ("Gt", False)):
        condition = {"cond": cond, "value": value, "valueProcess": process}
        assert verdict(condition, result) is fits


@pytest.mark.parametrize(("cond", "fits"), [("In", True), ("NotIn", False)])
def test_a_list_is_compared_without_processing_its_values(cond: str, *, fits: bool) -> None:
    process = {"operation": "*", "operationWith": "50%"}
    condition = {"cond": cond, "value": {"integerSlice": [1, 2]}, "valueProcess": process}
    assert verdict(condition, 2) is fits
    with pytest.raises(InvalidPolicy, match=f"{cond} takes a list") as caught:
        verdict({"cond": cond, "value": {"string": "a"}}, "a")
    assert caught.value.location == "spec.validateRules[0].template.condition.value"


@pytest.mark.parametrize(("operation", "old"), [("UPDATE", True), ("DELETE", False)])
def test_only_an_update_has_an_old_object(operation: str, *, old: bool) -> None:
    reference = {"from": "old", "path": "/spec/data"}
    assert verdict({"cond": "Exist", "dataRef": reference}, 1, operation) is old
    assert verdict({"cond": "NotExist", "dataRef": reference}, 1, operation) is not old
    assert verdict({"cond": "Equal", "valueRef": reference}, 1, operation) is old


@pytest.mark.parametrize(
    "path",
    [
        "/spec/data/a-b/0",
        'spec.data."a-b"[0]',
        'spec.data["a-b"][0]',
        'spec["data"]["a-b"][0]',
        'spec.data["c/d.e"][0]',
        'spec.data."c/d.e"[0]',
    ],
)
def test_a_key_of_a_path_may_be_quoted(path: str) -> None:
    data = {"a-b": [1], "c/d.e": [1]}
    assert verdict({"cond": "Exist", "dataRef": {"from": "current", "path": path}}, data)


def test_a_template_removes_the_annotation_of_its_path() -> None:
    template = {"type": "annotations", "operation": "add", "value": {"stringMap": {"a": "1"}}}
    assert changed(template, {})["metadata"]["annotations"] == {"a": "1"}
    rules = [{**template, "operation": "remove", "path": path} for path in ("b", "a")]
    spec = {"overrideRules": [{"overriders": {"template": rule}} for rule in rules]}
    head = {"apiVersion": "policy.kcloudlabs.io/v1alpha1", "kind": "ClusterOverridePolicy"}
    obj: Any = {"kind": "Pod", "metadata": {"annotations": {"a": "1", "c": "2"}}}
    for rule in KINITIRAS.compile({**head, "metadata": {"name": "p"}, "spec": spec}).programs:
        obj = rule.mutation.apply(None, context(obj), obj, SHIPPED)
    assert obj["metadata"]["annotations"] == {"c": "2"}


@pytest.mark.parametrize("labels", [{"app": "w*"}, {"app?": "web"}])
def test_labels_of_a_selector_cannot_have_wildcards(labels: dict[str, str]) -> None:
    raw = {"apiVersion": "v1", "kind": "Pod", "labelSelector": {"matchLabels": labels}}
    with pytest.raises(InvalidPolicy, match="a label has no wildcards") as caught:
        read_selector(raw, "s")
    assert caught.value.location == f"s.labelSelector.matchLabels.{next(iter(labels))}"


@pytest.mark.parametrize("empty", [{}, {"matchLabels": {}}, {"matchExpressions": []}])
def test_an_empty_label_selector_selects_all(empty: dict[str, Any]) -> None:
    raw = {"apiVersion": "v1", "kind": "Pod", "labelSelector": empty}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    assert read_selector(raw, "s").matches(pod, name="a", namespace="")


@pytest.mark.parametrize(
    ("meta", "exists", "absent", "other"),
    [
        ({"annotations": {"a.b/c": "x"}}, True, False, True),
        ({"annotations": {"a.b/c": ""}}, True, False, True),
        ({"annotations": {}}, False, True, True),
        ({"annotations": None}, False, True, True),
        ({}, False, True, True),
        # A value that exists and is no text fits no condition.
        ({"annotations": {"a.b/c": None}}, False, False, False),
        ({"annotations": {"a.b/c": 1}}, False, False, False),
        ({"annotations": "x"}, False, False, False),
    ],
)
def test_operators_of_a_field_selector_distinguish_missing_and_invalid_values(
    meta: dict[str, Any], *, exists: bool, absent: bool, other: bool
) -> None:
    def matches(operator: str, *values: str) -> bool:
        field = {"field": "metadata.annotations.a.b/c", "operator": operator}
        expressions = [{**field, "value": list(values)}]
        selector = {"matchExpressions": expressions}
        raw = {"apiVersion": "v1", "kind": "Pod", "fieldSelector": selector}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", **meta}}
        return read_selector(raw, "s").matches(pod, name="a", namespace="")

    assert matches("Exists") is exists
    assert matches("DoesNotExist") is absent
    assert matches("NotIn", "y") is other


@pytest.mark.parametrize(
    ("data", "value", "fits"),
    [
        (5, {"floatSlice": ["0.5", "5.0"]}, True),
        (0.5, {"floatSlice": ["0.5"]}, True),
        ("0.5", {"floatSlice": ["0.5"]}, False),
        ("5", {"integerSlice": [5]}, False),
        (True, {"integerSlice": [1]}, False),
    ],
)
def test_a_list_contains_numbers_by_value(data: Any, value: dict[str, Any], *, fits: bool) -> None:
    assert verdict({"cond": "In", "value": value}, data) is fits


def test_objects_are_compared_by_content() -> None:
    given = {"from": "old", "path": "/spec/data"}
    assert verdict({"cond": "Equal", "valueRef": given}, {"a": {"b": [1]}})
    assert not verdict({"cond": "NotEqual", "valueRef": given}, {"a": {"b": [1]}})
