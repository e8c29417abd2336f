"""Parsing the text of a JSON patch."""

from typing import Any

import pytest

from reconciler.dialects.kyverno.patchtext import parse_operations
from reconciler.errors import InvalidPolicy


def value_of(text: str) -> Any:
    return parse_operations(f"- value: {text}", location="p")[0]["value"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", True), ("False", False), ("~", None), ("", None), ("null", None),
        ("yes", True), ("on", True), ("n", False), ('"true"', "true"), ("'5'", "5"),
        ("5", 5), ("-5", -5), ("1_000", 1000), ("0644", 420), ("0o644", 420), ("0x1F", 31),
        ("0b101", 5), ("1.5", 1.5), (".5", 0.5), ("1e3", 1000), ("1.0", 1), ("0899", 899),
        ("1:30", "1:30"), (".inf", ".inf"), ("1e999", "1e999"), ("2026-11-21", "2026-11-21"),
        ("2026-11-21T10:00:00Z", "2026-11-21T10:00:00Z"), ("0x_", "0x_"), ("!!str 5", "5"),
        ("{1: a, true: b}", {"1": "a", "true": "b"}), ("[a, [b]]", ["a", ["b"]]),
        ("|\n    a\n    b\n", "a\nb\n"), ("1_", 1),
        ("18446744073709551615", 2**64 - 1), ("18446744073709551616", 2.0**64),
        ("-9223372036854775809", -(2**63)), ("1_8446744073709551616", 2.0**64),
        ("1e25", 1e25), ("0x10000000000000000", "0x10000000000000000"),
        ("077777777777777777777777", 77777777777777777777777.0), ("9" * 350, "9" * 350),
    ],
)  # fmt: skip
def test_yaml_is_parsed_into_json_values_only(text: str, expected: Any) -> None:
    found = value_of(text)
    assert found == expected
    assert type(found) is type(expected)


def test_a_text_in_json_is_parsed_as_json() -> None:
    assert parse_operations('[{"value": 1.0}]', location="p") == [{"value": 1.0}]


def test_an_alias_repeats_the_anchored_value() -> None:
    text = "- &one {value: [1]}\n- *one"
    assert parse_operations(text, location="p") == [{"value": [1]}, {"value": [1]}]


def bomb(levels: int, width: int, seed: str = "x") -> str:
    lines = [f"- &a0 {seed}"]
    lines += [f"- &a{at} [{', '.join([f'*a{at - 1}'] * width)}]" for at in range(1, levels)]
    return "\n".join(lines)


def test_an_alias_counts_as_many_values_as_it_repeats() -> None:
    with pytest.raises(InvalidPolicy, match="has more than 100000 values, those that alias"):
        parse_operations(bomb(30, 9), location="p")
    assert len(parse_operations(bomb(5, 9), location="p")) == 5


def test_an_alias_counts_as_many_levels_as_it_repeats() -> None:
    seed = "[" * 50 + "]" * 50
    assert len(parse_operations(bomb(100, 1, seed), location="p")) == 100
    with pytest.raises(InvalidPolicy, match="nested deeper than 200 levels"):
        parse_operations(bomb(200, 1, seed), location="p")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 300 + "]" * 300, "is nested deeper than 200 levels"),
        ("- op: add\n  path: [", "is not YAML: line 3, column 1"),
        ("- op: add\n  value: {{ x }}", "line 2, column 11: a map, list or alias as a key"),
        ("- <<: {a: 1}", "merge keys (<<) are not supported"),
        ("- !!python/name:os.system x", "the tag"),
        ("- !!timestamp 2026-11-21", "the tag"),
        ("- *gone", "nothing before has the anchor gone"),
        ("- &a [*a]", "nothing before has the anchor a"),
        ("- a\n---\n- b", "a second document begins"),
        ("- \x01", "is not YAML"),
        ("a: 1", "must be a list"),
        ("", "must be a list"),
        ("[1,", "is not JSON: line 1, column"),
        ("[NaN]", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        (" " + "[" * 100_000, "nested deeper than 200 levels"),
        ("- " * 100_000, "nested deeper than 200 levels"),
        ("? " * 100_000, "a map, list or alias as a key"),
    ],
)
def test_a_text_that_cannot_be_parsed_is_refused_with_the_position(text: str, words: str) -> None:
    with pytest.raises(InvalidPolicy) as caught:
        parse_operations(text, location="p")
    assert caught.value.location == "p"
    assert words in caught.value.reason
