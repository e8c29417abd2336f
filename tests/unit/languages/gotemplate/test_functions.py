"""Surprising results of template functions, observed by running the original functions."""

from datetime import UTC, datetime

import pytest

from reconciler.engine.environment import EvaluationEnvironment
from reconciler.errors import EvaluationError
from reconciler.languages import gotemplate


def rendered(text: str) -> str:
    environment = EvaluationEnvironment(now=datetime(2026, 1, 2, tzinfo=UTC))
    return gotemplate.compile(text).render({}, environment=environment)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        # The number of a group must not have a leading zero.
        ('{{ regexReplaceAll "(a)" "bab" "$1-${01}-$00" }}', "ba--b"),
        ('{{ printf "%[1].2[1]d %[0][1]d %[1]d" 1 }}', "%!d(BADINDEX) %![(BADINDEX)1]d 1"),
        (
            '{{ float64 "-0" }} {{ minf "0" "-0" }} {{ maxf "-0" "0" }} {{ addf "-0" }}',
            "-0 -0 0 0",
        ),
        ('{{ printf "%5." 1 }} {{ printf "%." }}', "%!.(int=    1) %!.(MISSING)"),
        (
            '{{ $m := (toDate "1" "5").Month }}{{ printf "%v %d %t" $m $m $m }}',
            "May 5 %!t(time.Month=5)",
        ),
        ('{{ b64dec "AA=A" }}', "illegal base64 data at input byte 2"),
        ('{{ b32dec "AA==AA==" }}', "illegal base32 data at input byte 3"),
        ('{{ upper "ᾳß" }} {{ snakecase "AǅBⅧ" }}', "ᾼß aǅ_bⅧ"),
        ('{{ urlJoin (dict "host" "h" "userinfo" "u#x") }}', "//h"),
        ('{{ urlJoin (dict "host" "h" "userinfo" "u/x") }}', "//h"),
        ('{{ $l := splitList "," "b,a" }}{{ sortAlpha $l }} {{ $l }}', "[a b] [a b]"),
        ('{{ $l := list "b" "a" }}{{ sortAlpha $l }} {{ $l }}', "[a b] [b a]"),
        ('{{ toJson (sortAlpha (regexFindAll "x" "a" -1)) }}', "null"),
        ('{{ durationRound (toDate "2006" "x") }}', "292y"),
        ('{{ toDate "2006" "9999" | dateModify "9000h" | toJson }}', ""),
    ],
)
def test_a_function_returns_what_the_original_returns(text: str, wanted: str) -> None:
    assert rendered(text) == wanted


@pytest.mark.parametrize(
    ("text", "column", "problem"),
    [
        ('{{ dig "a" "b" "x" (dict "a" (split "," "x")) }}', 4, "not map[string]string"),
        ('{{ dig "a" "x" (split "," "x") }}', 4, "not map[string]string"),
        (
            '{{ toDate "2006" "9999" | dateModify "9000h" | mustToJson }}',
            48,
            "no time of such a year",
        ),
        ('{{ urlJoin (dict "host" "h" "userinfo" "u%zz") }}', 4, "a URL cannot be read"),
    ],
)
def test_a_function_refuses_what_the_original_refuses(
    text: str, column: int, problem: str
) -> None:
    with pytest.raises(EvaluationError) as caught:
        rendered(text)
    assert str(caught.value).startswith(f"line 1, column {column}: ")
    assert problem in str(caught.value)
