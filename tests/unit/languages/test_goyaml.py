"""YAML values by Go's rules; the expected values come from running sigs.k8s.io/yaml 1.2."""

from typing import Any

import pytest

from reconciler.languages import goyaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("y", True),
        ("Off", False),
        ("yEs", "yEs"),
        ("017", 15),
        ("018", 18),
        ("1__0", 10),
        ("0x_1F", 31),
        ("1e3", 1000),
        ("1e400", "1e400"),
        ("190:20:30", "190:20:30"),
        ("18446744073709551615", 18446744073709551615),
        ("18446744073709551616", 18446744073709552000),
        ("2021-05-06", "2021-05-06"),
        ('!!int "7"', 7),
        ("!!float 3", 3),
        ("!!timestamp 2021-1-2", "2021-1-2"),
        ("!!binary aGk=", "hi"),
        ("!other 12", "12"),
        ("{1: a, 1.5: b, on: c, 1e6: d}", {"1": "a", "1.5": "b", "true": "c", "1e+06": "d"}),
        ("{0.1: narrow, .inf: wide}", {"0.1": "narrow", ".inf": "wide"}),
        ("{a: .inf, a: 1, <<: {b: .nan}, b: 2}", {"a": 1, "b": 2}),
        ("a: 1\na: 2", {"a": 2}),
        ("a: &x {b: 1}\nc: {b: 2, <<: *x}", {"a": {"b": 1}, "c": {"b": 1}}),
        ("a: &x {b: 1}\nc: {<<: *x, b: 2}", {"a": {"b": 1}, "c": {"b": 2}}),
        ("<<: [{a: 1}, {a: 2, b: 3}]", {"a": 1, "b": 3}),
        ('"<<": {a: 1}', {"<<": {"a": 1}}),
        ("{a: 1}}", {"a": 1}),
        ('"a" b', "a"),
        ("a: 1\n---\n[", {"a": 1}),
        ("", None),
        ("\ufeffa: 1", {"a": 1}),
        (r'"it\'s {a:}"', "it's {a:}"),
        ("[it's a:, {b:}]", ["it's a:", {"b:": None}]),
        ("a: &x {b: &x {c: 1}}\nd: *x", {"a": {"b": {"c": 1}}, "d": {"c": 1}}),
        ("['a?', {? b : c}, ?d]", ["a?", {"b": "c"}, {"d": None}]),
        ("%YAML 1.1\n---\na?", "a?"),
    ],
)
def test_a_value_is_read_as_in_go(text: str, value: Any) -> None:
    found = goyaml.parse(text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (".inf", "JSON has no infinity and no NaN"),
        ("a: &x [1, {b: .nan}]\na: [*x]", "line 1, column 15: JSON has no infinity and no NaN"),
        ("{null: a}", "line 1, column 2: a key is not a string"),
        ("{18446744073709551615: a}", "a key is not a string"),
        ("[a]: b", "a key is not a string"),
        ("!!int x", "the text does not fit its tag !!int"),
        ("!!timestamp 2021-02-30", "!!timestamp"),
        ("!!binary secret", "!!binary takes base64"),
        ("a: *secret", "line 1, column 4: an alias refers to an anchor"),
        ("&a [*a]", "contains itself"),
        ("a: &x [b]\nc: {<<: *x}", "<< takes a map"),
        ("a: \x07", "control characters are not allowed"),
        (r'"\/"', "a / needs no backslash"),
        ("[" * 300, "nested deeper than 200 levels"),
        ("a: [b", "did not find expected ',' or ']'"),
        ("%secret", "found unknown directive name"),
        ("%YAML 1.2\n---\na", "only YAML 1.1 is read"),
        (
            "{a: b, c: http://d/?e=f}",
            "line 1, column 11: a string with ? in brackets needs quotes",
        ),
        ("[a?:]", "found unexpected ':'"),
        ("{a:[1]}", "found unexpected ':'"),
        ("[" + r'"\'", ' * 60_000 + "]", "found unknown escape character"),
        (b"\xff", "UTF-8"),
    ],
)
def test_invalid_yaml_is_refused_with_the_problem_but_not_its_content(
    text: str | bytes, problem: str
) -> None:
    with pytest.raises(goyaml.YAMLError, match="is not YAML") as caught:
        goyaml.parse(text)
    assert problem in str(caught.value)
    assert "secret" not in str(caught.value)


def test_values_repeated_by_aliases_count_each_time() -> None:
    text = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
        for before, name in ("ab", "bc", "cd", "de", "ef")
    )
    with pytest.raises(goyaml.YAMLError, match="more than 100000 values"):
        goyaml.parse(text)
