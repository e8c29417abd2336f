import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.engine.values.wildcard import (
    compile_any,
    compile_wildcard,
    escape,
    has_wildcard,
    literal,
    matches,
)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("", ""),
        ("*", ""),
        ("***", "x"),
        ("kube-*", "kube-"),
        ("*-prod", "eu/x-prod"),
        ("*mid*", "a-mid-b"),
        ("a*b*c", "a1b2b3c"),
        ("a?c", "abc"),
        ("?*?", "ab"),
        ("*", "two\nlines"),
        ("a?b*", "a\nb\n"),
        ("v1.?", "v1.2"),
        ("*b?", "abbc"),
        ("ab*ba", "abba"),
    ],
)
def test_matches(pattern: str, text: str) -> None:
    assert matches(pattern, text)
    assert compile_wildcard(pattern)(text)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("", "x"),
        ("?", ""),
        ("Pod", "pod"),
        ("ab*ba", "aba"),
        ("a*b*c", "acb"),
        ("a?c", "ac"),
        ("v1.?", "v1x2"),
        ("[ab]", "a"),
        ("*a", "ab"),
    ],
)
def test_does_not_match(pattern: str, text: str) -> None:
    assert not matches(pattern, text)
    assert not compile_wildcard(pattern)(text)


@pytest.mark.parametrize(
    "pattern", ["*a?" * 40 + "b", "*" + "a?" * 400 + "b*", "*" + "a" * 2_000 + "b*", "*?" * 2_000]
)
def test_hostile_patterns_are_matched_in_bounded_time(pattern: str) -> None:
    matches(pattern, "a" * 200_000)
    began = time.process_time()
    matches(pattern, "a" * 200_000)
    assert time.process_time() - began < 2.0


@given(st.text("ab*?", max_size=12), st.text("ab", max_size=14))
def test_matches_as_the_equivalent_regular_expression_does(pattern: str, text: str) -> None:
    written = "".join({"*": ".*", "?": "."}.get(letter, letter) for letter in pattern)
    assert matches(pattern, text) is (re.fullmatch(written, text) is not None)


def test_escaped_text_is_literal() -> None:
    assert escape("plain") == "plain"
    assert not has_wildcard(escape("a*?"))
    assert literal(escape("a*?")) == "a*?"
    assert matches(escape("a*"), "a*")
    assert not matches(escape("a*"), "abc")
    assert matches(escape("a*") + "-*", "a*-x")
    assert not matches(escape("a?") + "-?", "ab-x")
    assert matches("a?", escape("a*"))


def test_matches_any_of_several() -> None:
    holds = compile_any(["a", "b*", "*c", escape("x*")])
    assert [text for text in ("a", "b1", "1c", "x*", "xy", "") if holds(text)] == [
        "a",
        "b1",
        "1c",
        "x*",
    ]
    assert compile_any(["only-*"])("only-this")
    assert not compile_any([])("")
