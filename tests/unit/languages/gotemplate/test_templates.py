"""Go templates: their output, their errors, and limits of their cost."""

import time
import tracemalloc
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from reconciler.engine.allowance import Allowance, Exhausted
from reconciler.engine.environment import EvaluationEnvironment
from reconciler.errors import EvaluationError
from reconciler.languages import gotemplate
from reconciler.languages.gotemplate import Int, Pointer, Record, TemplateSyntaxError

POD = {
    "kind": "Pod",
    "n": 3,
    "big": 1000000,
    "none": None,
    "metadata": {"labels": {"app": "web", "tier": "front"}},
    "ports": [80, 443],
}


def rendered(text: str, **environment: Any) -> str:
    fields = {"Namespace": "shop", "Target": Pointer(POD), "Keys": [Int(2), "k"]}
    return gotemplate.compile(text).render(
        Record("*core.Context", fields), environment=EvaluationEnvironment(**environment)
    )


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a {{- .Namespace -}} b", "ashopb"),
        ("{{ .Target.kind }} {{ .Target.big }} {{ .Target.n }}", "Pod 1e+06 3"),
        ("{{ .Target.metadata }}", "map[labels:map[app:web tier:front]]"),
        ("{{ .Target.no.such.key }}|{{ print .Target.no }}", "<no value>|<nil>"),
        ("{{ range $i, $p := .Target.ports }}{{ $i }}={{ $p }};{{ end }}", "0=80;1=443;"),
        ("{{ range .Target.none }}x{{ else }}none{{ end }}", "none"),
        ("{{ with .Target.metadata.labels }}{{ .app }}{{ end }}", "web"),
        ('{{ define "t" }}<{{ . }}>{{ end }}{{ template "t" .Namespace }}', "<shop>"),
        ('{{ block "t" 1 }}[{{ . }}]{{ end }}', "[1]"),
        ("{{ range .Target.ports }}{{ . }}{{ break }}{{ end }}", "80"),
        ("{{ $x := 1 }}{{ if true }}{{ $x = 2 }}{{ end }}{{ $x }}", "2"),
        ('{{ printf "%05.1f|%-4d|%+q|%x" 3.14159 7 "é" "hi" }}', '003.1|7   |"\\u00e9"|6869'),
        ('{{ printf "%d %s" "a" }}', "%!d(string=a) %!s(MISSING)"),
        (
            '{{ eq .Target.kind "Job" "Pod" }} {{ lt 1 2 }} {{ and 0 (index .Keys 9) }}',
            "true true 0",
        ),
        ("{{ index .Keys 0 }} {{ len .Target.ports }}", "2 2"),
        ("{{ 1_000 }} {{ 0x1F }} {{ 'a' }} {{ 1e3 }} {{ 1+2i }}", "1000 31 97 1000 (1+2i)"),
        ('{{ "{{ .Namespace }}" }}', "{{ .Namespace }}"),
        ("{{ floor -0.0 }} {{ ceil -0.5 }} {{ round -0.0 2 }} {{ floor 0.5 }}", "-0 -0 -0 0"),
        ('{{ mustToDate "2006 -0700" "2024 +0000" }}', "2024-01-01 00:00:00 +0000 UTC"),
        # A pipe may end in nothing, and a negative chunk size divides as in Go.
        ("{{ .Namespace | }} {{ (1 |) }}", "shop 1"),
        ("{{ chunk -2 (list 1 2 3) }} {{ chunk -2 (list 1) }}", "[] [[1]]"),
        ("{{ eq . .Target }} {{ eq . . }} {{ eq .Target .Target }}", "false true true"),
        # The end of a sequence overflows as a 64-bit integer does.
        ("{{ seq 9223372036854775807 }}|{{ seq 0 -9223372036854775808 }}", "|"),
        ('{{ fromJson "{\\"a\\":1e400,\\"b\\":2}" }}', "map[a:<nil> b:2]"),
        ('{{ printf "%#x %#X" 3.0 3.0 }}', "0x1.8000p+01 0X1.8P+01"),
        ('{{ printf "%w %w" "a" (list 1 "b") }}', "%!w(string=a) %!w([]interface {}=[1 b])"),
        ("{{ .Target.metadata.labels | toJson | sha256sum | trunc 8 }}", "a3c2dd55"),
        ('{{ addf 0.1 0.2 }} {{ add 1 "2" 3.9 }} {{ div -7 2 }}', "0.3 6 -3"),
        ('{{ semverCompare ">=1.2, <2" "1.9.0" }}', "true"),
        ('{{ regexReplaceAll "(o)" "foo" "<$1>" }}', "f<o><o>"),
        ('{{ toDate "2006-01-02" "2021-05-06" | date "Mon Jan _2" }}', "Thu May  6"),
    ],
)
def test_a_template_renders_as_in_go(text: str, wanted: str) -> None:
    assert rendered(text, now=datetime(2026, 1, 2, tzinfo=UTC)) == wanted


@pytest.mark.parametrize(
    ("text", "line", "column", "problem"),
    [
        ("a\n  {{ .x", 2, 8, "without its closing }}"),
        ("{{ if }}", 1, 7, "a value is missing"),
        ("{{ end }}", 1, 10, "{{end}} does not belong"),
        ("{{ 1 | | 2 }}", 1, 8, "| is not expected"),
        ("{{ nope 1 }}", 1, 4, "there is no function nope"),
        ('{{ env "HOME" }}', 1, 4, "env cannot be used here: it reads the environment"),
        ('{{ getHostByName "a" }}', 1, 4, "it queries DNS"),
        ('{{ genCA "a" 1 }}', 1, 4, "keys or certificates"),
        ('{{ derivePassword 1 "a" "b" "c" "d" }}', 1, 4, "must not derive passwords"),
        ("{{ $x }}", 1, 4, "the variable $x is not defined"),
        ("{{ .Target.a-b }}", 1, 13, "use index for such a key"),
        ("{{ break }}", 1, 12, "outside {{range}}"),
        ("{{ with 1 }}{{ else with 2 }}{{ end }}", 1, 21, "with is not expected"),
        ("{{ " + "(" * 100 + "1" + ")" * 100 + " }}", 1, 65, "nested deeper than 60 levels"),
        ("{{ 99999999999999999999 }}", 1, 4, "does not fit into 64 bits"),
    ],
)
def test_an_invalid_template_is_refused_with_its_position(
    text: str, line: int, column: int, problem: str
) -> None:
    with pytest.raises(TemplateSyntaxError, match=rf"^line {line}, column {column}: .*") as caught:
        gotemplate.compile(text)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line", "column", "problem"),
    [
        ("x\n{{ .Nope }}", 2, 4, "there is no field Nope in *core.Context"),
        ("{{ .Target.none.x }}", 1, 4, "null has no field x"),
        ("{{ upper .Target.n }}", 1, 10, "expected string, found float64"),
        ("{{ upper .Target.no }}", 1, 10, "expected string, but there is no value"),
        ("{{ index .Target.ports .Target.n }}", 1, 4, "an index is an integer, not float64"),
        ("{{ eq .Target.n 3 }}", 1, 4, "float64 cannot be compared with int"),
        (
            '{{ get .Target "kind" }}',
            1,
            8,
            "expected map[string]interface {}, found *interface {}",
        ),
        ("a\n\n  {{ div 1 0 }}", 3, 6, "a division by zero"),
        ("{{ chunk 0 (list 1) }}", 1, 4, "a chunk has one element at least"),
        ("{{ chunk -1 (list 1) }}", 1, 4, "a chunk has one element at least"),
        ("{{ chunk -2 (list 1 2 3 4) }}", 1, 4, "a chunk has one element at least"),
        ("{{ range .Namespace }}{{ end }}", 1, 10, "range takes a list or a map"),
        ('{{ printf "%p" .Target.ports }}', 1, 4, "no stable text"),
        ('{{ printf "%#v" (toDate "" "") }}', 1, 4, "%#v shows what is inside of time.Time"),
        ("é{{ now }}", 1, 5, "the current time is not available here"),
        ("{{ uuidv4 }}", 1, 4, "random numbers are not available"),
    ],
)
def test_a_rendering_error_names_the_problem_without_values(
    text: str, line: int, column: int, problem: str
) -> None:
    with pytest.raises(EvaluationError) as caught:
        rendered(text)
    assert str(caught.value).startswith(f"line {line}, column {column}: ")
    assert problem in str(caught.value)
    assert caught.value.without_values == str(caught.value)
    assert "443" not in str(caught.value)


def test_the_text_of_fail_is_left_out_of_the_error_without_values() -> None:
    with pytest.raises(EvaluationError) as caught:
        rendered('{{ fail (printf "bad %s" .Target.kind) }}')
    assert str(caught.value) == "line 1, column 4: fail: bad Pod"
    assert caught.value.without_values == "line 1, column 4: fail fails"


@pytest.mark.parametrize(
    "text",
    [
        '{{ define "t" }}{{ template "t" . }}{{ end }}{{ template "t" . }}',
        '{{ repeat 2000000 "x" }}',
        "{{ until 1000000 }}",
        "{{ untilStep -9223372036854775808 9223372036854775807 1 }}",
        '{{ printf "%1000000000d" 1 }}{{ printf "%999999d" 1 }}{{ printf "%999999d" 1 }}',
        '{{ $x := "xxxxxxxxxx" }}' + '{{ $x = replace "x" "xxxxxxxxxx" $x }}' * 7,
        "{{ range until 9999 }}" * 3 + "{{ end }}" * 3,
        '{{ $d := dict }}{{ $_ := set $d "d" $d }}{{ mustToJson $d }}',
        '{{ $d := dict }}{{ $_ := set $d "d" $d }}{{ $d }}',
        '{{ $d := dict }}{{ $_ := set $d "d" $d }}{{ deepEqual $d (dict "d" $d) }}',
        '{{ range until 9999 }}{{ regexFind "(x+x+)+y" (repeat 100000 "x") }}{{ end }}',
        "{{ range until 90000 }}{{ $_ := or " + "0 " * 30_000 + "}}{{ end }}",
        "{{ $d := dict }}{{ $_ := set $d `a` $d }}{{ range until 90000 }}{{ $_ := $d"
        + ".a" * 30_000
        + " }}{{ end }}",
        "{{ $a := 1 }}" * 4000 + "{{ range until 90000 }}{{ $_ := $.Target }}{{ end }}",
        '{{ $f := repeat 500000 "%%" }}{{ range until 99 }}{{ $_ := printf $f }}{{ end }}',
        '{{ semverCompare (printf ">=%s!" (repeat 60 "1")) "1.0.0" }}',
        '{{ mustRegexMatch (repeat 200000 "[") "x" }}',
        (
            '{{ $x := repeat 500000 "a" }}{{ $y := print (repeat 500000 "b") "a" }}'
            "{{ range until 99 }}{{ $_ := trimAll $y $x }}{{ end }}"
        ),
        '{{ $x := repeat 250000 "aB c" }}{{ range until 99 }}{{ $_ := snakecase $x }}{{ end }}',
    ],
)
def test_endless_or_growing_templates_are_stopped(text: str) -> None:
    start = time.process_time()
    with pytest.raises(EvaluationError):
        rendered(text)
    # Processor seconds, many times the usual: a busy machine adds some of its own work.
    assert time.process_time() - start < 20


@pytest.mark.parametrize(
    "text",
    [
        '{{ printf "%99999d" (until 2000) }}',
        '{{ printf "%.99999d" (until 2000) }}',
        '{{ $x := repeat 999999 "x" }}{{ range until 4 }}{{ $x = cat $x $x }}{{ end }}',
    ],
)
def test_a_text_that_grows_too_long_is_refused_before_it_fills_the_memory(text: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(EvaluationError, match="a text of more than 1048576 characters"):
            rendered(text)
        assert tracemalloc.get_traced_memory()[1] < 10 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_nesting_too_deep_for_the_stack_is_an_error() -> None:
    template = gotemplate.compile("{{ " + "(" * 59 + " toJson . " + ")" * 59 + " }}")
    data: Any = 1
    for _ in range(75):
        data = [data]

    def called(depth: int) -> str:
        return called(depth - 1) if depth else template.render(data)

    with pytest.raises(EvaluationError, match="nested too deeply"):
        called(600)
    assert template.render([[1]]) == "[[1]]"


def test_rendering_is_charged_to_a_shared_allowance() -> None:
    allowance = Allowance(100_000)
    template = gotemplate.compile('{{ range until 5000 }}{{ "x" | upper }}{{ end }}')
    with pytest.raises(EvaluationError):
        template.render({}, allowance=allowance)
    assert allowance.exhausted
    with pytest.raises(Exhausted):
        template.render({}, allowance=allowance)


@pytest.mark.parametrize(
    "text",
    [
        '{{ $_ := set .Target.metadata.labels "x" 1 }}{{ .Target.metadata.labels }}',
        '{{ $_ := unset .Target.metadata.labels "app" }}',
        '{{ $_ := mergeOverwrite .Target.metadata (dict "labels" (dict "app" "x")) }}',
        '{{ $_ := set (merge (dict) .Target.metadata).labels "app" "x" }}',
    ],
)
def test_a_template_that_changes_its_data_leaves_it_as_it_was(text: str) -> None:
    rendered(text)
    with pytest.raises(EvaluationError):
        rendered(text + '{{ fail "" }}')
    assert POD["metadata"] == {"labels": {"app": "web", "tier": "front"}}
    assert list(POD["metadata"]["labels"]) == ["app", "tier"]


def test_a_template_that_changes_a_map_does_not_copy_all_data() -> None:
    data = {"items": [{"name": str(number)} for number in range(100_000)], "small": {}}
    template = gotemplate.compile('{{ $_ := set .small "a" 1 }}{{ .small }}')
    start = time.process_time()
    for _ in range(50):
        assert template.render(data) == "map[a:1]"
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("text", "converges"),
    [
        ("{{ .Namespace | upper }}", True),
        ('{{ toDate "2006" "2021" | unixEpoch }}', True),
        ("{{ now | unixEpoch }}", False),
        ("{{ if false }}{{ uuidv4 }}{{ end }}", False),
        ("{{ randAlphaNum 5 }}", False),
        ('{{ shuffle "ab" }}', False),
        ('{{ date "2006" .Target.at }}', False),
    ],
)
def test_a_template_reports_whether_it_converges(text: str, *, converges: bool) -> None:
    assert gotemplate.compile(text).converges is converges


def test_time_and_randomness_come_from_the_environment() -> None:
    given: Mapping[str, Any] = {
        "now": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "randbelow": lambda bound: bound // 2,
    }
    text = '{{ now }} {{ date "15:04" "no date" }} {{ ago (int64 0) }}'
    assert rendered(text, **given) == "2026-01-02 03:04:05 +0000 UTC 03:04 490923h4m5s"
    drawn = rendered("{{ uuidv4 }} {{ randAlpha 3 }} {{ randInt 5 6 }}", **given)
    assert len(drawn) == 36 + 1 + 3 + 2
    assert drawn.endswith(" 5")
    assert drawn[14] == "4"


def test_a_cut_character_is_a_byte_in_bytes_and_replaced_in_text() -> None:
    template = gotemplate.compile('{{ trunc 1 "é" }}|{{ trunc 1 "é" }}{{ trunc -1 "é" }}')
    assert template.render_bytes({}) == b"\xc3|\xc3\xa9"
    assert template.render({}) == "\ufffd|é"
