from itertools import count

import pytest
import re2

from reconciler.errors import EvaluationError


def last(limit):
    return limit - 1


def first(_limit):
    return 0


@pytest.mark.parametrize(
    ("pattern", "shortest", "longest"),
    [
        ("abc", "abc", "abc"),
        ("[a-c]{3}", "aaa", "ccc"),
        ("x(a|bb)y", "xay", "xbby"),
        ("(?:ab)?c", "c", "abc"),
        ("(?P<n>a){2,3}", "aa", "aaa"),
        ("(?<n>a)", "a", "a"),
        ("a*?b+", "b", "a" * 10 + "b" * 11),
        ("^a{2,}$", "aa", "a" * 12),
        (r"\d\w\.\n", "00.\n", "9z.\n"),
        ("[^ -}]", "~", "~"),
        (r"[\d-]", "-", "9"),
        ("[]a]", "]", "a"),
        (r"\D", " ", "~"),
        ("a|", "a", ""),
    ],
)
def test_random_text_matches_its_pattern(run, pattern, shortest, longest):
    assert run("random(p)", p=pattern, environment={"randbelow": first}) == shortest
    assert run("random(p)", p=pattern, environment={"randbelow": last}) == longest
    for text in (shortest, longest):
        assert re2.fullmatch(pattern, text)


def test_each_call_draws_a_new_text(run):
    numbers = count()
    drawn = run(
        "[random('[a-z]'), random('[a-z]')]",
        environment={"randbelow": lambda n: next(numbers) % n},
    )
    assert drawn == ["c", "f"]


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("", "no pattern provided"),
        ("a)", "a closing parenthesis without an opening one at column 2"),
        ("(a", "a group that is not closed"),
        ("[a", "an end too early"),
        ("[^ -~]", "a class without characters"),
        ("[[:alpha:]]", "a named class"),
        ("[c-a]", "a range that is none"),
        ("*a", "a repetition of nothing"),
        ("a**", "a repetition of nothing"),
        ("a{x}", "a repetition that is none"),
        ("a{3,2}", "a repetition beyond 1000"),
        ("a{9999}", "a repetition beyond 1000"),
        ("(?i)a", "a group with flags"),
        (r"\pL", r"the escape \p"),
        ("a\\", "an end too early"),
        ("(" * 60, "groups nested deeper than 50 levels"),
        ("a" * 1001, "the pattern is longer than 1000 characters"),
        ("((a{1000}){1000}){1000}", "work through more than"),
    ],
)
def test_invalid_patterns_are_refused(run, pattern, reason):
    with pytest.raises(EvaluationError) as failure:
        run("random(p)", p=pattern, environment={"randbelow": last})
    assert reason in str(failure.value)


def test_random_is_an_error_without_a_source_of_randomness(fails):
    assert "random numbers are not available here" in fails("random('[a-z]{5}')")
