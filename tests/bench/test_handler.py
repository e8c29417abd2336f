"""The measurement of the handler measures what it says."""

from tests.bench import handler


def test_the_three_requests_are_told_apart():
    few, many = handler.measure(4), handler.measure(40)
    # Another kind costs nothing per policy, the same kind does.
    assert many.other.p50 < many.none.p50
    assert few.none.p50 < many.none.p50
    assert many.bytes_per_policy > 1_000
