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
        # Letters that only Unicode takes for an i.
        ('{{ float64 "\u0131nf" }} {{ add "\u0130nf" 1 }}', "0 1"),
        ('{{ maxf (float64 "nan") 1 (float64 "inf") }}', "+Inf"),
        ('{{ minf (float64 "-inf") (float64 "nan") }} {{ minf 1 (float64 "nan") }}', "-Inf NaN"),
        # Bytes that are no characters stay where no expression matches them.
        (r'{{ regexReplaceAll "a" "\xffa" "${0}b" | printf "%q" }}', r'"\xffab"'),
        (r'{{ regexReplaceAllLiteral "x" "\xff" "" | b64enc }}', "/w=="),
        (r'{{ regexFind ".a" "\xffa" | printf "%q" }}', r'"\xffa"'),
        (r'{{ regexFindAll "." "\xff" -1 | printf "%q" }}', r'["\xff"]'),
        (r'{{ regexSplit "," "\xff,\xfe" -1 | printf "%q" }}', r'["\xff" "\xfe"]'),
        (
            r'{{ list (upper "\xff") (lower "\xff") (title "\xff") | printf "%+q" }}',
            r'["\ufffd" "\ufffd" "\ufffd"]',
        ),
        # Between \Q and \E, nothing has a meaning of its own.
        (r'{{ regexMatch "\\Q(?<n>a)\\E" "(?<n>a)" }}', "true"),
        (r'{{ regexMatch "\\Q\\C\\E" "\\C" }}', "true"),
        # An integer literal is a duration where one is wanted.
        (
            '{{ (toDate "15:04:05" "00:31:29.7").Truncate 1_000_000_000 | date "4:5.0" }}',
            "31:29.0",
        ),
        ('{{ (toDate "15:04:05" "00:31:29.7").Round 3.6e12 | date "15:04" }}', "01:00"),
        (
            (
                '{{ $x := toDate "5" "2.5" }}{{ with (toDate "5" "1").Sub $x }}'
                "{{ .Truncate 1_000_000_000 }} {{ .Round 1_000_000_000 }} {{ .Round 0 }}{{ end }}"
            ),
            "-1s -2s -1.5s",
        ),
        (
            '{{ ((toDate "2006" "1000").Sub (toDate "2006" "2000")).Microseconds }}',
            "-9223372036854775",
        ),
        (
            '{{ ((toDate "2006" "1000").Sub (toDate "2006" "2000")).Abs }}',
            "2562047h47m16.854775807s",
        ),
        ('{{ (toDate "2006" "2020").IsDST }}', "false"),
        # Pointers are equal if they are the same.
        ('{{ $v := semver "1.2.3" }}{{ eq $v $v }} {{ eq $v (semver "1.2.3") }}', "true false"),
        ('{{ $v := semver "1.2.3" }}{{ eq $v.IncMajor $v.IncMajor }}', "true"),
        ('{{ get (urlParse "//a[b") "host" }}', "a[b"),
        # An empty map is filled, and keeps out null; it is replaced if it is still empty.
        (
            (
                '{{ $m := dict "b" (dict) "c" (dict) }}'
                '{{ merge $m (dict "b" (dict "x" nil "y" 1) "c" (dict "x" nil)) }}'
            ),
            "map[b:map[y:1] c:map[x:<nil>]]",
        ),
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
        ("{{ mulf " + "1e300 " * 3400 + "}}", 4, "a number of too many digits"),
        ('{{ (semver "1.2.3").IncMajor.Original }}', 20, "derived from another"),
        ('{{ (semver "1.2.3").IncMajor.Compare (semver "1") }}', 20, "derived from another"),
        ('{{ eq (semver "1.2.3") (semver "1.2.3").IncMajor }}', 4, "cannot be compared"),
    ],
)
def test_a_function_refuses_what_the_original_refuses(
    text: str, column: int, problem: str
) -> None:
    with pytest.raises(EvaluationError) as caught:
        rendered(text)
    assert str(caught.value).startswith(f"line 1, column {column}: ")
    assert problem in str(caught.value)
