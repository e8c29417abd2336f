"""Parsing of manifests from text."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.cli.desk.documents import MAX_DEPTH, parse_documents
from reconciler.cli.desk.emit import render_yaml
from reconciler.errors import InvalidSetting

TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.text(
    "ab: -#\n\"'{}[]1.e0y&*!|>%@\t"
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**63), max_value=2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=15,
)


def values(text: str) -> list[Any]:
    return [item.value for item in parse_documents(text.encode(), "f")]


@given(value=VALUES)
def test_rendered_yaml_is_parsed_to_the_same_value(value: Any) -> None:
    assert values(render_yaml({"value": value})) == [{"value": value}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\n---\n---\nb: 2\n", [{"a": 1}, {"b": 2}]),
        ("a: yes\nb: off\nc: 'yes'\nd: n", [{"a": True, "b": False, "c": "yes", "d": False}]),
        (
            "a: 0644\nb: 0x10\nc: 1e3\nd: 1_0\ne: 1.5",
            [{"a": 420, "b": 16, "c": 1000, "d": 10, "e": 1.5}],
        ),
        (
            "a: &x {b: 1}\nc: {<<: *x, d: 2}\ne: *x",
            [{"a": {"b": 1}, "c": {"b": 1, "d": 2}, "e": {"b": 1}}],
        ),
        ("a: &x {b: 1}\nc: {<<: *x, b: 2}", [{"a": {"b": 1}, "c": {"b": 2}}]),
        ('{"a": [1, 2.0]}', [{"a": [1, 2.0]}]),
        ('{"a": 1}\n---\n{"b": 2}', [{"a": 1}, {"b": 2}]),
        ("{a: 1}", [{"a": 1}]),
        ("2026-01-01: 2026-01-01", [{"2026-01-01": "2026-01-01"}]),
        ("# nothing\n", []),
        ("a: 08\nb: 1_0.5\nc: 0_\nd: '08'", [{"a": 8, "b": 10.5, "c": 0, "d": "08"}]),
        (f"a: 0{'7' * 30}", [{"a": float("7" * 30)}]),
        ("a: 18446744073709551615\nb: -9223372036854775808", [{"a": 2**64 - 1, "b": -(2**63)}]),
    ],
)
def test_documents_are_parsed(text: str, expected: Any) -> None:
    assert values(text) == expected


@pytest.mark.parametrize("number", ["18446744073709551616", "-9223372036854799999", "1e+300"])
def test_a_number_beyond_64_bits_is_a_float(number: str) -> None:
    for text in (f"a: {number}", f'{{"a": {number}}}'):
        assert [type(item["a"]) for item in values(text)] == [float], text
        assert values(text) == [{"a": float(number)}]


@pytest.mark.parametrize("number", [f"0x{'6' * 4000}", f"0b{'1' * 65}", "9" * 400])
def test_a_number_that_no_float_holds_either_is_text(number: str) -> None:
    assert values(f"a: {number}") == [{"a": number}]


@pytest.mark.parametrize("depth", [MAX_DEPTH, MAX_DEPTH + 1, 900])
def test_the_depth_of_json_is_limited_as_that_of_yaml(depth: int) -> None:
    text = '{"a":' * depth + '"[[[["' + "}" * depth
    if depth == MAX_DEPTH:
        assert len(values(text)) == 1
        return
    with pytest.raises(InvalidSetting, match=f"nested deeper than {MAX_DEPTH} levels"):
        values(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "f:2:1: is not YAML: did not find expected"),
        ("a: 1\nb: 2\na: 3", "f:3:4: is not YAML: duplicate key a"),
        ("[" * 100_000, f"f:1:{MAX_DEPTH + 1}: is not YAML: nested deeper than"),
        ("a: &x [*x]", "nothing before has the anchor x"),
        ("a: {{ b }}: c", "as a key; put {{ }} into quotes"),
        ("a: !!python/object:os.system x", "is not supported; use plain JSON types"),
        ("x: {<<: [1]}", "<< takes a map or a list of maps"),
        ('{"a": "b"', "f:1:10: is not JSON"),
        ('{"a": 1}\n{"a": 2}', "f:2:1: is not JSON: unexpected content after document; put ---"),
        ("\ufffe", "f:1:1: is not YAML"),
    ],
)
def test_a_parse_error_names_its_place(text: str, message: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        values(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_expansion_of_aliases_is_limited() -> None:
    lines = ["a0: &a0 [1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(InvalidSetting, match="with its aliases it has more than"):
        values("\n".join(lines))


def test_the_place_of_a_document_contains_its_line() -> None:
    found = list(parse_documents(b"a: 1\n---\nb: 2\n", "f"))
    assert [item.place for item in found] == ["f:1", "f:2"]
