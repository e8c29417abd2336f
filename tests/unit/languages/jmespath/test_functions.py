import pytest

from reconciler.errors import EvaluationError
from reconciler.languages.jmespath import compile_expression

DATA = {
    "n": -2.5,
    "numbers": [3, 1, 2],
    "words": ["pear", "fig", "äpfel"],
    "people": [{"n": "b", "age": 30}, {"n": "a", "age": 20}, {"n": "c", "age": 30}],
    "map": {"b": 1, "a": {"x": [1.0, None]}},
    "secret": "s3cr3t",
    "none": None,
    "flag": True,
    "mixed": [1, "a"],
    "flags": [True],
}


def search(source):
    return compile_expression(source).search(DATA)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("abs(n)", 2.5),
        ("ceil(n)", -2),
        ("floor(n)", -3),
        ("avg(numbers)", 2.0),
        ("avg(`[]`)", None),
        ("contains(words, 'fig')", True),
        ("contains(numbers, `2.0`)", True),
        ("contains(flags, `1`)", False),
        ('contains(people, `{"age": 20, "n": "a"}`)', True),
        ("contains('figs', 'fig')", True),
        ("contains('figs', `1`)", False),
        ("ends_with('figs', 'gs')", True),
        ("starts_with('figs', 'gs')", False),
        ("join('-', words)", "pear-fig-äpfel"),
        ("join('-', `[]`)", ""),
        ("keys(map)", ["a", "b"]),
        ("values(map)", [{"x": [1.0, None]}, 1]),
        ("length('äpfel')", 5),
        ("length(words)", 3),
        ("length(map)", 2),
        ("map(&age, people)", [30, 20, 30]),
        ("map(&@, `[1, null]`)", [1, None]),
        ("max(numbers)", 3),
        ("max(words)", "äpfel"),
        ("max(`[]`)", None),
        ("min(numbers)", 1),
        ("max_by(people, &age).n", "b"),
        ("min_by(people, &n).age", 20),
        ("max_by(`[]`, &age)", None),
        ('merge(map, `{"b": 2}`, `{"c": 3}`)', {"a": {"x": [1.0, None]}, "b": 2, "c": 3}),
        ("not_null(none, none)", None),
        ("not_null(none, `false`, n)", False),
        ("reverse(numbers)", [2, 1, 3]),
        ("reverse('abc')", "cba"),
        ("sort(numbers)", [1, 2, 3]),
        ("sort(words)", ["fig", "pear", "äpfel"]),
        ("sort_by(people, &age)[*].n", ["a", "b", "c"]),
        ("sort_by(people, &n)[*].age", [20, 30, 30]),
        ("to_array(n)", [-2.5]),
        ("to_array(numbers)", [3, 1, 2]),
        ("to_number('12')", 12),
        ("to_number('-1.5e2')", -150.0),
        ("to_number('1_0.5')", 10.5),
        ("to_number('0x1p4')", 16.0),
        ("to_number('12 ')", None),
        ("to_number('1__0')", None),
        ("to_number('inf')", None),
        ("to_number('0x10')", None),
        ("to_number('nan')", None),
        ("to_number('1e999')", None),
        ("to_number(flag)", None),
        ("to_number(n)", -2.5),
        ("to_string(map)", '{"a":{"x":[1,null]},"b":1}'),
        ("to_string('text')", "text"),
        ("to_string(`1.0`)", "1"),
        ("to_string(`0.5`)", "0.5"),
        ("to_string(`true`)", "true"),
        ("to_string(none)", "null"),
        ('to_string(`["ä<b>&"]`)', r'["ä\u003cb\u003e\u0026"]'),
        ("to_string(`1e21`)", "1e+21"),
        ("to_string(`1.23e20`)", "123000000000000000000"),
        ("to_string(`1e-7`)", "1e-7"),
        ("to_string(`0.000015`)", "0.000015"),
        ("type(n)", "number"),
        ("type(flag)", "boolean"),
        (
            "[type(map), type(words), type(secret), type(none)]",
            ["object", "array", "string", "null"],
        ),
    ],
)
def test_functions_return_the_expected_values(source, expected):
    result = search(source)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("length(none)", "Invalid type for: <nil>, expected: string or array or object"),
        ("length(absent)", "Invalid type for: <nil>, expected: string or array or object"),
        ("length(n)", r"Invalid type for: number, .* \(argument 1 of length\)"),
        ("abs(secret)", "Invalid type for: string, expected: number"),
        ("abs(flag)", "Invalid type for: boolean, expected: number"),
        ("avg(words)", r"Invalid type for: array, expected: array\[number\]"),
        ("avg(flags)", r"expected: array\[number\]"),
        ("sort(mixed)", r"expected: array\[number\] or array\[string\]"),
        ("join(',', numbers)", r"expected: array\[string\] \(argument 2 of join\)"),
        ("keys(words)", "expected: object"),
        ("sort_by(people, &@)", "Invalid type for: object, expected: number or string"),
        ('max_by(`[{"k": 1}, {"k": "a"}]`, &k)', "Invalid type for: string, expected: number"),
        ('sort_by(`[{"k": 1}, {"k": true}]`, &k)', "Invalid type for: boolean"),
    ],
)
def test_functions_refuse_invalid_arguments(source, message):
    with pytest.raises(EvaluationError, match=message) as failure:
        search(source)
    assert "s3cr3t" not in str(failure.value)
