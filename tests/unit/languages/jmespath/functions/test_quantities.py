import pytest

from reconciler.engine.values.scalars import format_duration, format_quantity, parse_quantity


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("add(`1`, `2`)", 3),
        ("add(`1.5`, `2.5`)", 4),
        ("add('128Mi', '1Gi')", "1152Mi"),
        ("add('0', '1Gi')", "1Gi"),
        ("subtract('0Mi', '2k')", "-2k"),
        ("sum(['0', '0m', '512Mi', '1Gi'])", "1536Mi"),
        ("add('1Gi', '1')", "1073741825"),
        ("add('5m', '10m')", "15m"),
        ("add('5s', '1h')", "1h0m5s"),
        ("add('10', '10')", "20"),
        ("add('1e3', '1e3')", "2e3"),
        ("subtract('1h', '1h30m')", "-30m0s"),
        ("subtract('2Gi', '1Mi')", "2047Mi"),
        ("subtract(`1`, `1.5`)", -0.5),
        ("sum(`[1, 2, 3.5]`)", 6.5),
        ('sum(`["100m", "1", "900m"]`)', "2"),
        ('sum(`["1h", "60s"]`)', "1h1m0s"),
        ('sum(`["1024Mi"]`)', "1024Mi"),
        ('sum(`["much"]`)', "much"),
        ("multiply('100m', `3`)", "300m"),
        ("multiply(`3`, '100m')", "300m"),
        ("multiply('1Gi', `0.5`)", "512Mi"),
        ("multiply('10s', `0.3`)", "3s"),
        ("multiply(`4`, `0.5`)", 2),
        ("divide('1Gi', '512Mi')", 2),
        ("divide('1', `3`)", "0"),
        ("divide('1.00', `3`)", "330m"),
        ("divide('128Mi', `3.0`)", "44739242"),
        ("divide('0.5Gi', `3`)", "178956970666666666n"),
        ("divide('-1.00', `3`)", "-330m"),
        ("divide('90m', `0.5`)", "180m"),
        ("divide('1h', '0h30m')", 2),
        ("divide('1h', `4`)", "15m0s"),
        ("divide(`1`, `4`)", 0.25),
        ("modulo(`-7`, `3`)", -1),
        ("modulo(`7.0`, `-3`)", 1),
        ("modulo('1Ki', '1000')", "24"),
        ("modulo('100s', '0h1m')", "40s"),
        ("round(`2.5`, `0`)", 3),
        ("round(`-2.5`, `0`)", -3),
        ("round(`3.14159`, `2`)", 3.14),
        ("round(`7`, `400`)", 7),
        ("round(`1.5`, `400`)", 1.5),
        ("round(`1e22`, `1`)", 1e22),
    ],
)
def test_calculations_return_the_expected_values(run, source, expected):
    result = run(source)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("add('1Gi', `1`)", "'add': Types mismatch"),
        ("add('1Gi', '1s')", "'add': Types mismatch"),
        ("add('much', `1`)", "'add': invalid operand"),
        ("add(`true`, `1`)", "'add': invalid operand"),
        ("add(absent, `1`)", "'add': invalid operand"),
        ("add('2562047h', '2562047h')", "'add': the result is out of range"),
        ("sum(`[]`)", "'sum': at least one element in the array is required"),
        ('sum(`[1, "1Gi"]`)', "'sum': Types mismatch"),
        ("sum(`[1, true]`)", "'sum': invalid operand"),
        ("multiply('1s', '1s')", "'multiply': Types mismatch"),
        ("multiply(`1e300`, `1e300`)", "'multiply': the result is out of range"),
        ("multiply('8Ei', `2`)", "'multiply': the result is out of range"),
        ("multiply('1', `1e30`)", "'multiply': the result is out of range"),
        ("divide(`1`, '1s')", "'divide': Types mismatch"),
        ("divide('1Gi', `0`)", "'divide': Zero divisor passed"),
        ("divide('1s', '0s')", "'divide': Zero divisor passed"),
        ("divide(`1e300`, `1e-300`)", "'divide': the result is out of range"),
        ("modulo(`1.5`, `1`)", "'modulo': Non-integer argument(s) passed for modulo"),
        ("modulo('1500m', '1')", "'modulo': Non-integer argument(s) passed for modulo"),
        ("modulo('1', '0')", "'modulo': Zero divisor passed"),
        ("modulo('1', `1`)", "'modulo': Types mismatch"),
        ("round(`1`, `0.5`)", "'round': Non-integer argument(s) passed for round off"),
        ("round(`1`, `-1`)", "'round': -1 argument is out of bounds (0)"),
    ],
)
def test_invalid_calculations_are_errors(fails, source, reason):
    assert fails(source) == f"JMESPath function {reason}"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("0", "0"),
        ("0Ki", "0"),
        ("1000", "1k"),
        ("1001", "1001"),
        ("1500m", "1500m"),
        ("0.5Gi", "512Mi"),
        ("1023", "1023"),
        ("1Ki", "1Ki"),
        ("1536Ki", "1536Ki"),
        ("2048Ki", "2Mi"),
        ("0.5Ki", "512"),
        ("0.1Ki", "102400m"),
        ("1e4", "10e3"),
        ("1e-4", "100e-6"),
        ("5000E", "5000E"),
        ("-3000k", "-3M"),
    ],
)
def test_a_quantity_is_written_without_loss(text, written):
    quantity = parse_quantity(text)
    assert quantity is not None
    assert format_quantity(quantity) == written


@pytest.mark.parametrize(
    ("nanoseconds", "written"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1_500, "1.5µs"),
        (-2_000_000, "-2ms"),
        (1_000_000_001, "1.000000001s"),
        (61 * 10**9, "1m1s"),
        (3600 * 10**9, "1h0m0s"),
    ],
)
def test_a_duration_is_written_as_go_writes_it(nanoseconds, written):
    assert format_duration(nanoseconds) == written
