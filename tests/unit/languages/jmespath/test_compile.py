import warnings

import pytest

from reconciler.errors import EvaluationError, InvalidPolicy
from reconciler.languages.jmespath import Limits, compile_expression
from reconciler.languages.jmespath.functions.registry import REGISTRY


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("", "the expression is empty"),
        ("  ", "the expression is empty"),
        ("a.", "column 3: the expression ends too early"),
        ("a.b)", "column 4: unexpected ')'"),
        ("a..b", "column 3: unexpected '.b'"),
        ("a b", "column 3: unexpected 'b'"),
        ("a = b", "column 3: unexpected '='"),
        ("'open", "column 1: the quote is not closed"),
        ('"open', "column 1: the quote is not closed"),
        ("a || `open", "column 6: the quote is not closed"),
        ("a == `no json`", "column 6: the literal between backticks is not JSON"),
        ("`NaN`", "the literal between backticks is not JSON"),
        ("`1e999`", "the literal between backticks is not JSON"),
        ("list[::0]", "the step of a slice cannot be 0"),
        ("&a", "& stands only before an argument of a function"),
        ("a.first(b)", "column 3: unknown function: first"),
        ("'no(x)' || no(x)", "column 12: unknown function: no"),
        ("length()", "incorrect number of args: length takes 1, not 0"),
        ("a || length(b, c)", "column 6: incorrect number of args: length takes 1, not 2"),
        ("merge()", "merge takes 1 or more, not 0"),
        ("length(&a)", "argument 1 of length cannot be written &..."),
        ("sort_by(a, b)", "argument 2 of sort_by must be an expression, written &..."),
    ],
)
def test_invalid_expressions_are_refused(source, reason):
    with pytest.raises(InvalidPolicy) as failure:
        compile_expression(source, location="spec.rules[0].x")
    assert failure.value.location == "spec.rules[0].x"
    assert reason in failure.value.reason


def test_a_literal_that_is_not_json_causes_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InvalidPolicy):
            compile_expression("`text`")


@pytest.mark.parametrize(
    "source",
    ["(" * 5000 + "a" + ")" * 5000, "!" * 200 + "a", "`" + "[" * 100_000, "a" * 70_000],
)
def test_expressions_that_are_too_large_are_refused(source):
    with pytest.raises(InvalidPolicy):
        compile_expression(source)


def test_a_long_chain_does_not_count_as_deep_nesting():
    source = ".".join(["a"] * 3000) + "[0]" * 3000
    data = {"a": None}
    assert compile_expression(source).search(data) is None


def test_a_long_refused_expression_is_shortened_in_the_error():
    with pytest.raises(InvalidPolicy) as failure:
        compile_expression("a" * 500 + "(")
    assert len(failure.value.reason) < 250


@pytest.mark.parametrize(
    ("source", "reads"),
    [
        ("a.b.c", {("a", "b", "c")}),
        ('a."x/y"', {("a", "x/y")}),
        ("a.b || c", {("a", "b"), ("c",)}),
        ("(a || b).c", {("a",), ("a", "c"), ("b", "c")}),
        ("a && b.c", {("a",), ("b", "c")}),
        ("a.b == `1`", {("a", "b")}),
        ("!a", {("a",)}),
        ("a.b[0].c", {("a", "b")}),
        ("a.b[].c", {("a", "b")}),
        ("a.b[*].c", {("a", "b")}),
        ("a.b[1:].c", {("a", "b")}),
        ("a.b[?c == 'x'].d", {("a", "b")}),
        ("a.*.c", {("a",)}),
        ("a | b | c", {("a", "b", "c")}),
        ("a.[b, c.d]", {("a", "b"), ("a", "c", "d")}),
        ("a.{x: b}", {("a", "b")}),
        ("length(a.b)", {("a", "b")}),
        ("sort_by(a.b, &c)", {("a", "b")}),
        ("a.to_string(@)", {("a",)}),
        ("'text'", set()),
        ("@", {()}),
        ("to_string(@)", {()}),
        ("*.a", {()}),
        ("a | @", {("a",)}),
    ],
)
def test_the_paths_that_an_expression_reads_are_known(source, reads):
    expression = compile_expression(source)
    assert expression.reads == reads
    assert expression.roots == {path[0] if path else "@" for path in reads}
    assert not expression.dynamic


def test_the_functions_of_an_expression_are_listed():
    assert compile_expression("length(keys(a) || sort(b))").functions == {"length", "keys", "sort"}


def test_all_functions_are_registered():
    standard = {name for name, one in REGISTRY.items() if one.standard}
    assert " ".join(sorted(standard)) == (
        "abs avg ceil contains ends_with floor join keys length map max max_by merge min min_by"
        " not_null reverse sort sort_by starts_with to_array to_number to_string type values"
    )
    assert " ".join(sorted(REGISTRY.keys() - standard)) == (
        "add base64_decode base64_encode compare divide equal_fold image_normalize is_external_url"
        " items label_match lookup md5 modulo multiply object_from_lists parse_json parse_yaml"
        " path_canonicalize pattern_match random regex_match regex_replace_all"
        " regex_replace_all_literal replace replace_all round semver_compare sha1 sha256 split"
        " subtract sum time_add time_after time_before time_between time_diff time_now"
        " time_now_utc time_parse time_since time_to_cron time_truncate time_utc to_boolean"
        " to_lower to_upper trim trim_prefix truncate x509_decode"
    )


DOUBLING = " | ".join(["[@, @]"] * 40)


@pytest.mark.parametrize(
    "source",
    [
        DOUBLING,
        f"{DOUBLING} | to_string(@)",
        f"{DOUBLING} | {'[]' * 39}",
        f"{DOUBLING} | {'.'.join(['[*]'] * 30)}".replace(".[*]", "[*]"),
        f"[{DOUBLING}, {DOUBLING}] | [0] == [1]",
        f"contains([{DOUBLING}], {DOUBLING})",
        " | ".join(["join('', [@, @])"] * 40),
        " | ".join(["to_string([@])"] * 40),
    ],
)
def test_results_beyond_the_limits_are_refused(source):
    with pytest.raises(EvaluationError, match=r"more than|longer than"):
        compile_expression(source).search("abc")


def test_limits_are_settable():
    expression = compile_expression("a[*].b", limits=Limits(elements=3))
    assert expression.search({"a": [{"b": 1}, {}]}) == [1]
    with pytest.raises(EvaluationError, match="more than 3 elements"):
        expression.search({"a": [{}] * 4})


def test_data_that_is_too_deep_is_an_evaluation_error():
    deep = None
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(EvaluationError, match="nested too deeply"):
        compile_expression("to_string(@)").search(deep)
