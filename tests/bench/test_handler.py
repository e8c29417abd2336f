"""The three requests of the handler's bench differ in cost as expected."""

from tests.bench import handler


def test_the_three_requests_differ_in_cost_as_expected():
    few, many = handler.measure(4), handler.measure(40)
    # A kind that policies name costs more than one that none names, and more with each policy.
    assert many.other.p50 < many.one.p50
    assert few.one.p50 < many.one.p50
    assert many.bytes_per_policy > 1_000
