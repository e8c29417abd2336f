import pytest

from reconciler.engine.values import scalars

SECOND = scalars.SECOND


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1h30m", 5400 * SECOND),
        ("1.5h", 5400 * SECOND),
        (".5s", SECOND // 2),
        ("-2s", -2 * SECOND),
        ("+3ms", 3_000_000),
        ("7us", 7_000),
        ("7µs", 7_000),
        ("1h1h", 7200 * SECOND),
        ("0", 0),
        ("2562047h47m16.854775807s", (1 << 63) - 1),
    ],
)
def test_reads_a_duration(text: str, nanoseconds: int) -> None:
    assert scalars.parse_duration(text) == nanoseconds


@pytest.mark.parametrize(
    "text", ["", "10", "1d", "s", ".s", "1h.s", " 1s", "1s ", "h1", "2562048h"]
)
def test_refuses_invalid_durations(text: str) -> None:
    assert scalars.parse_duration(text) is None


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [("1G", "1Gi"), ("500m", "0.6"), ("999999999n", "1"), ("1e3", "1.1k"), ("-1Ki", "0")],
)
def test_orders_quantities(smaller: str, larger: str) -> None:
    low, high = scalars.parse_quantity(smaller), scalars.parse_quantity(larger)
    assert low is not None
    assert high is not None
    assert low.nano < high.nano


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("1024Mi", "1Gi"),
        ("0.5", "500m"),
        ("1E", "1000P"),
        ("1E2", "100"),
        ("5.", "+5"),
        ("1.G", "1G"),
    ],
)
def test_recognizes_equal_quantities(left: str, right: str) -> None:
    one, other = scalars.parse_quantity(left), scalars.parse_quantity(right)
    assert one is not None
    assert other is not None
    assert one.nano == other.nano


def test_keeps_the_format_of_a_quantity() -> None:
    formats = [
        getattr(scalars.parse_quantity(text), "format", None) for text in ("1k", "1Ki", "1e3")
    ]
    assert formats == ["DecimalSI", "BinarySI", "DecimalExponent"]


def test_rounds_below_a_billionth_away_from_zero() -> None:
    assert scalars.parse_quantity("0.0000000001") == scalars.parse_quantity("1n")
    assert scalars.parse_quantity("-0.0000000001") == scalars.parse_quantity("-1n")


@pytest.mark.parametrize(
    "text", ["", "-", ".", "Gi", "1 Gi", "1gi", "1KiB", "0x10", "1e", "1_000"]
)
def test_refuses_invalid_quantities(text: str) -> None:
    assert scalars.parse_quantity(text) is None


def test_bounds_the_cost_of_a_quantity() -> None:
    assert scalars.parse_quantity("1e999999") is not None
    assert scalars.parse_quantity("9" * 10_000) is None


def test_orders_versions() -> None:
    texts = ["1.0.0-1", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0", "1.9.3", "1.10.0"]
    keys = [scalars.parse_semver(text) for text in texts]
    assert None not in keys
    assert keys == sorted(key for key in keys if key is not None)


def test_ignores_the_build_of_a_version() -> None:
    assert scalars.parse_semver("1.2.3+a") == scalars.parse_semver("1.2.3+b.1")


@pytest.mark.parametrize(
    "text", ["v1.2.3", "1.2", "01.2.3", "1.2.3-01", "1.2.3-", "1.2.3+", "1.2.3 "]
)
def test_refuses_versions_that_are_not_strict(text: str) -> None:
    assert scalars.parse_semver(text) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "a"),
        (True, "true"),
        (7, "7"),
        (1e21, "1000000000000000000000"),
        (10.0, "10"),
        (1.5, "1.5"),
        (None, "null"),
        ({"a": [1]}, '{"a":[1]}'),
    ],
)
def test_writes_values_as_text(value: object, text: str) -> None:
    assert scalars.text(value) == text


def test_reads_numbers_strictly() -> None:
    assert scalars.parse_int("-12") == -12
    for text in ("1_0", " 1", "0x1", "", "1.5", "9223372036854775808"):
        assert scalars.parse_int(text) is None
    assert scalars.is_number(0)
    assert not scalars.is_number(False)
