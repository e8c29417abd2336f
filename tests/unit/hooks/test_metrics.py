"""The metrics that hooks report."""

import json

import pytest
from prometheus_client.parser import text_string_to_metric_families

from reconciler.errors import InvalidPolicy
from reconciler.hooks.metrics import Action, HookMetrics, MetricOperation, parse_metrics


def lines(*operations: dict[str, object]) -> str:
    return "\n".join(json.dumps(operation) for operation in operations)


def values(metrics: HookMetrics) -> dict[str, float]:
    """Return every sample of a scrape; the parser renames counters."""
    return {
        sample.name.removesuffix("_total")
        + "".join(f" {name}={value}" for name, value in sorted(sample.labels.items())): (
            sample.value
        )
        for family in text_string_to_metric_families(metrics.exposition())
        for sample in family.samples
    }


def test_several_operations_in_one_text_are_parsed() -> None:
    text = (
        '{"name":"a","action":"add","value":1,"labels":{"y":"2","x":"1"}}'
        '{"name":"b","set":3}\n\n{"name":"c","add":0.5}'
        '{"group":"g","action":"expire"}'
    )
    assert parse_metrics(text) == (
        MetricOperation(action=Action.ADD, name="a", value=1, labels=(("x", "1"), ("y", "2"))),
        MetricOperation(action=Action.SET, name="b", value=3),
        MetricOperation(action=Action.ADD, name="c", value=0.5),
        MetricOperation(action=Action.EXPIRE, group="g"),
    )
    assert parse_metrics(" \n") == ()


def test_the_fields_of_an_operation_are_named_in_any_case() -> None:
    assert parse_metrics('{"Name":"a","SET":1,"Labels":{"B":"C"}}') == (
        MetricOperation(action=Action.SET, name="a", value=1, labels=(("B", "C"),)),
    )


def test_a_value_that_is_too_large_for_a_number_is_refused() -> None:
    with pytest.raises(InvalidPolicy, match="is too large"):
        parse_metrics('{"name":"a","set":1e400}')


def test_empty_buckets_and_null_labels_are_read_as_in_the_original() -> None:
    (found,) = parse_metrics(
        '{"name":"h","action":"observe","value":3,"buckets":[],"labels":{"a":null}}'
    )
    assert (len(found.buckets), found.buckets[-1], found.labels) == (11, 10.0, (("a", ""),))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "metrics[0]: is not a complete JSON object: write one object for each operation"),
        ('{"name":"a","set":1}\n{"na', "metrics[1]: is not a complete JSON object"),
        ("[1]", "metrics[0]: expected an object, got a list"),
        ('{"name":"a","value":1}', "metrics[0].action: None is not known, use one of add, set"),
        ('{"name":"a","action":"inc"}', "metrics[0].action: 'inc' is not known"),
        ('{"name":"a","set":1,"add":1}', "metrics[0].set: cannot be combined with add"),
        ('{"name":"a b","set":1}', "metrics[0].name: 'a b' is not a metric name"),
        ('{"set":1}', "metrics[0].name: '' is not a metric name"),
        ('{"name":"a","action":"set"}', "metrics[0].value: expected a number, got nothing"),
        ('{"name":"a","set":true}', "metrics[0].value: expected a number"),
        ('{"name":"a","add":-1}', "metrics[0].value: a counter cannot decrease"),
        (
            '{"name":"a","set":1,"labels":{"a-b":"c"}}',
            "metrics[0].labels: 'a-b' is not a label name",
        ),
        ('{"name":"a","set":1,"labels":{"a":1}}', "metrics[0].labels.a: expected a string"),
        (r'{"name":"a","set":1,"labels":{"a":"\ud83d"}}', "metrics[0].labels.a: is not text"),
        ('{"name":"a","set":NaN}', "metrics[0]: is not a complete JSON object"),
        ('{"action":"expire"}', "metrics[0].group: is required"),
        ('{"name":"a","action":"observe","value":1}', "metrics[0].buckets: is required"),
        (
            '{"name":"a","action":"observe","value":1,"buckets":[2,1]}',
            "metrics[0].buckets: must be in ascending order",
        ),
        (
            '{"name":"a","action":"observe","value":1,"buckets":[1],"group":"g"}',
            "metrics[0].group: a histogram cannot be in a group",
        ),
    ],
)
def test_an_invalid_operation_is_refused_with_its_location(text: str, said: str) -> None:
    with pytest.raises(InvalidPolicy) as error:
        parse_metrics(text)
    assert str(error.value).startswith(said)


def test_counters_add_up_for_each_hook_under_a_shared_name() -> None:
    metrics = HookMetrics()
    for hook in ("a.sh", "b.sh", "a.sh"):
        text = lines({"name": "n", "add": 1}, {"name": "g", "set": 5, "labels": {"x": '"\\\n'}})
        assert metrics.take(hook, parse_metrics(text)) == []
    assert values(metrics) == {
        "n hook=a.sh": 2,
        "n hook=b.sh": 1,
        'g hook=a.sh x="\\\n': 5,
        'g hook=b.sh x="\\\n': 5,
    }


def test_a_histogram_counts_values_in_its_buckets() -> None:
    metrics = HookMetrics()
    for value in (0.5, 1, 7):
        text = lines({"name": "h", "action": "observe", "value": value, "buckets": [1, 2.5]})
        metrics.take("a.sh", parse_metrics(text))
    assert values(metrics) == {
        "h_bucket hook=a.sh le=1.0": 2,
        "h_bucket hook=a.sh le=2.5": 2,
        "h_bucket hook=a.sh le=+Inf": 3,
        "h_sum hook=a.sh": 8.5,
        "h_count hook=a.sh": 3,
    }


def test_a_run_replaces_only_the_values_of_its_groups() -> None:
    metrics = HookMetrics()
    first = lines(
        {"group": "one", "name": "n", "add": 1, "labels": {"kind": "pod"}},
        {"group": "one", "name": "n", "add": 1, "labels": {"kind": "replicaset"}},
        {"group": "one", "name": "special", "set": 12},
        {"name": "n", "add": 1, "labels": {"kind": "node"}},
    )
    metrics.take("a.sh", parse_metrics(first))
    metrics.take("b.sh", parse_metrics(lines({"group": "two", "name": "n", "add": 1})))
    again = lines({"group": "one", "name": "n", "add": 1, "labels": {"kind": "pod"}})
    metrics.take("a.sh", parse_metrics(again))
    assert values(metrics) == {
        "n hook=a.sh kind=pod": 2,
        "n hook=a.sh kind=node": 1,
        "n hook=b.sh": 1,
    }
    metrics.take("a.sh", parse_metrics(lines({"group": "two", "action": "expire"})))
    assert values(metrics) == {"n hook=a.sh kind=pod": 2, "n hook=a.sh kind=node": 1}


def test_the_number_of_series_of_a_hook_is_limited() -> None:
    metrics = HookMetrics(most=100)
    text = lines(
        *({"name": "n", "set": 1, "labels": {"id": str(number)}} for number in range(10_000))
    )
    assert metrics.take("a.sh", parse_metrics(text)) == [
        ("9900 values are dropped: a hook may have 100 series; use fewer label values, or a group")
    ]
    assert len(values(metrics)) == 100
    assert metrics.take("b.sh", parse_metrics(lines({"name": "n", "set": 1}))) == []


def test_a_second_type_for_a_metric_name_is_refused() -> None:
    metrics = HookMetrics()
    assert metrics.take("a.sh", parse_metrics(lines({"name": "n", "set": 1}))) == []
    assert metrics.take("b.sh", parse_metrics(lines({"name": "n", "add": 1}))) == [
        "n is already a gauge and cannot also be a counter"
    ]
