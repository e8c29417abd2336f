"""Values of expressions: conversions, undefined values, and errors with their places."""

import math
import re
from typing import Any

import pytest

from reconciler.engine.allowance import Allowance, Exhausted
from reconciler.errors import EvaluationError, InvalidPolicy
from reconciler.languages.gval import (
    UNDEFINED,
    Failure,
    compile_expression,
    compile_selection,
    faults_of,
)

DATA = {
    "name": "shop",
    "count": 7,
    "many": 2_500_000,
    "digits": "7",
    "on": True,
    "none": None,
    "empty": "",
    "list": [4, 5, 6, 7],
    "mixed": ["x", 1, {"x": 1}, {"x": None}, {}, None, [9]],
    "map": {"b": {"x": 2}, "a": {"x": 1}, "c": 3},
    "keys": {"which": "a", "a/b": 1},
    "close": 9_007_199_254_740_993,
    "quoted": {'a"b': 1},
    "containers": [
        {"name": "web", "ports": [{"n": 80}, {"n": 443}]},
        {"name": "log"},
        {"name": "db", "ports": [{"n": 5432}]},
    ],
}


def value_of(source: str, data: Any = DATA) -> Any:
    return compile_expression(source).evaluate(data)


@pytest.mark.parametrize(
    ("source", "value"),
    [
        # If both sides can be read as numbers, they are compared as numbers.
        ("$.count == $.digits", True),
        ('"1e1" == "10"', True),
        ('"0x10p0" == 16', True),
        ('$.on == "true"', False),
        ("$.on == 1", False),
        ("$.none == false", False),
        ("$.list == [4, 5, 6, 7]", True),
        ("$.list == [4, 5, 6, true]", False),
        ('{"x": 1} == $.map.a', True),
        # A star among keys selects all members; an omitted last part of a slice is ignored.
        ("$.list[0, *]", [4, 5, 6, 7]),
        ("$.list[:*]", [4, 5, 6, 7]),
        ("$.list[1:3:1:]", [5, 6]),
        ("$.list[? ? @ > 6]", [7]),
        ("$.list[$.lost:2]", [4, 5]),
        # A name that is no index returns the list itself.
        ("list.first", [4, 5, 6, 7]),
        ('list["+1"]', 5),
        pytest.param(f'list["{"1" * 5_000}"]', [4, 5, 6, 7], id="a long index"),
        ('date("2024-01-01") == date("2024-01-01 00:00")', True),
        ('date("2024-01-01") == date("2024-01-01T00:00:00Z")', False),
        ('date("2024-01-01") < date("2024-01-01T00:00:01Z")', True),
        # Two texts are ordered as texts, a text and a number as numbers.
        ('"10" < "9"', True),
        ('"10" < 9', False),
        ("$.name < 1", False),
        ("$.on >= false", True),
        ('$.count + "0"', 7),
        ("$.name + $.count", "shop7"),
        ("$.name + $.many", "shop2.5e+06"),
        ("$.count / 2 * 2", 7),
        ("2 + 3 * 2 ** 2", 14),
        ("2 ** 3 ** 2", 64),
        ("-2 ** 2", 4),
        # The last digits of a power are those of Go, not those of the C library.
        ("2 ** 1.5", 2.82842712474619),
        ("2 ** -0.5", 0.7071067811865475),
        ("0.3 ** 5", 0.00243),
        ("1 ** $.lost", 1),
        ("0 ** -1 > 1", True),
        ("(-2) ** 0.5 == 0", False),
        ("-7 % 3", -1),
        ("1 / 0 > 1000", True),
        ("7 & 3 | 8", 11),
        ("~0", -1),
        ("1 << 64", 0),
        ("-8 >> 1", -4),
        ("6 ^ 3", 5),
        # Elements must have the same type; a length differs in type from a document's numbers.
        ("7 in $.list", True),
        ('"7" in $.list', False),
        ("length($.list) in [4]", False),
        ("length($.list) == 4", True),
        ("length($.name)", 4),
        ("length($.none)", 0),
        ("length($.lost)", 0),
        ("isNotEmpty($.map)", True),
        ("isEmpty($.empty)", True),
        ("!isDefined($.lost)", True),
        # Undefined behaves as a number that equals no number.
        ("$.lost == $.lost", False),
        ("$.lost != 1", True),
        ("$.lost != $.lost", True),
        ('$.lost < "abc"', True),
        ("$.lost == true", False),
        # Its text is empty.
        ('$.lost =~ "^$"', True),
        ('$.lost =~ ".+"', False),
        ('$.lost !~ "e"', True),
        ('$.lost + "!"', "!"),
        ('[$.lost, 1] + "!"', "[ 1]!"),
        ('$.none =~ "nil"', True),
        ("$.lost ? 1 : 2", 1),
        ("$.none ? 1 : 2", 2),
        ("$.none ? 1", None),
        ("$.none ?? $.name", "shop"),
        ("false ?? 1", 1),
        ("$.on && $.count == 7 || $.lost", True),
        ("$.on ? $.count > 5 ? 1 : 2 : 3", 1),
        ('$.many =~ "^2.5e[+]06$"', True),
        ("$.name =~ `^s.op$`", True),
        ("$.name !~ $.digits", True),
        ("name", "shop"),
        ("map.a.x", 1),
        ("list[1]", 5),
        ("null", None),
        ("$.name == 's'", False),
        ('$.name /* of the shop */ == "shop" // yes', True),
        ('"\\u0041\\x42\\103" == "ABC"', True),
        # Go's scanner accepts a byte order mark, unclosed comments and empty characters.
        ("\ufeff$.name", "shop"),
        ("$.name /* of the shop", "shop"),
        ("''", ""),
        ("0x1p-2 + 0x1.8p1", 3.25),
        # Any token after the key of a map is taken for the colon.
        ('{"a" = 1}', {"a": 1}),
        # Numbers of a document are 64-bit floats, so neighbouring integers may be equal.
        ("$.close in [9007199254740992]", True),
        ("[$.close] == [9007199254740992]", True),
        # A composed key is quoted as Go quotes a string.
        ("{#: $.quoted[*]}", {'$["a\\"b"]': 1}),
    ],
)
def test_values(source: str, value: Any) -> None:
    assert value_of(source) == value


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("$.list[1:3]", [5, 6]),
        ("$.list[-2:]", [6, 7]),
        ("$.list[1:-1]", []),
        ("$.list[:2]", [4, 5]),
        ("$.list[1::2]", [5, 7]),
        ("$.list[::-1]", [7, 6, 5, 4]),
        ("$.list[0, 9, 2]", [4, 6]),
        ("$.map[*].x", [2, 1]),
        ("$.map.*.x", [2, 1]),
        ('$.map["a", "z", "b"].x', [1, 2]),
        ("$.mixed[*].x", [1, None]),
        ("$.mixed[? @.x]", [{"x": 1}, {}, None]),
        ("$.mixed[? isDefined(@.x)]", [{"x": 1}, {"x": None}]),
        ("$.containers[*].ports[? @.n < 1000].n", [80, 443]),
        ("$.containers[? @.ports[? @.n == 443]]", []),
        ("$.containers[? length(@.ports[? @.n == 443]) > 0].name", ["web"]),
        ('$.containers[? @.name != "web" && isDefined(@.ports)].name', ["db"]),
        ("$.containers..n", [80, 443, 5432]),
        ('$.containers..["n"]', [80, 443, 5432]),
        ("$.map..[? @.x == 1]", [{"x": 1}]),
        ("$.map[$.keys.which].x", 1),
        ("$.map[@.c]", UNDEFINED),
        ('$.keys["a/b"]', 1),
        ("$.map.a(@.x + 1)", 2),
        ("$.map.*(@ == 3)", [False, False, True]),
        ("$.none.deep.down", UNDEFINED),
        ("$.lost.deep.down", UNDEFINED),
        ("@.name", UNDEFINED),
    ],
)
def test_paths(source: str, value: Any) -> None:
    assert value_of(source) == value


@pytest.mark.parametrize(
    "source",
    [
        "$.list[4]",
        "$.list[-1]",
        "$.name.x",
        '$.list["x"]',
        "length($.count)",
        "length()",
        "length($.list, 1)",
        "isEmpty($.on)",
        "!$.name",
        "$.count && true",
        "$.on && $.lost",
        "1 - $.name",
        "$.none + 1",
        "1 in $.count",
        "size($.list)",
        'date("yesterday")',
        '$.name =~ $.mixed[0] + "("',
    ],
)
def test_an_expression_that_its_data_does_not_fit_is_a_failure(source: str) -> None:
    with pytest.raises(Failure):
        value_of(source)


@pytest.mark.parametrize(
    ("source", "reported"),
    [
        ('$.a =~ "(?=x)"', "not a regular expression"),
        ('$.a !~ "\\\\C"', r"\C is not supported"),
        ("1 && 2", "both sides of &&"),
        ("!(2 - 1)", "! has to be true or false"),
        ("!(1 && 2) == true", "both sides of &&"),
    ],
)
def test_an_expression_that_always_fails_compiles_and_reports_its_fault(
    source: str, reported: str
) -> None:
    with pytest.raises(Failure, match=re.escape(reported)):
        value_of(source)
    (fault,) = faults_of(compile_expression(source).tree)
    assert reported in fault


@pytest.mark.parametrize(
    "source", ["1 + 2", "$.a && 2", "false && !1", '$.a =~ "x"', "$.a", "-(1)", "$.a =~ $.b"]
)
def test_an_expression_that_may_succeed_has_no_fault(source: str) -> None:
    assert not list(faults_of(compile_expression(source).tree))


@pytest.mark.parametrize(
    ("source", "reported"),
    [
        ("", "column 1"),
        ("$.", "column 3: a name"),
        ("$.a b", "column 5: nothing may follow here"),
        ("$['a']['bc']", "column 8: a string needs double quotes"),
        ('$.a == "x', "column 8: a string is not closed"),
        ('$.a =~ "x\\.y"', r"unknown escape \.: write a backslash in a string twice"),
        ("$[1:2:3:4]", "at most a start, an end and a step"),
        ("$..[1:2]", "a slice cannot follow .."),
        ("$[? 1, 2]", "keys, slices and filters do not mix"),
        ("$[1:2, 3]", "keys, slices and filters do not mix"),
        ("$[?]", "column 4: a value is missing"),
        ("$[1, * 2]", '"]" is missing after "*"'),
        # Adjacent operator characters form one operator; the letters of "in" are among them.
        ("$.count>-1", 'column 8: there is no operator >-: write a space after ">"'),
        ("$.on&&!$.none", 'there is no operator &&!: write a space after "&&"'),
        ("$.count -name", 'there is no operator -n: write a space after "-"'),
        ("[1e]", "a decimal number is expected"),
        ("{#: length($)}", "needs a path after it"),
        ("#1", "only in the key of a map"),
        ("{#" + "1" * 5_000 + ": $.a[*]}", "at most 9 digits"),
        ("0x1F", "a decimal number is expected"),
        ("$.name²", "column 7: ² is allowed only in strings"),
        ("(" * 200 + "1" + ")" * 200, "nested too deeply"),
        ("!" * 200 + "$.a", "nested too deeply"),
        ("1" * 70_000, "longer than 65536 characters"),
    ],
)
def test_an_invalid_expression_is_refused_with_its_location(source: str, reported: str) -> None:
    with pytest.raises(InvalidPolicy) as refused:
        compile_expression(source, location="spec.match[0].select")
    assert reported in refused.value.reason
    assert refused.value.location == "spec.match[0].select"


def test_a_selection_has_the_keys_of_its_hits_in_the_order_of_the_document() -> None:
    def hits(source: str) -> list[tuple[Any, ...]]:
        return [(*hit.keys, hit.value) for hit in compile_selection(source).hits(DATA)]

    assert hits("$.containers[*].ports[? @.n < 1000].n") == [(0, 0, 80), (0, 1, 443)]
    assert hits("$.map[*].x") == [("b", 2), ("a", 1)]
    assert hits("$.map..x") == [("b", 2), ("a", 1)]
    assert hits("$.list[::-2]") == [(3, 7), (1, 5)]
    assert hits("$.list[2, 2]") == [(2, 6)]
    assert hits("$.name") == [("shop",)]
    assert hits("$.lost") == hits("$.list[9]") == []


@pytest.mark.parametrize("source", ["length($.list)", "$.count == 7", "name", "$.count - 1"])
def test_a_selection_must_be_a_path(source: str) -> None:
    with pytest.raises(InvalidPolicy):
        compile_selection(source)


@pytest.mark.parametrize(
    ("source", "data"),
    [
        ("$..*..*..*..*", [[[[[1] * 9] * 9] * 9] * 9] * 9),
        ('$[? @ =~ "x.*y.*z"]', ["x" * 10_000] * 2_000),
        ('$[? @ =~ $[0] + "x"]', ["(a|b)*{1,50}"] * 100_000),
        ("$.a + $.a + $.a", {"a": "x" * 1_000_000}),
        ("$[? @ == $]", [[1] * 3] * 20_000),
        ("$[? isDefined({$: @})]", [[1] * 10] * 400),
        ("$[? isDefined(x[$])]", [["y" * 1_000] * 10] * 400),
    ],
)
def test_an_expression_that_costs_too_much_is_stopped(source: str, data: Any) -> None:
    with pytest.raises(EvaluationError) as ended:
        value_of(source, data)
    assert not isinstance(ended.value, Failure)


def test_evaluation_is_charged_to_a_shared_allowance_and_stops_with_it() -> None:
    expression = compile_expression("$.list[? @ > 1]")
    shared = Allowance(100_000)
    expression.evaluate(DATA, shared)
    assert 0 < 100_000 - shared.left < 5_000
    with pytest.raises(Exhausted):
        expression.evaluate({"list": [1] * 100_000}, shared)
    assert shared.exhausted


def test_deep_data_gives_a_value_or_an_error() -> None:
    def nested(depth: int) -> Any:
        made: Any = 1
        for _ in range(depth):
            made = {"x": [made]}
        return made

    assert value_of("length($..x)", nested(500)) == 500
    with pytest.raises(EvaluationError, match="too deeply"):
        value_of("[$] == [$]", nested(5_000))


def test_numbers_behave_as_in_go() -> None:
    assert math.isnan(value_of("$.lost + 1"))
    assert math.isnan(value_of("0 / 0"))
    assert value_of('"nan" == "nan"') is False
    assert value_of('"-nan" == "-nan"') is True
    assert value_of('" 1" == 1') is False
    assert value_of('"1_000" == 1000') is True


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2024-02-29", "2024-02-29 00:00:00 +0000 UTC"),
        ("2024-02-29T10:11:12.5Z", "2024-02-29 10:11:12.5 +0000 UTC"),
        ("2024-02-29T10:11:12+02:00", "2024-02-29 10:11:12 +0200 +0200"),
        ("2024-02-29T10:11:12+0200", "2024-02-29 10:11:12 +0200 +0200"),
        ("2024-02-29 10:11", "2024-02-29 10:11:00 +0000 UTC"),
        ("Thu Feb 29 10:11:12 2024", "2024-02-29 10:11:12 +0000 UTC"),
        ("Thu Feb 29 10:11:12 PST 2024", "2024-02-29 10:11:12 +0000 PST"),
        ("3:04PM", "0000-01-01 15:04:00 +0000 UTC"),
        # Go reads one-digit hours and zone names with a number; it shows the time in zone GMT+3.
        ("2024-02-29 3:04", "2024-02-29 03:04:00 +0000 UTC"),
        ("Thu Feb 29 10:11:12 +03 2024", "2024-02-29 10:11:12 +0000 +03"),
        ("Thu Feb 29 10:11:12 GMT+3 2024", "2024-02-29 13:11:12 +0300 GMT+3"),
    ],
)
def test_dates(text: str, shown: str) -> None:
    assert str(value_of("date($)", text)) == shown
    assert value_of('date($) == date($) && date($) > date("0000-01-01")', text) is True


@pytest.mark.parametrize(
    "text",
    ["2023-02-29", "2024-02-29T24:00:00Z", "13:04PM", "now", "Thursday Feb 29 10:11:12 2024"],
)
def test_an_invalid_date_is_a_failure(text: str) -> None:
    with pytest.raises(Failure):
        value_of("date($)", text)
