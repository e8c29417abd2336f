"""The measurement of the handler measures what it says."""

from tests.bench import handler


def test_the_three_requests_are_distinguished():
    few, many = handler.measure(4), handler.measure(40)
    # What a policy is about costs more than another kind, and more with each policy.
    assert many.other.p50 < many.one.p50
    assert few.one.p50 < many.one.p50
    assert many.bytes_per_policy > 1_000
