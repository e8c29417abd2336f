"""Matches of regular expressions, as Go finds them."""

import pytest

from reconciler.engine.values.regexes import Match, compile_regex, is_found, matches


def spent(_steps: int) -> None:
    """Allow everything."""


@pytest.mark.parametrize(
    ("pattern", "text", "spans"),
    [
        ("a|", "ab", [(0, 1), (2, 2)]),
        ("x*", "é", [(0, 0), (1, 1)]),
        ("é", "aébé", [(1, 2), (3, 4)]),
        (r"\B", "aé", [(2, 2)]),
        (r"\B|b", "a😀b", [(2, 3)]),
        (r"\B|é", "a😀b", []),
        (r"\B", "éé", [(0, 0), (1, 1), (2, 2)]),
        (r"\Q\C", r"a\C", [(1, 3)]),
        (r"\\C", r"\C", [(0, 2)]),
    ],
)
def test_matches_stand_between_characters(
    pattern: str, text: str, spans: list[tuple[int, int]]
) -> None:
    regex = compile_regex(pattern)
    found = list(matches(regex, text, spent))
    assert [(match.start, match.end) for match in found] == spans
    assert [match.groups[0] for match in found] == [text[first:last] for first, last in spans]
    assert is_found(regex, text, spent) is bool(spans)


def test_a_group_that_took_no_part_has_no_text() -> None:
    (match,) = matches(compile_regex("(é)(x)?(b)"), "aéb", spent)
    assert match == Match(1, 3, ("éb", "é", None, "b"))


def test_each_place_that_is_searched_costs_steps() -> None:
    """Also one within a character, where nothing can match."""
    costs: list[int] = []
    assert list(matches(compile_regex(r"a\B|\B"), "a😀" * 100, costs.append)) == [
        Match(200, 200, ("",))
    ]
    assert len(costs) > 200
