import pytest

DATA = {"map": {"b": 2, "a": {"x": [1]}}, "list": ["zero", None, "two"]}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("lookup(map, 'b')", 2),
        ("lookup(map, 'z')", None),
        ("lookup(list, `2`)", "two"),
        ("lookup(list, `2.0`)", "two"),
        ("lookup(list, `-1`)", None),
        ("lookup(list, `3`)", None),
        (
            "items(map, 'k', 'v')",
            [{"k": "a", "v": {"x": [1]}}, {"k": "b", "v": 2}],
        ),
        (
            "items(list, 'at', 'is')",
            [{"at": 0, "is": "zero"}, {"at": 1, "is": None}, {"at": 2, "is": "two"}],
        ),
        ("items(map, 'same', 'same')[1]", {"same": 2}),
        ("object_from_lists(['zero', 'two'], `[1]`)", {"zero": 1, "two": None}),
        ("object_from_lists(`[1, 2.0, true]`, `[1, 2, 3, 4]`)", {"1": 1, "2": 2, "true": 3}),
        ("label_match(`{}`, map)", True),
        ('label_match(`{"b": 2.0}`, map)', True),
        ('label_match(`{"a": {"x": [1]}}`, map)', True),
        ('label_match(`{"b": 3}`, map)', False),
        ('label_match(`{"c": null}`, map)', False),
    ],
)
def test_object_functions_return_the_expected_values(run, source, expected):
    assert run(source, **DATA) == expected


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("lookup(map, `1`)", "'lookup': argument #2 is not of type String"),
        ("lookup(list, 'a')", "'lookup': argument #2 is not of type Number"),
        ("lookup(list, `true`)", "'lookup': argument #2 is not of type Number"),
        ("lookup(list, `0.5`)", "'lookup': argument #2: expected an integer number but got: 0.5"),
        (
            "lookup(list, `1234567.5`)",
            "'lookup': argument #2: expected an integer number but got: 1.2345675e+06",
        ),
        (
            "lookup(list, `1e19`)",
            "'lookup': argument #2: number is outside the range of integer numbers: 1e+19",
        ),
        (
            "lookup(list, `1e300`)",
            "'lookup': argument #2: number is outside the range of integer numbers: 1e+300",
        ),
        ("lookup('text', `1`)", "'lookup': argument #1 is not of type Object or Array"),
        ("items(map, `1`, 'v')", "'items': argument #2 is not of type string"),
        ("label_match(map, absent)", "'label_match': argument #2 is not of type object"),
        (
            "object_from_lists(list, `[1]`)",
            "'object_from_lists': argument #1 is not of type StringArray",
        ),
        (
            "object_from_lists([map], `[1]`)",
            "'object_from_lists': argument #1 is not of type StringArray",
        ),
        ("object_from_lists(map, list)", "'object_from_lists': argument #1 is not of type array"),
    ],
)
def test_object_functions_refuse_invalid_arguments(fails, source, reason):
    assert fails(source, **DATA) == f"JMESPath function {reason}"
