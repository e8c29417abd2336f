import pytest

from reconciler.errors import EvaluationError
from reconciler.languages.jmespath import Limits, MissingKey, compile_expression

DATA = {
    "box": {"size": 4, "tags": {"b": "two", "a": "one"}},
    "rows": [{"id": 1, "on": True}, {}, {"id": 3, "on": False}],
    "grid": [[1, 2], [3, [4]], 5],
    "nothing": None,
    "zero": 0,
    "empty": {},
    "word": "abc",
    "reals": [1.0, 2.5],
}


def search(source, data=DATA):
    return compile_expression(source).search(data)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("box.size", 4),
        ("box.size.deeper", None),
        ("nothing.deeper", None),
        ('box."tags".a', "one"),
        ("rows[0].id", 1),
        ("rows[-1].id", 3),
        ("rows[7]", None),
        ("rows[7].id", None),
        ("word[0]", None),
        ("rows[1:]", [{}, {"id": 3, "on": False}]),
        ("rows[::-1].id", [3, 1]),
        ("grid[1][:1]", [3]),
        ("[rows][0][1:].id", [3]),
        ("word[0:2]", None),
        ("rows[].id", [1, 3]),
        ("rows[*].id", [1, 3]),
        ("grid[]", [1, 2, 3, [4], 5]),
        ("grid[][]", [1, 2, 3, 4, 5]),
        ("box.size[]", None),
        ("box.tags.*", ["one", "two"]),
        ("*.size", [4]),
        ("rows[?on].id", [1]),
        ("rows[?id > `1`] | [0].id", 3),
        ("rows[?absent]", []),
        ("rows[*].[id, on]", [[1, True], [None, None], [3, False]]),
        ("rows[0].{number: id, other: absent}", {"number": 1, "other": None}),
        ("nothing.[a]", None),
        ("nothing.{a: b}", None),
        ("box | size", 4),
        ("'raw \\' text'", "raw ' text"),
        ('`{"a": [1, null]}`', {"a": [1, None]}),
        ("@ | word", "abc"),
        ("zero && 'zero is true'", "zero is true"),
        ("empty || 'empty is false'", "empty is false"),
        ("!empty", True),
        ("!zero", False),
        ("nothing && 'x'", None),
        ("word && nothing", None),
        ("box.size > `3`", True),
        ("box.size <= `3`", False),
        ("word > `3`", None),
        ("word < 'b'", None),
        ("rows[0].on > `0`", None),
    ],
)
def test_expressions_return_the_expected_values(source, expected):
    assert search(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "absent",
        "box.absent",
        "box.absent.deeper",
        "absent[0]",
        "word && absent",
        "rows[1].id",
    ],
)
def test_a_missing_key_is_an_error_in_these_expressions(source):
    with pytest.raises(MissingKey, match=r'Unknown key "(absent|id)" in path'):
        search(source)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("absent || 'other'", "other"),
        ("box.absent.deeper || 'other'", "other"),
        ("nothing || absent", None),
        ("absent && 'x'", None),
        ("!absent", True),
        ("absent == 'x'", False),
        ("absent == nothing", True),
        ("box.size != absent", True),
        ("absent > `1`", None),
        ("[absent, word]", [None, "abc"]),
        ("{a: absent}", {"a": None}),
        ("absent | @", None),
        ("box | absent", None),
        ("absent[]", None),
        ("absent[?a]", None),
        ("absent[*]", None),
        ("absent[*].id", None),
        ("absent[0:1]", None),
        ("map(&id, rows)", [1, None, 3]),
        ("sort_by(rows[1:2], &id)", [{}]),
        ("max_by(rows[1:2], &absent)", {}),
        ("absent.*", None),
        ("rows[*].absent.deeper", []),
        ("not_null(absent, word)", "abc"),
        ("type(absent)", "null"),
    ],
)
def test_a_missing_key_is_null_in_these_expressions(source, expected):
    assert search(source) == expected


@pytest.mark.parametrize(
    "source", ["keys(absent)[?@ == 'a']", "parse_json(word)[]", "items(word, 'k', 'v').*"]
)
def test_every_error_is_null_in_these_expressions(source):
    assert search(source) is None


def test_a_limit_is_an_error_everywhere():
    expression = compile_expression("map(&@, rows)[]", limits=Limits(elements=2))
    with pytest.raises(EvaluationError, match="visits more than 2 elements"):
        expression.search(DATA)


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        (True, True, True),
        ("1", 1, False),
        (None, False, False),
        ([1, {"a": 2}], [1.0, {"a": 2.0}], True),
        ([1, True], [1, 1], False),
        ([1], [1, 2], False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": 1}, {"a": 1, "b": None}, False),
        ({"a": 1}, {"b": 1}, False),
        ([], {}, False),
        ({}, "", False),
    ],
)
def test_equality_is_deep_and_distinguishes_numbers_from_booleans(left, right, same):
    data = {"left": left, "right": right}
    assert search("left == right", data) is same
    assert search("right != left", data) is not same


def test_a_literal_cannot_be_changed_through_a_later_evaluation():
    expression = compile_expression("length(`[1, 2]`)")
    assert [expression.search({}), expression.search({})] == [2, 2]


def test_numbers_beyond_64_bits_are_floats():
    value = search("`123456789012345678901234567890`", {})
    assert isinstance(value, float)
    assert search("`9223372036854775807`", {}) == 2**63 - 1


def test_a_lone_surrogate_of_a_literal_is_replaced():
    assert search('`"a\\ud800"`', {}) == "a\ufffd"


def test_evaluation_does_not_change_the_data():
    before = repr(DATA)
    search("[rows[*].id, sort(reals), reverse(rows), merge(box, empty), values(box), rows[]]")
    assert repr(DATA) == before


def test_a_missing_key_is_an_evaluation_error():
    with pytest.raises(EvaluationError):
        search("absent")
