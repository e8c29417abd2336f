"""Numbers by the rules of Go's strconv; the expected values come from running it."""

import pytest

from reconciler.engine.values.gonumbers import (
    format_float,
    parse_float,
    parse_int64,
    parse_uint64,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0x1F", 31),
        ("0b11", 3),
        ("0o17", 15),
        ("017", 15),
        ("1_000", 1000),
        ("0_7", 7),
        ("0x_1", 1),
        ("-9223372036854775808", -(1 << 63)),
        ("9223372036854775808", None),
        ("1__0", None),
        ("_1", None),
        ("1_", None),
        ("08", None),
        ("+", None),
        ("", None),
        ("\u0661", None),
    ],
)
def test_an_integer_is_read_with_its_prefix_and_underscores(text: str, value: int | None) -> None:
    assert parse_int64(text) == value


def test_an_unsigned_integer_has_no_sign() -> None:
    assert parse_uint64("+1") is None
    assert parse_uint64("18446744073709551615") == (1 << 64) - 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1_23.50_0_0e+1_2", 1.235e14),
        ("0x1p-2", 0.25),
        (".5", 0.5),
        ("1.", 1.0),
        ("Infinity", float("inf")),
        ("1e400", None),
        ("_1.5", None),
        ("1_.5", None),
        ("0x1", None),
        ("1e", None),
        ("nanx", None),
        ("\u0131nf", None),
        ("\u0130nfinity", None),
    ],
)
def test_a_float_is_read(text: str, value: float | None) -> None:
    assert parse_float(text) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (999999.0, "999999"),
        (1e6, "1e+06"),
        (1234567.0, "1.234567e+06"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (-0.0, "-0"),
        (1e100, "1e+100"),
        (float("-inf"), "-Inf"),
    ],
)
def test_a_float_is_written_with_the_fewest_digits(value: float, text: str) -> None:
    assert format_float(value) == text
