from typing import Any

import pytest

from reconciler.dialects.kyverno.preconditions import compile_conditions
from reconciler.engine.context import Context
from reconciler.engine.outcome import ConditionResult
from reconciler.errors import EvaluationError, InvalidPolicy

POD = {
    "metadata": {"name": "web-1", "annotations": {"any": "*", "one": "a?c", "list": '["*"]'}},
    "spec": {"replicas": 3, "args": ["a", "*"]},
}
CONTEXT = Context(
    {
        "request": {"object": POD, "operation": "UPDATE"},
        "allowed": {"names": ["web-*", "db-*"], "text": "web-*"},
    }
)
TRUE = {"key": 1, "operator": "Equals", "value": 1, "message": "is one"}
FALSE = {"key": 1, "operator": "Equals", "value": 2, "message": "is not two"}
UNRESOLVED = {"key": "{{ request.object.spec.absent }}", "operator": "Equals", "value": "x"}


def evaluate(raw: Any) -> ConditionResult:
    return compile_conditions(raw, location="spec.rules[0].preconditions").evaluate(CONTEXT)


def holds(key: Any, operator: str, value: Any) -> bool:
    return evaluate([{"key": key, "operator": operator, "value": value}]).passed


@pytest.mark.parametrize(
    ("raw", "passed", "message"),
    [
        (None, True, ""),
        ({}, True, ""),
        ([], True, ""),
        ({"any": None, "all": None}, True, ""),
        ({"any": []}, False, ""),
        ({"all": []}, True, ""),
        ({"any": [FALSE, TRUE, TRUE]}, True, "is one"),
        ({"any": [FALSE, FALSE]}, False, "is not two; is not two"),
        ({"all": [TRUE, FALSE, UNRESOLVED]}, False, "is not two"),
        ({"any": [TRUE], "all": [TRUE]}, True, "is one; is one"),
        ({"any": [TRUE], "all": [FALSE]}, False, "is not two"),
        ({"any": [FALSE], "all": [TRUE]}, False, "is not two"),
        ([TRUE, FALSE, UNRESOLVED], False, "is not two"),
        ([TRUE, TRUE], True, "is one; is one"),
        ([{"key": 1, "operator": "Equals", "value": 2}, FALSE], False, ""),
    ],
)
def test_any_and_all_decide_and_return_the_messages_of_conditions(
    raw: Any, passed: bool, message: str
) -> None:
    assert evaluate(raw) == ConditionResult(passed=passed, message=message)


def test_a_false_any_does_not_hide_an_error_in_all() -> None:
    with pytest.raises(EvaluationError, match="failed to substitute variables in condition key: "):
        evaluate({"any": [FALSE], "all": [UNRESOLVED]})


def test_an_unresolved_value_is_an_error() -> None:
    condition = {"key": "x", "operator": "Equals", "value": ["{{ request.object.absent }}"]}
    with pytest.raises(EvaluationError, match="failed to substitute variables in condition value"):
        evaluate([condition])


def test_variables_keep_their_types() -> None:
    assert holds("{{ request.object.spec.replicas }}", "GreaterThan", 2)
    assert holds("{{ request.object.metadata.name }}", "AnyIn", "{{ allowed.names }}")
    assert holds("{{ request.object.spec.args }}", "Equals", ["a", "*"])
    assert holds(
        {"n": "{{ request.object.spec.replicas }}", "l": ["{{ request.operation }}"]},
        "Equals",
        {"n": 3, "l": ["UPDATE"]},
    )
    assert holds("n={{ request.object.spec.replicas }}", "Equals", "n=*")
    assert holds("\\{{ x }}", "Equals", "\\{{ x }}")


def test_operators_of_equality_and_membership_ignore_case() -> None:
    assert holds("a", "equals", "a")
    assert holds("a", "ANYIN", ["a"])
    assert holds("a", "NotEqual", "b")


ANY = "{{ request.object.metadata.annotations.any }}"
ONE = "{{ request.object.metadata.annotations.one }}"


@pytest.mark.parametrize(
    ("key", "operator", "value"),
    [
        (ANY, "AnyIn", ["secret"]),
        ("secret", "Equals", ANY),
        ("secret", "AnyIn", ANY),
        ("abc", "Equals", ONE),
        ("secret", "AnyIn", ["public", ANY]),
        ("secret-1", "Equals", f"{ANY}-*"),
        ("x", "AnyIn", "{{ request.object.spec.args }}"),
        (["x"], "AnyIn", "{{ request.object.metadata.annotations.list }}"),
    ],
)
def test_a_wildcard_from_an_object_is_plain_text(key: Any, operator: str, value: Any) -> None:
    assert not holds(key, operator, value)


@pytest.mark.parametrize(
    ("key", "operator", "value"),
    [
        (ANY, "Equals", "*"),
        (ANY, "Equals", ANY),
        (ANY, "AnyIn", ["*"]),
        ("*-1", "Equals", f"{ANY}-?"),
        ("a?c", "AnyIn", ["x", ONE]),
        ('a:["a","*"]', "Equals", "a:{{ request.object.spec.args }}"),
        ("web-1", "Equals", "{{ allowed.text }}"),
        ("web-1", "AnyIn", ["{{ request.operation }}", "web-?"]),
        ("x", "AnyIn", "{{ request.object.metadata.labels.allowed || '*' }}"),
        ("web-1", "AnyIn", "{{ 'web-*' }}"),
    ],
)
def test_a_wildcard_in_the_policy_or_on_both_sides_matches(
    key: Any, operator: str, value: Any
) -> None:
    assert holds(key, operator, value)


def test_conditions_report_the_fields_that_they_read() -> None:
    conditions = compile_conditions(
        {
            "any": [
                {"key": "{{ request.operation }}", "operator": "Equals", "value": "{{ allowed }}"}
            ]
        },
        location="preconditions",
    )
    assert conditions.roots == {"request", "allowed"}
    assert ("request", "operation") in conditions.reads
    assert len(conditions.templates) == 2
    assert compile_conditions(None, location="").roots == frozenset()


@pytest.mark.parametrize(
    ("raw", "location", "reason"),
    [
        ("x", "", "invalid preconditions"),
        ({"some": []}, ".some", "unknown field"),
        ({"any": {}}, ".any", "expected a list"),
        ({"all": ["x"]}, ".all[0]", "expected an object"),
        ([{"key": "a", "operator": "Equals"}], "[0]", "is missing or misspelled"),
        ([{"key": None, "operator": "Equals", "value": 1}], "[0]", "is missing or misspelled"),
        ([{"key": 1, "value": 1}], "[0]", "is missing or misspelled"),
        ([{**TRUE, "operator": "Like"}], "[0].operator", "valid values: [Equals, "),
        ([{**TRUE, "operator": "greaterthan"}], "[0].operator", "entered value of `operator` is"),
        ([{**TRUE, "message": 1}], "[0].message", "expected a string"),
        ([{**TRUE, "key": "{{ a.[ }}"}], "[0].key", ""),
    ],
)
def test_invalid_conditions_are_refused_with_their_location(
    raw: Any, location: str, reason: str
) -> None:
    with pytest.raises(InvalidPolicy) as caught:
        compile_conditions(raw, location="preconditions")
    assert caught.value.location == f"preconditions{location}"
    assert reason in caught.value.reason
