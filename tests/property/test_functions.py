"""Laws of the functions that expressions may call."""

from datetime import UTC, datetime, timedelta

import orjson
import re2
from hypothesis import given
from hypothesis import strategies as st

from reconciler.engine.environment import environment_entry
from reconciler.engine.values.gotime.timestamp import (
    Civil,
    date_of,
    days_before,
    from_datetime,
    instant,
)
from reconciler.engine.values.scalars import (
    Quantity,
    format_duration,
    format_quantity,
    parse_duration,
    parse_quantity,
)
from reconciler.errors import EvaluationError
from reconciler.languages.jmespath import compile_expression
from reconciler.languages.jmespath.functions.registry import REGISTRY

NOW = datetime(2026, 11, 21, tzinfo=UTC)
# Valid arguments of some functions; the other functions are called with them, too.
TEXTS = st.sampled_from(
    [
        *("", "0", "1", "-1", "5m", "1Gi", "-0.5Ki", "1e3", "1e-9", "9E", "1h", "-1h30m", "1ns"),
        *("0s", "||", "x", "TRUE", "a*?", "1.2.3", ">=1.0.0 <2.x || !3.1.x", "\x00", "\ud800"),
        *("2026-02-28T23:59:59.5+05:30", "0000-01-01T00:00:00Z", "9999-12-31T23:59:59Z"),
        *("2006-01-02T15:04:05Z07:00", "Mon Jan _2 03:04:05.999 pm MST 06 __2 -0700"),
        *("(a|b)*c{2,}", "[^a-c]+$", "(", "$1${n}$$", "(?P<n>.)", "\\", "1700000000"),
        *("[", "{", "eyJhIjogWzFdfQ==", '{"a": [1, null]}', "a: &x [1]\nb: *x", "- - -", "!!x y"),
        *("http://10.0.0.1/", "http://a.example", "a/../../b//", "shop/cart:1@"),
        *("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----", "ÄßİĿ\u03c2\U0001f600"),
    ]
)
NUMBERS = (
    st.integers(min_value=-(2**63), max_value=2**63 - 1)
    | st.integers(min_value=-3, max_value=12)
    | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)
OF_TYPE = {
    "any": VALUES,
    "string": TEXTS | st.text(max_size=20),
    "number": NUMBERS,
    "array": st.lists(VALUES, max_size=4),
    "object": st.dictionaries(TEXTS, VALUES, max_size=3),
    "array[number]": st.lists(NUMBERS, max_size=4),
    "array[string]": st.lists(TEXTS, max_size=4),
}


@st.composite
def calls(draw):
    """Draw a call and its arguments, most of them of a type that the function accepts."""
    name = draw(st.sampled_from(sorted(REGISTRY)))
    takes = REGISTRY[name].takes
    arguments = [draw(st.one_of([OF_TYPE.get(one, VALUES) for one in types])) for types in takes]
    if arguments and draw(st.integers(0, 9)) == 0:
        arguments[draw(st.integers(0, len(arguments) - 1))] = draw(VALUES)
    written = ("&@" if types == ("expression",) else f"a[{i}]" for i, types in enumerate(takes))
    return f"{name}({', '.join(written)})", arguments


@given(calls(), st.randoms())
def test_a_call_returns_a_json_value_or_raises_an_evaluation_error(call, rng):
    source, arguments = call
    environment = environment_entry(now=NOW, randbelow=rng.randrange)
    try:
        result = compile_expression(source).search({"a": arguments, **environment})
    except EvaluationError:
        return
    if "\\ud8" not in ascii(arguments):
        assert orjson.loads(orjson.dumps(result)) == result


@given(st.text(max_size=40))
def test_base64_decoding_reverses_encoding(text):
    source = "base64_decode(base64_encode(text))"
    assert compile_expression(source).search({"text": text}) == text


@given(
    st.integers(-(10**24), 10**24), st.sampled_from(["DecimalSI", "BinarySI", "DecimalExponent"])
)
def test_a_formatted_quantity_is_parsed_to_the_same_amount(nano, form):
    written = format_quantity(Quantity(nano=nano, format=form))
    read = parse_quantity(written)
    assert read is not None
    assert read.nano == nano


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_formatted_duration_is_parsed_to_the_same_length(nanoseconds):
    assert parse_duration(format_duration(nanoseconds)) == nanoseconds


AMOUNTS = st.integers(-(10**12), 10**12).map("{}m".format) | st.integers(0, 2**40).map(
    "{}Ki".format
)


@given(AMOUNTS, AMOUNTS)
def test_subtraction_reverses_addition(first, second):
    source = "subtract(add(a, b), b)"
    left = parse_quantity(compile_expression(source).search({"a": first, "b": second}))
    right = parse_quantity(first)
    assert left is not None
    assert right is not None
    assert left.nano == right.nano


@given(st.integers(-800, 10_800).map(lambda year: year * 365), st.integers(0, 400))
def test_the_date_of_a_day_number_converts_back_to_it(base, more):
    days = base + more
    assert days_before(*date_of(days)) == days


@given(st.datetimes(timezones=st.just(UTC)))
def test_the_calendar_is_that_of_the_standard_library(moment):
    found = from_datetime(moment.replace(microsecond=0))
    assert found.rfc3339() == moment.replace(microsecond=0).isoformat().replace("+00:00", "Z")
    assert found.weekday() == moment.isoweekday() % 7
    civil = found.civil()
    assert instant(civil) == found
    assert isinstance(civil, Civil)


MOMENTS = st.datetimes(
    min_value=datetime(1900, 1, 1),  # noqa: DTZ001 - hypothesis wants it without a zone
    max_value=datetime(2100, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
).map(lambda moment: moment.replace(microsecond=0))


@given(MOMENTS, MOMENTS)
def test_adding_a_time_difference_yields_the_other_time(first, second):
    texts = {"a": first.isoformat(), "b": second.isoformat()}
    assert compile_expression("time_add(a, time_diff(a, b)) == time_utc(b)").search(texts)
    assert compile_expression("time_before(a, b)").search(texts) is (first < second)


@given(MOMENTS, st.integers(1, 10**6))
def test_a_truncated_time_is_a_multiple_of_the_duration(moment, seconds):
    data = {"t": moment.isoformat(), "d": f"{seconds}s"}
    text = compile_expression("time_truncate(t, d)").search(data)
    since = datetime.fromisoformat(text) - datetime(1, 1, 1, tzinfo=UTC)
    assert not since % timedelta(seconds=seconds)
    assert timedelta() <= moment - datetime.fromisoformat(text) < timedelta(seconds=seconds)


PATTERNS = st.recursive(
    st.sampled_from(["a", "é", "[a-f]", "[^a-z]", r"\d", r"\W", ".", r"\.", "x?", "b{2,4}", "c+"]),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map("".join)
        | st.tuples(inner, inner).map("(?:{0[0]}|{0[1]})".format)
        | inner.map("({}){{0,3}}".format)
        | inner.map("({})*".format)
    ),
    max_leaves=5,
)


@given(PATTERNS, st.randoms())
def test_a_random_text_matches_its_pattern(pattern, rng):
    environment = environment_entry(randbelow=rng.randrange)
    text = compile_expression("random(p)").search({"p": pattern, **environment})
    assert re2.fullmatch(f"(?s){pattern}", text)


VERSIONS = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)).map(
    "{0[0]}.{0[1]}.{0[2]}".format
)


@given(VERSIONS, VERSIONS | st.sampled_from(["1.x", "2.1.x", "0.x.x"]))
def test_a_range_and_its_opposite_share_no_version(version, bound):
    data = {"v": version, "b": bound}

    def holds(operator):
        source = f"semver_compare(v, join('', ['{operator}', b]))"
        return compile_expression(source).search(data)

    assert holds("=") is not holds("!=")
    assert holds("<") is not holds(">=")
    assert holds(">") is not holds("<=")


@given(st.text("ab-", max_size=30), st.text("ab-", min_size=1, max_size=3), st.text(max_size=3))
def test_literal_replacement_is_the_same_with_and_without_a_regular_expression(text, old, new):
    data = {"t": text, "o": old, "n": new}
    plain, regex = (
        compile_expression(f"{name}({arguments})").search(data)
        for name, arguments in (
            ("replace_all", "t, o, n"),
            ("regex_replace_all_literal", "o, t, n"),
        )
    )
    assert plain == regex
